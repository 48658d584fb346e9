/* filter.c: what albumentations makes of each pixel and its neighbours, with OpenCV's results: the mean of
 * a square or a line, sharpening, embossing, and the median.
 */
#include "operations.h"

#include <math.h>
#include <string.h>

enum { LANES = 64, TAPS = 9, LARGEST_SIDE = 63 };

/* The image with `reach` more pixels on all sides, and `more` bytes beyond them; NULL: no memory. */
static uint8_t *padded(fd_canvas *canvas, int32_t reach, fd_padding mode, size_t more) {
    int32_t across = canvas->width + 2 * reach, down = canvas->height + 2 * reach;
    size_t stride = 4 * (size_t)across;
    uint8_t *copy = fd_room_for(&canvas->scratch, stride * (size_t)down + more);

    if (copy == NULL)
        return NULL;
    for (int32_t y = 0; y < down; y++) {
        size_t row = (size_t)fd_padded(y - reach, canvas->height, (int32_t)mode);
        const uint8_t *from = canvas->pixels + 4 * row * (size_t)canvas->width;
        uint8_t *out = copy + (size_t)y * stride;
        memcpy(out + 4 * reach, from, 4 * (size_t)canvas->width);
        for (int32_t x = 0; x < reach; x++) {
            size_t left = (size_t)fd_padded(x - reach, canvas->width, (int32_t)mode);
            size_t right = (size_t)fd_padded(canvas->width + x, canvas->width, (int32_t)mode);
            memcpy(out + 4 * x, from + 4 * left, 4);
            memcpy(out + 4 * (reach + canvas->width + x), from + 4 * right, 4);
        }
    }
    memset(copy + stride * (size_t)down, 0, more);
    return copy;
}

/* ---- the mean of neighbours ---- */

VARIANTS(add_row, (int32_t *restrict sums, const uint8_t *restrict row, int32_t sign, size_t count),
         (sums, row, sign, count)) {
    for (size_t i = 0; i < count; i++)
        sums[i] += sign * row[i];
}

VARIANTS(add_sums, (int32_t *restrict sums, const int32_t *restrict more, size_t count),
         (sums, more, count)) {
    for (size_t i = 0; i < count; i++)
        sums[i] += more[i];
}

VARIANTS(mean, (uint8_t *restrict out, const int32_t *restrict sums, float share, size_t count),
         (out, sums, share, count)) {
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)(int32_t)rintf((float)sums[i] * share);
}

/* Find the pixels of a line in a square of `side` by `side`; returns their number. */
static int32_t find_line(const fd_operation *how, int32_t side, int32_t *places) {
    double turn = how->mean_blur.degrees * (3.14159265358979323846 / 180.0), reach = side / 2;
    double from = -reach, to = reach, direction = how->mean_blur.direction;
    int32_t count = 0;

    if (direction < 0.0)
        to = reach * (1.0 + direction);
    else if (direction > 0.0)
        from = -reach * (1.0 - direction);
    for (int32_t i = 0; i < side; i++) {
        double t = from + i * (to - from) / (side - 1);
        double x = rint(reach + cos(turn) * t + how->mean_blur.right * reach / 2);
        double y = rint(reach + sin(turn) * t + how->mean_blur.down * reach / 2);
        x = fmax(0.0, fmin(x, side - 1));
        y = fmax(0.0, fmin(y, side - 1));
        int32_t place = (int32_t)y * side + (int32_t)x, k = 0;
        while (k < count && places[k] != place)
            k++;
        places[count] = place;
        count += k == count;
    }
    return count;
}

