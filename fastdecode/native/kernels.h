/* kernels.h: the loops of the resampler over one row, one set for each instruction set.
 *
 * All sets give the same bits: integers are exact in each, and the two operations in float32 are
 * rounded one by one. Rows of pixels are RGBX, four values each. A row is worked on in whole blocks
 * (or groups): what lies past its end is read, may be anything, and has no weight.
 */
#ifndef FASTDECODE_KERNELS_H
#define FASTDECODE_KERNELS_H

#include "internal.h"

enum {
    FD_BLOCK = 32,    /* values of a row that are taken at once */
    FD_GROUP = 8,     /* pixels of a result that are made at once */
    FD_FEW_ROWS = 16, /* rows that may be blended in one go */
    FD_FRACTION = 7   /* bits of fraction of a blended row; an int16 holds 255 * 2^7 */
};

/* How the columns of a result are made from those of a row. Result i, of group g = i / 8, is made
 * of the pixels from first[i] on; of the t-th, up to 2 * pairs, the weight is
 * weights[(g * pairs + t / 2) * 16 + i % 8 * 2 + t % 2]. Both tables hold whole groups. */
typedef struct {
    int32_t groups, pairs;
    int32_t shift; /* bits to drop in the end; half a step was added to the row before */
    const int32_t *first;
    const int16_t *weights;
} fd_columns;

/* How values are stored, and the float16 of each, which is slow to find. */
typedef struct {
    fd_pixels pixels;
    uint16_t half[3][256];
} fd_values;

typedef struct {
    const char *name;
    int is_avx2; /* and BMI2, which every processor with AVX2 has */

    /* Bytes of `taps` (1 to FD_FEW_ROWS) rows to one with FD_FRACTION bits of fraction:
     * start + the sum of byte * weight / 256, each product cut off; weights in 1 / 32768. */
    void (*blend)(int16_t *out, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                  int32_t start, size_t count);

    /* Add byte * weight of `taps` rows to `sums`; weights are at most 32767. */
    void (*add)(int32_t *sums, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                size_t count);

    /* A row with bits of fraction to bytes of whole groups. */
    void (*squeeze)(uint8_t *out, const int16_t *row, const fd_columns *columns);

    /* `count` pixels of RGBX, as `values` says. With channels first `out` is the first plane's row,
     * and planes lie `plane` values apart. */
    void (*store)(void *out, const uint8_t *rgbx, const fd_values *values, size_t plane,
                  size_t count);
} fd_kernels;

/* Those in use now: the best, or what fd_use_instructions chose. */
const fd_kernels *fd_kernels_now(void);

/* Note how values are to be stored. */
void fd_values_prepare(fd_values *values, const fd_pixels *pixels);

/* ---- kernels_avx2.c ---- */

#if defined(__x86_64__) || defined(__i386__)
#define FD_AVX2 1
void fd_squeeze_avx2(uint8_t *out, const int16_t *row, const fd_columns *columns);
#endif

#endif
