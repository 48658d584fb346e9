/* clahe.c: OpenCV's CLAHE of the lightness, as albumentations calls it: in CIE L*a*b* of bytes.
 *
 * All of it is OpenCV's, bit for bit: the ways to L*a*b* and back are in its fixed point. What is looked up
 * is so in loops of their own; the compiler makes vectors of the others.
 */
#include "operations.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    LEVELS = 256,
    LINEAR_BITS = 3,            /* of linear light, beyond the 8 of a byte */
    ROOTS = LEVELS * 3 / 2 * 8, /* cube roots of it */
    SUM_BITS = 12,
    ROOT_BITS = 15,
    BACK_BITS = 14, /* of cube roots and of light on the way back */
    BACK = 1 << BACK_BITS,
    GAMMA_BITS = 12,
    GAMMAS = 1 << GAMMA_BITS, /* bytes of linear light */
    RUN = 256                 /* pixels at a time */
};

/* A number for each of a run's pixels and of three channels. */
typedef struct {
    int32_t of[3][RUN];
} run;

static int32_t weighted[3][LEVELS][4]; /* what the level of a channel adds to X, Y and Z */
static int32_t from_lightness[LEVELS], root_of_lightness[LEVELS], to_rgb[3][3];
static uint16_t roots[ROOTS];
static uint8_t gammas[GAMMAS];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;
static const double WHITE[3] = {0.950456, 1.0, 1.088754};
static const double FROM_RGB[3][3] = {
    {0.412453, 0.357580, 0.180423}, {0.212671, 0.715160, 0.072169}, {0.019334, 0.119193, 0.950227}};
static const double TO_RGB[3][3] = {{3.240479, -1.53715, -0.498535},
                                    {-0.969256, 1.875991, 0.041556},
                                    {0.055648, -0.204043, 1.057311}};

static void make_tables_back(void) {
    for (int v = 0; v < LEVELS; v++) { /* up to 20 the curve is a line */
        double root = v <= 20 ? BACK * (16.0 / 116.0 + v * 5.0 / (3 * 17 * 29))
                              : BACK * (v * 100.0 / 255.0 + 16.0) / 116.0;
        double light = v <= 20 ? BACK * (20.0 * 9.0 * v) / (17.0 * 29 * 29 * 29)
                               : root * root * root / BACK / BACK;
        root_of_lightness[v] = (int32_t)rint(root);
        from_lightness[v] = (int32_t)rint(light);
    }
    for (int v = 0; v < GAMMAS; v++) {
        double x = (double)v / GAMMAS;
        double level = x <= 0.0031308 ? x * 12.92 : 1.055 * pow(x, 1.0 / 2.4) - 0.055;
        gammas[v] = (uint8_t)rint(255.0 * level);
    }
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < 3; k++)
            to_rgb[c][k] = (int32_t)rint((1 << SUM_BITS) * TO_RGB[c][k] * WHITE[k]);
}

static void make_tables(void) {
    for (int v = 0; v < LEVELS; v++) {
        double x = v / 255.0, light = x <= 0.04045 ? x / 12.92 : pow((x + 0.055) / 1.055, 2.4);
        int32_t linear = (int32_t)rint(255.0 * (1 << LINEAR_BITS) * light);
        for (int c = 0; c < 3; c++)
            for (int k = 0; k < 3; k++)
                weighted[c][v][k] = linear *
                                    (int32_t)rint((1 << SUM_BITS) * FROM_RGB[k][c] / WHITE[k]);
    }
    for (int v = 0; v < ROOTS; v++) {
        double x = v / (255.0 * (1 << LINEAR_BITS));
        double root = x < 216.0 / 24389.0 ? 841.0 / 108.0 * x + 16.0 / 116.0 : cbrt(x);
        roots[v] = (uint16_t)rintf((float)((1 << ROOT_BITS) * root)); /* some are ties as floats */
    }
    make_tables_back();
}

