/* filter.c: what albumentations makes of each pixel and its neighbours, with OpenCV's results: sharpening,
 * embossing, and the median.
 */
#include "augment.h"

#include <math.h>
#include <string.h>

enum { LANES = 64, TAPS = 9 };

/* The image with `reach` more pixels on all sides, and room for a vector beyond them; NULL: no memory. */
static uint8_t *padded(const fd_canvas *canvas, int32_t reach, fd_padding mode, fd_room *room) {
    int32_t across = canvas->width + 2 * reach, down = canvas->height + 2 * reach;
    size_t stride = 4 * (size_t)across;
    uint8_t *copy = fd_room_for(room, stride * (size_t)down + 4 * LANES);

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
    memset(copy + stride * (size_t)down, 0, 4 * LANES);
    return copy;
}

/* ---- weights of the neighbours ---- */

INLINE void filter_row_body(uint8_t *restrict out, const uint8_t *restrict rows, size_t stride,
                            const float *weights, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float sum = 0.0F;
        for (size_t t = 0; t < TAPS; t++)
            sum += weights[t] * (float)rows[t / 3 * stride + t % 3 * 4 + i];
        out[i] = (uint8_t)fd_level((int32_t)rintf(sum));
    }
}

VARIANTS(filter_row, filter_row_body,
         (uint8_t *out, const uint8_t *rows, size_t stride, const float *weights, size_t count),
         (out, rows, stride, weights, count))

/* The weights, and what a strength of 1 adds to them. */
static const float SHARPEN[2][TAPS] = {{-1, -1, -1, -1, 8, -1, -1, -1, -1},
                                       {0, 0, 0, 0, 1, 0, 0, 0, 0}};
static const float EMBOSS[2][TAPS] = {{-1, 0, 0, 0, 1, 0, 0, 0, 1},
                                      {-1, -1, 0, -1, 0, 1, 0, 1, 1}};

int fd_convolve(fd_canvas *canvas, const double *value, fd_room *room) {
    const float(*effect)[TAPS] = value[2] != 0.0 ? EMBOSS : SHARPEN;
    size_t count = 4 * (size_t)canvas->width, stride = count + 8;
    const uint8_t *rows = padded(canvas, 1, FD_PAD_REFLECT, room);
    float weights[TAPS];

    if (rows == NULL)
        return FD_NO_MEMORY;
    for (int t = 0; t < TAPS; t++) {
        double changed = effect[0][t] + value[1] * effect[1][t];
        weights[t] = (float)((t == TAPS / 2 ? 1.0 - value[0] : 0.0) + value[0] * changed);
    }
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        filter_row(canvas->other + y * count, rows + y * stride, stride, weights, count);
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- the median ---- */

/* From the highest bit on, one is set if more than half of the neighbours are at least as large then. */
INLINE void median_row_body(uint8_t *restrict out, const uint8_t *restrict rows, size_t stride,
                            size_t side, size_t count) {
    const uint8_t half = (uint8_t)(side * side / 2);

    for (size_t at = 0; at < count; at += LANES) {
        uint8_t level[LANES] = {0};
        for (uint32_t bit = 128; bit > 0; bit /= 2) {
            uint8_t reached[LANES] = {0};
            for (size_t y = 0; y < side; y++)
                for (size_t x = 0; x < side; x++)
                    for (size_t i = 0; i < LANES; i++)
                        reached[i] += rows[y * stride + 4 * x + at + i] >= (level[i] | bit);
            for (size_t i = 0; i < LANES; i++)
                level[i] |= (uint8_t)(reached[i] > half ? bit : 0);
        }
        memcpy(out + at, level, count - at < LANES ? count - at : LANES);
    }
}

VARIANTS(median_row, median_row_body,
         (uint8_t *out, const uint8_t *rows, size_t stride, size_t side, size_t count),
         (out, rows, stride, side, count))

int fd_median(fd_canvas *canvas, int32_t side, fd_room *room) {
    size_t count = 4 * (size_t)canvas->width, stride = count + 4 * (size_t)(side - 1);
    const uint8_t *rows = padded(canvas, side / 2, FD_PAD_EDGE, room);

    if (rows == NULL)
        return FD_NO_MEMORY;
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        median_row(canvas->other + y * count, rows + y * stride, stride, (size_t)side, count);
    fd_canvas_swap(canvas);
    return FD_OK;
}
