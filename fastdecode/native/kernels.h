/* kernels.h: the loops of the resampler over one row, one set of functions per instruction set.
 *
 * All sets return bit-identical results: integers are exact, and the two float32 operations are
 * rounded separately. Rows of pixels are RGBX, four values each. Rows are processed in whole blocks
 * (or groups): arbitrary values past the end of a row are read, with weight 0.
 */
#ifndef FASTDECODE_KERNELS_H
#define FASTDECODE_KERNELS_H

#include "internal.h"

enum {
    FD_BLOCK = 32,    /* values of a row per step */
    FD_GROUP = 8,     /* result pixels per step */
    FD_FEW_ROWS = 16, /* most rows that `blend` takes */
    FD_FRACTION = 7   /* fraction bits of a blended row; an int16 holds 255 * 2^7 */
};

/* The weights that make result columns from those of a row. Result i, in group g = i / 8, uses the
 * 2 * pairs pixels from first[i] on; the weight of the t-th is
 * weights[(g * pairs + t / 2) * 16 + i % 8 * 2 + t % 2]. Both tables hold whole groups. */
typedef struct {
    int32_t groups, pairs;
    int32_t shift; /* bits to drop at the end; the row already contains half a step for rounding */
    const int32_t *first;
    const int16_t *weights;
} fd_columns;

typedef struct {
    const char *name;
    int is_avx2; /* and BMI2, which every processor with AVX2 has */

    /* Blend `taps` (1 to FD_FEW_ROWS) rows of bytes to one row with FD_FRACTION fraction bits:
     * start + the sum of byte * weight / 256, each product truncated; weights in 1 / 32768. */
    void (*blend)(int16_t *out, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                  int32_t start, size_t count);

    /* Add byte * weight of `taps` rows to `sums`; weights are at most 32767. */
    void (*add)(int32_t *sums, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                size_t count);

    /* Compute whole groups of result bytes from a row with fraction bits. */
    void (*squeeze)(uint8_t *out, const int16_t *row, const fd_columns *columns);

    /* Store `count` pixels of RGBX in the form of `pixels`. With channels first, `out` is the row in
     * the first plane, and planes lie `plane` values apart. */
    void (*store)(void *out, const uint8_t *rgbx, const fd_pixels *pixels, size_t plane,
                  size_t count);
} fd_kernels;

/* The set in use: the best one, or that chosen by fd_use_instructions. */
const fd_kernels *fd_kernels_now(void);

/* ---- kernels_avx2.c ---- */

#if defined(__x86_64__) || defined(__i386__)
#define FD_AVX2 1
void fd_squeeze_avx2(uint8_t *out, const int16_t *row, const fd_columns *columns);
#endif

#endif
