/* columns.c: the resampler's loops over one row, in plain C; squeeze_simd.h has the one that the compiler does
 * not vectorise well: each of its results starts at a different pixel. */
#include "kernels.h"

#include <string.h>

/* ---- rows to one row ---- */

/* sum + value * weight / 2^16, where `value` is a byte times 256. */
INLINE uint16_t plus_product(uint16_t sum, uint32_t value, uint16_t weight) {
    return (uint16_t)(sum + (uint16_t)(value * weight >> 16));
}

/* Add `taps` weighted rows to `start`, or to the contents of `out`. `taps` is a compile-time constant.
 * Two bytes are read as one number, and each becomes the upper byte of a number of its own: so no step
 * needs more than 16 bits, and values are put in order only once, at the end. */
INLINE void blend_some(int16_t *restrict out, const uint8_t *const *restrict rows,
                       const uint16_t *restrict weights, int32_t taps, int is_first, int32_t start,
                       size_t count) {
    for (size_t block = 0; block < count; block += FD_BLOCK) {
        int16_t *to = out + block;
        for (size_t i = 0; i < FD_BLOCK; i += 2) {
            uint16_t even = (uint16_t)(is_first ? start : to[i]);
            uint16_t odd = (uint16_t)(is_first ? start : to[i + 1]);
            for (int32_t t = 0; t < taps; t++) {
                uint16_t both;
                memcpy(&both, rows[t] + block + i, sizeof both);
                uint16_t low = (uint16_t)(both << 8), high = (uint16_t)(both & 0xff00u);
                even = plus_product(even, FIRST_IS_LOW ? low : high, weights[t]);
                odd = plus_product(odd, FIRST_IS_LOW ? high : low, weights[t]);
            }
            to[i] = (int16_t)even;
            to[i + 1] = (int16_t)odd;
        }
    }
}

/* Blend the first of `taps` rows, at most four; so their number is known to the compiler. */
INLINE void blend_four(int16_t *out, const uint8_t *const *rows, const uint16_t *weights,
                       int32_t taps, int is_first, int32_t start, size_t count) {
    switch (taps) {
    case 1:
        blend_some(out, rows, weights, 1, is_first, start, count);
        break;
    case 2:
        blend_some(out, rows, weights, 2, is_first, start, count);
        break;
    case 3:
        blend_some(out, rows, weights, 3, is_first, start, count);
        break;
    default:
        blend_some(out, rows, weights, 4, is_first, start, count);
    }
}

FD_VARIANTS(void, fd_blend,
            (int16_t *out, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
             int32_t start, size_t count),
            (out, rows, weights, taps, start, count)) {
    blend_four(out, rows, weights, taps, 1, start, count);
    for (int32_t t = 4; t < taps; t += 4)
        blend_four(out, rows + t, weights + t, taps - t, 0, 0, count);
}

INLINE void add_some(int32_t *restrict sums, const uint8_t *const *restrict rows,
                     const uint16_t *restrict weights, int32_t taps, size_t count) {
    for (size_t block = 0; block < count; block += FD_BLOCK) {
        for (size_t i = block; i < block + FD_BLOCK; i++) {
            int32_t sum = sums[i];
            for (int32_t t = 0; t < taps; t++)
                sum += rows[t][i] * weights[t];
            sums[i] = sum;
        }
    }
}

FD_VARIANTS(void, fd_add,
            (int32_t *sums, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
             size_t count),
            (sums, rows, weights, taps, count)) {
    int32_t t = 0;

    for (; t + 4 <= taps; t += 4)
        add_some(sums, rows + t, weights + t, 4, count);
    for (; t < taps; t++)
        add_some(sums, rows + t, weights + t, 1, count);
}

/* ---- columns ---- */

FD_VARIANTS(void, fd_mirror_row, (uint8_t *restrict out, const uint8_t *restrict row, size_t width),
            (out, row, width)) {
    for (size_t x = 0; x < width; x++)
        memcpy(out + 4 * x, row + 4 * (width - 1 - x), 4);
}

/* `pairs` is a compile-time constant if it is small. */
INLINE void squeeze_some(uint8_t *restrict out, const int16_t *restrict row,
                         const fd_columns *columns, int32_t pairs) {
    for (int32_t i = 0; i < columns->groups * FD_GROUP; i++) {
        const int16_t *pixel = row + 4 * (ptrdiff_t)columns->first[i];
        const int16_t *weight = columns->weights +
                                (ptrdiff_t)(i / FD_GROUP) * pairs * 2 * FD_GROUP + i % FD_GROUP * 2;
        int32_t sum[4] = {0, 0, 0, 0};

        for (int32_t k = 0; k < pairs; k++) {
            for (int c = 0; c < 4; c++) {
                /* One by one: as a single sum, gcc 12 loses half of it on ARM64. */
                sum[c] += pixel[c] * weight[0];
                sum[c] += pixel[c + 4] * weight[1];
            }
            pixel += 8;
            weight += 2 * FD_GROUP;
        }
        for (int c = 0; c < 4; c++)
            *out++ = (uint8_t)(sum[c] >> columns->shift);
    }
}

void fd_squeeze_plain(uint8_t *out, const int16_t *row, const fd_columns *columns) {
    switch (columns->pairs) {
    case 1:
        squeeze_some(out, row, columns, 1);
        break;
    case 2:
        squeeze_some(out, row, columns, 2);
        break;
    default:
        squeeze_some(out, row, columns, columns->pairs);
    }
}
