/* remap.c: distortions as albumentations draws them, with the results of OpenCV's remap: every pixel of
 * the result has a place in the source of its own; and warps with those of its warpAffine. Places are in
 * pixels from the centre of the first one.
 */
#include "random.h"
#include "warp.h"

#include <math.h>
#include <string.h>

/* The pixel at a place, which may lie outside; NULL is the fill. */
INLINE const uint8_t *pixel_at(const fd_canvas *canvas, int32_t x, int32_t y, int32_t mode) {
    if (x < 0 || x >= canvas->width || y < 0 || y >= canvas->height) {
        x = fd_padded(x, canvas->width, mode);
        y = fd_padded(y, canvas->height, mode);
        if (x < 0 || y < 0)
            return NULL;
    }
    return canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + x);
}

/* Write a pixel of the result from its place in the source, in pixels from the centre of the first one,
 * which fits an integer; `mode` is an fd_padding. */
static void write_nearest(uint8_t *out, const fd_canvas *canvas, double across, double down,
                          int32_t mode, const uint8_t *fill) {
    const uint8_t *from = pixel_at(canvas, (int32_t)rint(across), (int32_t)rint(down), mode);

    memcpy(out, from == NULL ? fill : from, 3);
}

static void write_bilinear(uint8_t *out, const fd_canvas *canvas, double across, double down,
                           int32_t mode, const uint8_t *fill) {
    int32_t column = (int32_t)floor(across), row = (int32_t)floor(down), width = canvas->width;
    float dx = (float)(across - column), dy = (float)(down - row), sums[3] = {0};

    if (column >= 0 && row >= 0 && column < width - 1 && row < canvas->height - 1) {
        const uint8_t *top = canvas->pixels + 4 * ((ptrdiff_t)row * width + column);
        const uint8_t *low = top + 4 * (ptrdiff_t)width;
        for (int c = 0; c < 4; c++) {
            float above = (float)top[c] + dx * (float)(top[c + 4] - top[c]);
            float below = (float)low[c] + dx * (float)(low[c + 4] - low[c]);
            out[c] = (uint8_t)(int32_t)(above + dy * (below - above) + 0.5F);
        }
        return;
    }
    for (int32_t k = 0; k < 4; k++) {
        const uint8_t *from = pixel_at(canvas, column + (k & 1), row + (k >> 1), mode);
        float weight = (k & 1 ? dx : 1.0f - dx) * (k >> 1 ? dy : 1.0f - dy);
        from = from == NULL ? fill : from;
        for (int c = 0; c < 3; c++)
            sums[c] += weight * (float)from[c];
    }
    for (int c = 0; c < 3; c++)
        out[c] = (uint8_t)fd_level((int32_t)rintf(sums[c]));
}

/* ---- the places of a row ---- */

typedef struct {
    const fd_operation *how;
    const float *xs,
        *ys; /* of a grid: of each column and each row; else how far to move each pixel */
    int32_t width, height;
} bending;

/* By perspective. */
static void bend_flat(const bending *by, int32_t y, float *across, float *down) {
    const double *m = by->how->matrix;

    for (int32_t x = 0; x < by->width; x++) {
        double over = m[6] * x + m[7] * y + 1.0;
        across[x] = (float)((m[0] * x + m[1] * y + m[2]) / over);
        down[x] = (float)((m[3] * x + m[4] * y + m[5]) / over);
    }
}

/* As through a lens: the farther from the centre, the more. A camera's centre is that of the pixels, which
 * OpenCV's initUndistortRectifyMap moves by a half; a fisheye's is that of the area. */
static void bend_round(const bending *by, int32_t y, float *across, float *down) {
    double k = by->how->lens.distortion, width = by->width, height = by->height;
    int is_fisheye = by->how->lens.is_fisheye != 0.0;
    double square = (width * width + height * height) / 4, half = is_fisheye ? 0.0 : 0.5;

    for (int32_t x = 0; x < by->width; x++) {
        double right = x + half - width / 2, below = y + half - height / 2;
        double u = right / width, v = below / height, far = u * u + v * v;
        double lens = is_fisheye ? 1 + k * (right * right + below * below) / square
                                 : 1 + k * far + k * far * far;
        across[x] = (float)(right * lens + width / 2);
        down[x] = (float)(below * lens + height / 2);
    }
}