INLINE int32_t descaled(int32_t value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

/* ---- to L*a*b* ---- */

static void find_roots(run *root, const uint8_t *pixels, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int32_t *red = weighted[0][pixels[4 * i]], *green = weighted[1][pixels[4 * i + 1]];
        const int32_t *blue = weighted[2][pixels[4 * i + 2]];
        int32_t sums[4];
        for (int k = 0; k < 4; k++)
            sums[k] = descaled(red[k] + green[k] + blue[k], SUM_BITS);
        for (int k = 0; k < 3; k++)
            root->of[k][i] = roots[sums[k]];
    }
}

VARIANTS(write_lab, (uint8_t *restrict pixels, const run *restrict root, size_t count),
         (pixels, root, count)) {
    const int32_t middle = 128 << ROOT_BITS, offset = (16 * 255 * (1 << ROOT_BITS) + 50) / 100;

    for (size_t i = 0; i < count; i++) {
        int32_t x = root->of[0][i], y = root->of[1][i], z = root->of[2][i];
        fd_save_pixel(pixels, i, fd_level(descaled((116 * 255 + 50) / 100 * y - offset, ROOT_BITS)),
                      fd_level(descaled(500 * (x - y) + middle, ROOT_BITS)),
                      fd_level(descaled(200 * (y - z) + middle, ROOT_BITS)));
    }
}

/* ---- and back ---- */

/* Light whose cube root is `root`, a line below 6 / 29. */
INLINE int32_t cube(int32_t root) {
    int32_t line = root * 108 / 841 - BACK * 16 / 116 * 108 / 841;
    int32_t whole = root > 0 ? root : 0;

    return root <= 3390 ? line : (whole * whole >> BACK_BITS) * whole >> BACK_BITS;
}

/* Turn the light of the lightness, its root, and pixels of L*a*b* to places in `gammas`. */
VARIANTS(find_places, (run *restrict place, const uint8_t *restrict pixels, size_t count),
         (place, pixels, count)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        int32_t a = pixel >> 8 & 255, b = pixel >> 16 & 255;
        int32_t y = place->of[0][i], root = place->of[1][i];
        int32_t x = cube(root + ((5 * a * 53687 + (1 << 7)) >> 13) - 128 * BACK / 500);
        int32_t z = cube(root - ((b * 41943 + (1 << 4)) >> 9) + 128 * BACK / 200 - 1);
        for (int c = 0; c < 3; c++) {
            int32_t sum = to_rgb[c][0] * x + to_rgb[c][1] * y + to_rgb[c][2] * z;
            sum = descaled(sum, SUM_BITS + BACK_BITS - GAMMA_BITS);
            sum = sum < GAMMAS ? sum : GAMMAS - 1;
            place->of[c][i] = sum > 0 ? sum : 0;
        }
    }
}

static void write_rgb(uint8_t *pixels, size_t count) {
    run place;

    for (size_t i = 0; i < count; i++) {
        place.of[0][i] = from_lightness[pixels[4 * i]];
        place.of[1][i] = root_of_lightness[pixels[4 * i]];
    }
    find_places(&place, pixels, count);
    for (size_t i = 0; i < count; i++)
        fd_save_pixel(pixels, i, gammas[place.of[0][i]], gammas[place.of[1][i]],
                      gammas[place.of[2][i]]);
}

/* ---- the tiles ---- */

/* The tiles of an image, whose sides are multiples of theirs after mirroring. */
typedef struct {
    int32_t columns, rows, width, height; /* how many, and of each in pixels */
    uint8_t (*tables)[LEVELS];
} tiling;

/* CLAHE_CalcLut_Body: every 256th of the excess goes to all levels, the rest to some, evenly apart.
 *
 * Cut off what of a histogram exceeds a limit, and share it out among all levels. */
static void clip(int32_t *counts, int32_t limit) {
    int32_t excess = 0;

    for (int v = 0; v < LEVELS; v++)
        if (counts[v] > limit) {
            excess += counts[v] - limit;
            counts[v] = limit;
        }
    int32_t rest = excess % LEVELS, step = rest > 0 ? LEVELS / rest : 1;
    for (int v = 0; v < LEVELS; v++)
        counts[v] += excess / LEVELS;
    for (int v = 0; v < LEVELS && rest > 0; v += step, rest--)
        counts[v]++;
}