int fd_mean_blur(fd_canvas *canvas, const fd_operation *how) {
    int32_t side = (int32_t)how->mean_blur.side, places[LARGEST_SIDE];
    int32_t is_square = how->mean_blur.is_square != 0.0;
    int32_t marked = is_square ? side * side : find_line(how, side, places);
    size_t count = 4 * (size_t)canvas->width, stride = count + 4 * (size_t)(side - 1);
    size_t more = (count + stride) * sizeof(int32_t), last = (size_t)(canvas->height + side - 1);
    uint8_t *rows = padded(canvas, side / 2, FD_PAD_REFLECT, more);

    if (rows == NULL)
        return FD_NO_MEMORY;
    int32_t *sums = (int32_t *)(rows + stride * last), *columns = sums + count;
    for (int32_t t = 0; t < side - 1 && is_square; t++)
        add_row(columns, rows + (size_t)t * stride, 1, stride);
    for (size_t y = 0; y < (size_t)canvas->height; y++) {
        const uint8_t *top = rows + y * stride;
        memset(sums, 0, count * sizeof *sums);
        if (is_square) {
            add_row(columns, top + (size_t)(side - 1) * stride, 1, stride);
            for (int32_t t = 0; t < side; t++)
                add_sums(sums, columns + 4 * t, count);
            add_row(columns, top, -1, stride);
        }
        for (int32_t t = 0; t < marked && !is_square; t++) {
            size_t down = (size_t)(places[t] / side), across = (size_t)(places[t] % side);
            add_row(sums, top + down * stride + 4 * across, 1, count);
        }
        mean(canvas->other + count * y, sums, 1.0F / (float)marked, count);
    }
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- weights of the neighbours ---- */

VARIANTS(filter_row,
         (uint8_t *restrict out, const uint8_t *restrict rows, size_t stride, const float *weights,
          size_t count),
         (out, rows, stride, weights, count)) {
    for (size_t i = 0; i < count; i++) {
        float sum = 0.0F;
        for (size_t t = 0; t < TAPS; t++)
            sum += weights[t] * (float)rows[t / 3 * stride + t % 3 * 4 + i];
        out[i] = (uint8_t)fd_level((int32_t)rintf(sum));
    }
}

/* The weights, and what a strength of 1 adds to them. */
static const float SHARPEN[2][TAPS] = {{-1, -1, -1, -1, 8, -1, -1, -1, -1},
                                       {0, 0, 0, 0, 1, 0, 0, 0, 0}};
static const float EMBOSS[2][TAPS] = {{-1, 0, 0, 0, 1, 0, 0, 0, 1}, {-1, -1, 0, -1, 0, 1, 0, 1, 1}};

int fd_convolve(fd_canvas *canvas, const fd_operation *how) {
    const float (*effect)[TAPS] = how->convolve.embosses != 0.0 ? EMBOSS : SHARPEN;
    size_t count = 4 * (size_t)canvas->width, stride = count + 8;
    const uint8_t *rows = padded(canvas, 1, FD_PAD_REFLECT, 0);
    float weights[TAPS];
    double share = how->convolve.share;

    if (rows == NULL)
        return FD_NO_MEMORY;
    for (int t = 0; t < TAPS; t++) {
        double changed = effect[0][t] + how->convolve.strength * effect[1][t];
        weights[t] = (float)((t == TAPS / 2 ? 1.0 - share : 0.0) + share * changed);
    }
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        filter_row(canvas->other + y * count, rows + y * stride, stride, weights, count);
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- the median ---- */

/* From the highest bit on, one is set if more than half of the neighbours are at least as large then. */
VARIANTS(median_row,
         (uint8_t *restrict out, const uint8_t *restrict rows, size_t stride, size_t side,
          size_t count),
         (out, rows, stride, side, count)) {
    const uint8_t half = (uint8_t)(side * side / 2);

    for (size_t at = 0; at < count; at += LANES) {
        uint8_t level[LANES] = {0}, tried[LANES], reached[LANES];
        for (uint32_t bit = 128; bit > 0; bit /= 2) {
            for (size_t i = 0; i < LANES; i++)
                tried[i] = (uint8_t)(level[i] | bit);
            memset(reached, 0, sizeof reached);
            for (size_t y = 0; y < side; y++)
                for (size_t x = 0; x < side; x++) {
                    const uint8_t *from = rows + y * stride + 4 * x + at;
                    for (size_t i = 0; i < LANES; i++)
                        reached[i] = (uint8_t)(reached[i] + (from[i] >= tried[i]));
                }
            for (size_t i = 0; i < LANES; i++)
                level[i] = reached[i] > half ? tried[i] : level[i];
        }
        memcpy(out + at, level, count - at < LANES ? count - at : LANES);
    }
}

int fd_median(fd_canvas *canvas, const fd_operation *how) {
    int32_t side = (int32_t)how->side;
    size_t count = 4 * (size_t)canvas->width, stride = count + 4 * (size_t)(side - 1);
    const uint8_t *rows = padded(canvas, side / 2, FD_PAD_EDGE, LANES);

    if (rows == NULL)
        return FD_NO_MEMORY;
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        median_row(canvas->other + y * count, rows + y * stride, stride, (size_t)side, count);
    fd_canvas_swap(canvas);
    return FD_OK;
}
