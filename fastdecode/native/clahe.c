/* clahe.c: OpenCV's CLAHE of the lightness, as albumentations calls it: in CIE L*a*b* of bytes.
 *
 * The lightness is OpenCV's own, in its fixed point. The way back is in float32: of 100 000 values, about
 * 4 differ from OpenCV's by more than 1.
 */
#include "augment.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    LEVELS = 256,
    LINEAR_BITS = 3,            /* of linear light, beyond the 8 of a byte */
    ROOTS = LEVELS * 3 / 2 * 8, /* cube roots of it */
    SUM_BITS = 12,
    ROOT_BITS = 15,
    GAMMAS = 1 << 14 /* bytes of linear light */
};

static int32_t linear[LEVELS], roots[ROOTS];
static uint8_t gammas[GAMMAS + 1];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;
static const double WHITE[3] = {0.950456, 1.0, 1.088754};
static const double FROM_RGB[3][3] = {
    {0.412453, 0.357580, 0.180423}, {0.212671, 0.715160, 0.072169}, {0.019334, 0.119193, 0.950227}};
static const float TO_RGB[3][3] = {{3.240479F, -1.53715F, -0.498535F},
                                   {-0.969256F, 1.875991F, 0.041556F},
                                   {0.055648F, -0.204043F, 1.057311F}};
static int32_t from_rgb[3][3];