/* Add to two histograms in turn, as neighbours are often equal. */
static void count_levels(int32_t counts[2][LEVELS], const fd_canvas *canvas, const tiling *tiles,
                         int32_t number) {
    int32_t left = number % tiles->columns * tiles->width, right = left + tiles->width;
    int32_t top = number / tiles->columns * tiles->height, inner = canvas->width;

    inner = inner < left ? left : inner < right ? inner : right;
    for (int32_t y = top; y < top + tiles->height; y++) {
        int32_t row = fd_padded(y, canvas->height, FD_PAD_REFLECT);
        const uint8_t *levels = canvas->pixels + 4 * (ptrdiff_t)row * canvas->width;
        for (int32_t x = left; x < inner; x++)
            counts[x & 1][levels[4 * (ptrdiff_t)x]]++;
        for (int32_t x = inner; x < right; x++)
            counts[x & 1][levels[4 * (ptrdiff_t)fd_padded(x, canvas->width, FD_PAD_REFLECT)]]++;
    }
}

static void make_table(const fd_canvas *canvas, const tiling *tiles, int32_t number, double limit) {
    int32_t counts[2][LEVELS] = {{0}}, size = tiles->width * tiles->height, sum = 0;

    count_levels(counts, canvas, tiles, number);
    for (int v = 0; v < LEVELS; v++)
        counts[0][v] += counts[1][v];
    int32_t most = (int32_t)fmin(limit * size / LEVELS, size);
    clip(counts[0], most < 1 ? 1 : most);
    for (int v = 0; v < LEVELS; v++) {
        sum += counts[0][v];
        tiles->tables[number][v] = (uint8_t)fd_level(
            (int32_t)rintf((float)sum * (255.0F / (float)size)));
    }
}

/* ---- between the middles of tiles ---- */

/* For each pixel along an axis the number of the tile whose middle is before it, from -1 on, and the share of
 * the next one. */
typedef struct {
    int32_t *tile;
    float *share;
    int32_t pixels, tiles;
} axis;

static axis axis_of(int32_t *memory, int32_t pixels, int32_t tiles, int32_t side) {
    axis along = {memory, (float *)(void *)(memory + pixels), pixels, tiles};

    for (int32_t at = 0; at < pixels; at++) {
        float place = (float)at * (1.0F / (float)side) - 0.5F;
        along.tile[at] = (int32_t)floorf(place);
        along.share[at] = place - (float)along.tile[at];
    }
    return along;
}

/* The end of the pixels from `at` on that lie between the same tiles, which are set. */
static int32_t end_of(const axis *along, int32_t at, int32_t *before, int32_t *after) {
    int32_t tile = along->tile[at];

    *before = tile < 0 ? 0 : tile;
    *after = tile + 1 < along->tiles ? tile + 1 : along->tiles - 1;
    while (at < along->pixels && along->tile[at] == tile)
        at++;
    return at;
}

/* A byte of each of four tables. */
VARIANTS(zip,
         (uint32_t *restrict zipped, const uint8_t *restrict a, const uint8_t *restrict b,
          const uint8_t *restrict c, const uint8_t *restrict d),
         (zipped, a, b, c, d)) {
    for (int v = 0; v < LEVELS; v++)
        zipped[v] = a[v] | (uint32_t)b[v] << 8 | (uint32_t)c[v] << 16 | (uint32_t)d[v] << 24;
}

INLINE float byte_of(uint32_t four, int which) { return (float)(int32_t)(four >> 8 * which & 255); }

