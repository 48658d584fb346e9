/* kernels.h: the loops of the resampler over one row, one set for each instruction set.
 *
 * All sets give the same bits: integers are exact in each, and the few operations in float32 are
 * rounded one by one. Counts of values are multiples of FD_BLOCK; what lies past a row's end is
 * read (it may be anything) and written (nobody looks at it).
 */
#ifndef FASTDECODE_KERNELS_H
#define FASTDECODE_KERNELS_H

#include "internal.h"

enum {
    FD_BLOCK = 32,     /* values that a kernel may take at once */
    FD_GROUP = 8,      /* pixels of a result that are made at once */
    FD_DIRECT_TAPS = 8 /* rows that are blended in one go */
};

/* How the columns of a result are made from those of a row.
 *
 * Of tap t (0 to 2 * pairs - 1) of pixel i, in group g = i / 8, the weight is
 * weights[(g * pairs + t / 2) * 16 + i % 8 * 2 + t % 2]; the source pixel is first[i] + t. Both
 * tables are filled up to whole groups. */
typedef struct {
    int32_t groups, pairs;
    int32_t shift; /* bits to drop at the end; rounding was added before */
    const int32_t *first;
    const int16_t *weights;
} fd_columns;

typedef struct {
    const char *name;

    /* Rows of `taps` (1 to FD_DIRECT_TAPS) pictures' bytes to one with 7 bits of fraction:
     * start + the sum of (bytes * weight) >> 8, weights in 1 / 32768, each product cut off. */
    void (*blend)(int16_t *out, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                  int32_t start, size_t count);

    /* The same without loss, a few rows at a time: add bytes * weight (at most 32767) to `sums`. */
    void (*add)(int32_t *sums, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
                size_t count);

    /* Weighted sums of neighbours in a row of RGBX, to bytes of RGBX. */
    void (*squeeze)(uint8_t *out, const int16_t *row, const fd_columns *columns);

    /* `count` pixels of RGBX (may be read up to whole groups) to values as `pixels` says. With
     * channels first `out` is the first plane's row, and planes lie `plane` values apart. */
    void (*store)(void *out, const uint8_t *rgbx, const fd_pixels *pixels, size_t plane,
                  size_t count);

    /* `count` pixels of RGB to RGBX; X is anything. */
    void (*widen)(uint8_t *out, const uint8_t *rgb, size_t count);
} fd_kernels;

/* Those in use now: the best, or what fd_use_instructions chose. */
const fd_kernels *fd_kernels_now(void);

/* ---- kernels_avx2.c, on x86 alone ---- */

#if defined(__x86_64__) || defined(__i386__)
#define FD_AVX2 1
extern const fd_kernels fd_kernels_avx2;
#endif

#endif