static void find_row(const bending *by, int32_t y, float *across, float *down) {
    size_t at = (size_t)y * (size_t)by->width;

    if (by->how->kind == FD_PERSPECTIVE)
        bend_flat(by, y, across, down);
    else if (by->how->kind == FD_LENS)
        bend_round(by, y, across, down);
    else
        for (int32_t x = 0; x < by->width; x++) {
            int is_grid = by->how->kind == FD_GRID;
            across[x] = is_grid ? by->xs[x] : (float)x + by->xs[at + (size_t)x];
            down[x] = is_grid ? by->ys[y] : (float)y + by->ys[at + (size_t)x];
        }
}

/* ---- grids ---- */

/* albumentations' generate_grid: the axis has `steps` cells of `side` pixels, and perhaps a narrower one. The
 * source of cell i is lengths[i] as long, and begins where that of the one before ends; between, places are
 * linear. A grid that fills the image has lengths whose sum is that of the cells
 * (normalize_grid_distortion_steps). */
static void draw_grid(float *places, int32_t count, const fd_operation *how, uint64_t *state) {
    int32_t steps = (int32_t)how->grid.steps, side = count / steps, fills = how->grid.fills != 0.0;
    double lengths[FD_MOST_CELLS + 1], sum = 0.0, place = 0.0;

    for (int32_t i = 0; i <= steps; i++) {
        lengths[i] = 1.0 + how->grid.change + how->grid.range * fd_draw_share(state);
        int32_t rest = count - steps * side;
        if (i == steps && fills)
            lengths[i] *= (double)(rest < side ? rest : side) / side;
        sum += lengths[i];
    }
    memset(places, 0, (size_t)count * sizeof *places);
    for (int32_t i = 0; i <= steps; i++) {
        double whole = fills ? (double)count / side / sum : 1.0;
        double reach = side * lengths[i] * whole;
        int32_t left = count - i * side, most = left < side ? left : side;
        for (int32_t k = 0; k < most; k++)
            places[i * side + k] = (float)(place + (most > 1 ? reach * k / (most - 1) : 0.0));
        place += reach;
    }
}

/* ---- elastic ---- */

VARIANTS(add_scaled, (float *restrict sums, const float *restrict row, float weight, size_t count),
         (sums, row, weight, count)) {
    for (size_t i = 0; i < count; i++)
        sums[i] += weight * row[i];
}

/* Random numbers from -1 to 1. */
static void draw_field(float *field, size_t count, int is_uniform, uint64_t *state) {
    fd_normal normal = {.state = *state};
    float most = 0.0F;

    for (size_t i = 0; i < count; i++) {
        field[i] = is_uniform ? (float)(2.0 * fd_draw_share(&normal.state) - 1.0)
                              : fd_next_normal(&normal);
        most = fmaxf(most, fabsf(field[i]));
    }
    for (size_t i = 0; i < count && !is_uniform; i++)
        field[i] /= most > 1e-6F ? most : 1.0F;
    *state = normal.state;
}

/* albumentations' generate_displacement_fields: random numbers, blurred by cv2.GaussianBlur, times alpha.
 * Two passes of one dimension, with the nearest pixel beyond the edge.
 *
 * Blur a field, and scale it. There is room for another field, a line and the weights at `rows`. */
static void smooth_field(float *field, int32_t width, int32_t height, const fd_operation *how,
                         float *rows) {
    int32_t reach = (int32_t)how->elastic.reach;
    double variance = how->elastic.sigma * how->elastic.sigma;
    size_t across = (size_t)width, count = across * (size_t)height, more = 2 * (size_t)reach;
    float *line = rows + count, *weights = line + across + more, sum = 0.0F;

    for (int32_t i = -reach; i <= reach; i++)
        sum += weights[i + reach] = (float)exp(-0.5 * i * i / variance);
    memset(rows, 0, count * sizeof *rows);
    for (int32_t y = 0; y < height; y++)
        for (int32_t t = -reach; t <= reach; t++) {
            int32_t from = fd_padded(y + t, height, FD_PAD_EDGE);
            add_scaled(rows + (size_t)y * across, field + (size_t)from * across,
                       weights[t + reach] / sum, across);
        }
    for (size_t y = 0; y < (size_t)height; y++) {
        float *out = field + y * across;
        for (int32_t x = -reach; x < width + reach; x++)
            line[x + reach] = rows[y * across + (size_t)fd_padded(x, width, FD_PAD_EDGE)];
        memset(out, 0, across * sizeof *out);
        for (size_t t = 0; t <= more; t++)
            add_scaled(out, line + t, weights[t] / sum * (float)how->elastic.alpha, across);
    }
}