static void make_tables(void) {
    for (int v = 0; v < LEVELS; v++) {
        double x = v / 255.0, light = x <= 0.04045 ? x / 12.92 : pow((x + 0.055) / 1.055, 2.4);
        linear[v] = (int32_t)rint(255.0 * (1 << LINEAR_BITS) * light);
    }
    for (int v = 0; v < ROOTS; v++) {
        double x = v / (255.0 * (1 << LINEAR_BITS));
        double root = x < 216.0 / 24389.0 ? 841.0 / 108.0 * x + 16.0 / 116.0 : cbrt(x);
        roots[v] = (int32_t)rint((1 << ROOT_BITS) * root);
    }
    for (int v = 0; v <= GAMMAS; v++) {
        double x = (double)v / GAMMAS;
        double level = x <= 0.0031308 ? x * 12.92 : 1.055 * pow(x, 1.0 / 2.4) - 0.055;
        gammas[v] = (uint8_t)rint(255.0 * level);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            from_rgb[i][k] = (int32_t)rint((1 << SUM_BITS) * FROM_RGB[i][k] / WHITE[i]);
}

static int32_t descaled(int32_t value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

static uint8_t limited(int32_t value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void to_lab(uint8_t *pixel) {
    int32_t root[3];

    for (int i = 0; i < 3; i++) {
        int32_t sum = 0;
        for (int c = 0; c < 3; c++)
            sum += from_rgb[i][c] * linear[pixel[c]];
        root[i] = roots[descaled(sum, SUM_BITS)];
    }
    int32_t middle = 128 << ROOT_BITS, offset = (16 * 255 * (1 << ROOT_BITS) + 50) / 100;
    pixel[0] = limited(descaled((116 * 255 + 50) / 100 * root[1] - offset, ROOT_BITS));
    pixel[1] = limited(descaled(500 * (root[0] - root[1]) + middle, ROOT_BITS));
    pixel[2] = limited(descaled(200 * (root[1] - root[2]) + middle, ROOT_BITS));
}

static float cube(float root) {
    return root <= 6.0F / 29.0F ? (root - 16.0F / 116.0F) / 7.787F : root * root * root;
}

static void to_rgb(uint8_t *pixel) {
    float light = (float)pixel[0] * (100.0F / 255.0F);
    float y = light <= 8.0F ? light / 903.3F : cube((light + 16.0F) / 116.0F);
    float root = light <= 8.0F ? 7.787F * y + 16.0F / 116.0F : (light + 16.0F) / 116.0F;
    float x = (float)WHITE[0] * cube(root + (float)(pixel[1] - 128) / 500.0F);
    float z = (float)WHITE[2] * cube(root - (float)(pixel[2] - 128) / 200.0F);

    for (int c = 0; c < 3; c++) {
        float level = TO_RGB[c][0] * x + TO_RGB[c][1] * y + TO_RGB[c][2] * z;
        level = level < 0.0F ? 0.0F : level > 1.0F ? 1.0F : level;
        pixel[c] = gammas[(int32_t)(level * GAMMAS + 0.5F)];
    }
}

/* The tiles of an image, whose sides are multiples of theirs after mirroring. */
typedef struct {
    int32_t columns, rows, width, height; /* how many, and of each in pixels */
    uint8_t (*tables)[LEVELS];
} tiling;

/* Cut off what of a histogram exceeds a limit, and share it out among all levels. */
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

static void make_table(const fd_canvas *canvas, const tiling *tiles, int32_t number, double limit) {
    int32_t counts[LEVELS] = {0}, size = tiles->width * tiles->height, sum = 0;
    int32_t left = number % tiles->columns * tiles->width;
    int32_t top = number / tiles->columns * tiles->height;

    for (int32_t y = top; y < top + tiles->height; y++)
        for (int32_t x = left; x < left + tiles->width; x++) {
            int32_t row = fd_padded(y, canvas->height, FD_PAD_REFLECT);
            int32_t column = fd_padded(x, canvas->width, FD_PAD_REFLECT);
            counts[canvas->pixels[4 * ((size_t)row * (size_t)canvas->width + (size_t)column)]]++;
        }
    int32_t most = (int32_t)fmin(limit * size / LEVELS, size);
    clip(counts, most < 1 ? 1 : most);
    for (int v = 0; v < LEVELS; v++) {
        sum += counts[v];
        tiles->tables[number][v] = limited((int32_t)rintf((float)sum * (255.0F / (float)size)));
    }
}

/* The tiles before and after a place, and the share of the second. */
static float between(int32_t at, int32_t side, int32_t count, int32_t *before, int32_t *after) {
    float place = (float)at * (1.0F / (float)side) - 0.5F;
    int32_t first = (int32_t)floorf(place);

    *before = first < 0 ? 0 : first;
    *after = first + 1 < count ? first + 1 : count - 1;
    return place - (float)first;
}

static void apply_tables(fd_canvas *canvas, const tiling *tiles) {
    for (int32_t y = 0; y < canvas->height; y++) {
        int32_t above, below, left, right;
        float down = between(y, tiles->height, tiles->rows, &above, &below);
        for (int32_t x = 0; x < canvas->width; x++) {
            uint8_t *pixel = canvas->pixels + 4 * ((size_t)y * (size_t)canvas->width + (size_t)x);
            float across = between(x, tiles->width, tiles->columns, &left, &right);
            int32_t v = pixel[0], top = above * tiles->columns, bottom = below * tiles->columns;
            float upper = (float)tiles->tables[top + left][v] * (1.0F - across) +
                          (float)tiles->tables[top + right][v] * across;
            float lower = (float)tiles->tables[bottom + left][v] * (1.0F - across) +
                          (float)tiles->tables[bottom + right][v] * across;
            pixel[0] = limited((int32_t)rintf(upper * (1.0F - down) + lower * down));
        }
    }
}

int fd_clahe(fd_canvas *canvas, const double *value, fd_room *room) {
    size_t count = (size_t)canvas->width * (size_t)canvas->height;
    tiling tiles = {.columns = (int32_t)value[1], .rows = (int32_t)value[2]};
    int32_t right = canvas->width % tiles.columns, below = canvas->height % tiles.rows;

    /* If one side must be mirrored, OpenCV adds a whole tile's worth to one that need not. */
    int32_t more = right || below;
    tiles.width = (canvas->width + more * (tiles.columns - right)) / tiles.columns;
    tiles.height = (canvas->height + more * (tiles.rows - below)) / tiles.rows;
    tiles.tables = fd_room_for(room, (size_t)tiles.columns * (size_t)tiles.rows * LEVELS);
    if (tiles.tables == NULL)
        return FD_NO_MEMORY;
    pthread_once(&tables_made, make_tables);
    for (size_t i = 0; i < count; i++)
        to_lab(canvas->pixels + 4 * i);
    for (int32_t i = 0; i < tiles.columns * tiles.rows; i++)
        make_table(canvas, &tiles, i, value[0]);
    apply_tables(canvas, &tiles);
    for (size_t i = 0; i < count; i++)
        to_rgb(canvas->pixels + 4 * i);
    return FD_OK;
}