VARIANTS(blend,
         (uint8_t *restrict pixels, const uint32_t *restrict found, const float *restrict across,
          float down, size_t count),
         (pixels, found, across, down, count)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i), four = found[i];
        float upper = byte_of(four, 0) * (1.0F - across[i]) + byte_of(four, 1) * across[i];
        float lower = byte_of(four, 2) * (1.0F - across[i]) + byte_of(four, 3) * across[i];
        fd_save_pixel(pixels, i, fd_level((int32_t)rintf(upper * (1.0F - down) + lower * down)),
                      pixel >> 8 & 255, pixel >> 16 & 255);
    }
}

static void change_row(uint8_t *pixels, const uint32_t *zipped, const float *across, float down,
                       int32_t count) {
    uint32_t found[RUN];

    for (int32_t from = 0; from < count; from += RUN, pixels += 4 * RUN) {
        int32_t part = count - from < RUN ? count - from : RUN;
        for (int32_t i = 0; i < part; i++)
            found[i] = zipped[pixels[4 * i]];
        blend(pixels, found, across + from, down, (size_t)part);
    }
}

/* OpenCV's CLAHE_Interpolation_Body: a level is looked up in the tables of the four tiles whose middles are
 * around it, and blended by its distance from them. All pixels between the same four middles are done
 * together: one lookup gives a byte of each table. */
static void apply_tables(fd_canvas *canvas, const tiling *tiles, const axis *across,
                         const axis *down) {
    int32_t above, below, before, after;
    uint32_t zipped[LEVELS];

    for (int32_t top = 0, bottom; top < canvas->height; top = bottom) {
        bottom = end_of(down, top, &above, &below);
        const uint8_t (*upper)[LEVELS] = tiles->tables + (ptrdiff_t)above * tiles->columns;
        const uint8_t (*lower)[LEVELS] = tiles->tables + (ptrdiff_t)below * tiles->columns;
        for (int32_t left = 0, right; left < canvas->width; left = right) {
            right = end_of(across, left, &before, &after);
            zip(zipped, upper[before], upper[after], lower[before], lower[after]);
            for (int32_t y = top; y < bottom; y++)
                change_row(canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + left), zipped,
                           across->share + left, down->share[y], right - left);
        }
    }
}

int fd_clahe(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    tiling tiles = {.columns = (int32_t)how->clahe.columns, .rows = (int32_t)how->clahe.rows};
    int32_t right = canvas->width % tiles.columns, below = canvas->height % tiles.rows;
    size_t tables = (size_t)tiles.columns * (size_t)tiles.rows * LEVELS;
    run root;

    /* If one side must be mirrored, OpenCV adds a whole tile's worth to one that need not. */
    int32_t more = right || below;
    tiles.width = (canvas->width + more * (tiles.columns - right)) / tiles.columns;
    tiles.height = (canvas->height + more * (tiles.rows - below)) / tiles.rows;
    size_t sides = (size_t)canvas->width + (size_t)canvas->height;
    uint8_t *memory = fd_room_for(&canvas->scratch, tables + 2 * sides * sizeof(int32_t));
    if (memory == NULL)
        return FD_NO_MEMORY;
    tiles.tables = (uint8_t (*)[LEVELS])memory;
    int32_t *places = (int32_t *)(void *)(memory + tables);
    const axis across = axis_of(places, canvas->width, tiles.columns, tiles.width);
    const axis down = axis_of(places + 2 * (ptrdiff_t)canvas->width, canvas->height, tiles.rows,
                              tiles.height);
    pthread_once(&tables_made, make_tables);
    for (size_t i = 0; i < count; i += RUN) {
        size_t part = count - i < RUN ? count - i : RUN;
        find_roots(&root, canvas->pixels + 4 * i, part);
        write_lab(canvas->pixels + 4 * i, &root, part);
    }
    for (int32_t i = 0; i < tiles.columns * tiles.rows; i++)
        make_table(canvas, &tiles, i, how->clahe.limit);
    apply_tables(canvas, &tiles, &across, &down);
    for (size_t i = 0; i < count; i += RUN)
        write_rgb(canvas->pixels + 4 * i, count - i < RUN ? count - i : RUN);
    return FD_OK;
}