/* ---- all of them ---- */

/* Elastic: one field for both axes, or one for each. */
static size_t fields_of(const fd_operation *how) { return how->elastic.is_joint != 0.0 ? 1 : 2; }

/* The memory for the places of a row, followed by that for tables, in floats. */
static size_t floats_for(const fd_canvas *canvas, const fd_operation *how) {
    size_t width = (size_t)canvas->width, height = (size_t)canvas->height;

    if (how->kind == FD_ELASTIC) /* the fields, twice, a line, and the weights */
        return 2 * width + 2 * fields_of(how) * width * height + width +
               4 * (size_t)how->elastic.reach + 1;
    return 2 * width + (how->kind == FD_GRID ? width + height : 0);
}

static void draw_tables(bending *by, float *tables) {
    size_t count = (size_t)by->width * (size_t)by->height;
    const fd_operation *how = by->how;
    uint64_t state = how->seed;

    by->xs = tables;
    if (how->kind == FD_GRID) {
        by->ys = tables + by->width;
        draw_grid(tables, by->width, how, &state);
        draw_grid(tables + by->width, by->height, how, &state);
    }
    if (how->kind != FD_ELASTIC)
        return;
    size_t fields = fields_of(how);
    by->ys = tables + (fields - 1) * count;
    /* One is below the other, and blurred into it. */
    draw_field(tables, fields * count, how->elastic.is_uniform != 0.0, &state);
    smooth_field(tables, by->width, (int32_t)fields * by->height, how, tables + fields * count);
}

int fd_remap(fd_canvas *canvas, const fd_operation *how) {
    const int32_t mode = how->kind == FD_PERSPECTIVE ? FD_PAD_CONSTANT
                                                     : (int32_t)how->outside.padding;
    const float farthest = 1e8F;
    bending by = {.how = how, .width = canvas->width, .height = canvas->height};
    uint8_t *out = canvas->other;

    if (how->kind == FD_GRID && how->grid.steps > fmin(canvas->width, canvas->height))
        return FD_ARGUMENT;
    float *across = fd_room_for(&canvas->scratch, floats_for(canvas, how) * sizeof *across);
    if (across == NULL)
        return FD_NO_MEMORY;
    float *down = across + canvas->width;
    draw_tables(&by, down + canvas->width);
    for (int32_t y = 0; y < canvas->height; y++) {
        find_row(&by, y, across, down);
        for (int32_t x = 0; x < canvas->width; x++, out += 4) {
            float right = fmaxf(-farthest, fminf(across[x], farthest)); /* NaN, too */
            float below = fmaxf(-farthest, fminf(down[x], farthest));
            if (how->filter == FD_NEAREST)
                write_nearest(out, canvas, right, below, mode, how->fill);
            else
                write_bilinear(out, canvas, right, below, mode, how->fill);
        }
    }
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- affine warps ---- */

/* The place in the source that pixel (x, y) of the result shows, in pixels from the centre of the first one.
 * It fits an integer. */
INLINE double place_of(const double *m, int32_t x, int32_t y) {
    const double farthest = 1e8;
    double place = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2] - 0.5;

    return place < -farthest ? -farthest : place > farthest ? farthest : place;
}

/* A pixel whose neighbours are not all in the image. */
static void write_at_border(uint8_t *out, const fd_canvas *canvas, const double *m, int32_t x,
                            int32_t y, const fd_operation *how) {
    write_bilinear(out, canvas, place_of(m, x, y), place_of(m + 3, x, y),
                   (int32_t)how->outside.padding, how->fill);
}

static void warp_nearest(const fd_canvas *canvas, const double *m, const fd_operation *how) {
    uint8_t *out = canvas->other;

    for (int32_t y = 0; y < canvas->out_height; y++)
        for (int32_t x = 0; x < canvas->out_width; x++, out += 4)
            write_nearest(out, canvas, place_of(m, x, y), place_of(m + 3, x, y),
                          (int32_t)how->outside.padding, how->fill);
}

int fd_opencv_warp(fd_canvas *canvas, const fd_operation *how) {
    if (how->filter == FD_NEAREST)
        warp_nearest(canvas, how->matrix, how);
    else
        fd_warp_in_runs(canvas, how->matrix,
                        how->outside.padding == FD_PAD_CONSTANT ? how->fill : NULL, write_at_border,
                        how);
    fd_canvas_become(canvas);
    return FD_OK;
}
