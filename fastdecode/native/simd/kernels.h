/* kernels.h: the loops that take the time, one set of functions per instruction set.
 *
 * All sets return bit-identical results: integers are exact, and floats are rounded after each
 * operation. There are two ways to make such a function. Where the compiler makes good code of plain
 * C, FD_VARIANTS compiles it twice. Where it does not, a header with a name in `_simd.h` has the
 * loop in the vectors of simd.h; simd_16.c and simd_avx2.c include all of them, for their sets.
 */
#pragma once

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

/* Whether the machine is little-endian. */
#define FIRST_IS_LOW (__BYTE_ORDER__ != __ORDER_BIG_ENDIAN__)

/* The loop over the columns of a row that the resampler has blended. Rows of pixels are RGBX, four
 * values each. */
typedef struct fd_columns fd_columns;
typedef void fd_squeeze(uint8_t *out, const int16_t *row, const fd_columns *columns);

/* Go on with a checksum of PNG; a CRC-32 is inverted. */
typedef uint32_t fd_checksum(uint32_t sum, const uint8_t *data, size_t size);

/* Make RGBX of at least one pixel of RGB; X is arbitrary. */
typedef void fd_to_rgbx(uint8_t *out, const uint8_t *rgb, size_t count);

/* Resize a row to `width` columns; up to FD_PADDING bytes after the last pixel are read, with weight 0. */
struct fd_pillow_axis;
typedef void fd_resize_row(uint8_t *out, const uint8_t *row, const struct fd_pillow_axis *axis,
                           int32_t width);

/* Blend rows of `stride` bytes, a multiple of 32, to row `i` of the result. */
typedef void fd_blend_rows(uint8_t *out, const uint8_t *const *rows, size_t stride,
                           const struct fd_pillow_axis *axis, int32_t i);

/* Write the bilinear or bicubic warp of an image to its second buffer. */
struct fd_canvas;
struct fd_run;
typedef void fd_warp_smooth(const struct fd_canvas *canvas, const double *m, int is_cubic,
                            const uint8_t *fill);

/* Write a run of a bilinear warp, all of whose source pixels exist; and up to one pixel more. */
typedef void fd_blend_run(uint8_t *out, const struct fd_canvas *canvas, struct fd_run run,
                          int32_t count);

typedef struct {
    const char *name;
    int is_avx2; /* and what every processor with AVX2 also has: BMI, LZCNT, carry-less products */
    const struct fd_steps *steps; /* baseline.h */
    const struct fd_row_decoders *row_decoders; /* progressive.h */
    const struct fd_unfilters *unfilters; /* png_decoder.h */
    fd_checksum *crc, *adler; /* checksum.c */
    fd_squeeze *squeeze;
    fd_to_rgbx *to_rgbx; /* resample.c */
    fd_resize_row *resize_row; /* twopass.c */
    fd_blend_rows *blend_rows; /* twopass.c */
    fd_warp_smooth *warp_smooth; /* warp.c */
    fd_blend_run *blend_run; /* warp.c */
} fd_kernels;

/* The set in use: the best one, or that chosen by fd_use_instructions. */
const fd_kernels *fd_kernels_now(void);

/* Where vectors of 16 bytes are, on every processor of this architecture. */
#if defined(SIMD_ANY)
#define FD_SIMD_16 "vectors"
#elif defined(__SSE2__)
#define FD_SIMD_16 "sse2"
#elif defined(__aarch64__) && defined(__ARM_NEON) && FIRST_IS_LOW
#define FD_SIMD_16 "neon"
#else
#define FD_SIMD_16 "vectors"
#endif

extern const fd_kernels fd_kernels_16; /* simd_16.c */

#if defined(__x86_64__) || defined(__i386__)
#define FD_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,pclmul")))
extern const fd_kernels fd_kernels_avx2; /* simd_avx2.c */
#endif

/* Define a function for every processor and, where there is AVX2, for it too; the body follows. */
#ifdef FD_AVX2
#define FD_VARIANTS(type, name, parameters, arguments)                                             \
    type name parameters;                                                                          \
    INLINE type name##_body parameters;                                                            \
    FD_AVX2 static type name##_avx2 parameters { return name##_body arguments; }                   \
    static type name##_base parameters { return name##_body arguments; }                           \
    type name parameters {                                                                         \
        return fd_kernels_now()->is_avx2 ? name##_avx2 arguments : name##_base arguments;          \
    }                                                                                              \
    INLINE type name##_body parameters
#else
#define FD_VARIANTS(type, name, parameters, arguments)                                             \
    type name parameters;                                                                          \
    type name parameters
#endif

/* The same of a function of one file, without a result. */
#define VARIANTS(name, parameters, arguments) static FD_VARIANTS(void, name, parameters, arguments)

/* ---- columns.c: the resampler's loops over one row ---- */

/* Rows are processed in whole blocks (or groups): arbitrary values past the end of a row are read,
 * with weight 0. */
enum {
    FD_BLOCK = 32, /* values of a row per step */
    FD_GROUP = 8, /* result pixels per step */
    FD_FEW_ROWS = 16, /* most rows that `blend` takes */
    FD_FRACTION = 7 /* fraction bits of a blended row; an int16 holds 255 * 2^7 */
};

/* The weights that make result columns from those of a row. Result i, in group g = i / 8, uses the
 * 2 * pairs pixels from first[i] on; the weight of the t-th is
 * weights[(g * pairs + t / 2) * 16 + i % 8 * 2 + t % 2]. Both tables hold whole groups. */
struct fd_columns {
    int32_t groups, pairs;
    int32_t shift; /* bits to drop at the end; the row already contains half a step for rounding */
    const int32_t *first;
    const int16_t *weights;
};

/* Blend `taps` (1 to FD_FEW_ROWS) rows of bytes to one row with FD_FRACTION fraction bits:
 * start + the sum of byte * weight / 256, each product truncated; weights in 1 / 32768. */
void fd_blend(int16_t *out, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
              int32_t start, size_t count);

/* Add byte * weight of `taps` rows to `sums`; weights are at most 32767. */
void fd_add(int32_t *sums, const uint8_t *const *rows, const uint16_t *weights, int32_t taps,
            size_t count);

/* Copy a row of pixels in reverse order. */
void fd_mirror_row(uint8_t *out, const uint8_t *row, size_t width);

/* Compute whole groups of result bytes from a row with fraction bits. */
fd_squeeze fd_squeeze_plain;

/* ---- resample.c ---- */

fd_to_rgbx fd_to_rgbx_plain;

/* ---- store.c ---- */

/* Store `count` pixels of RGBX in the form of `form`. With channels first, `out` is the row in the
 * first plane, and planes lie `plane` values apart. */
void fd_store(void *out, const uint8_t *rgbx, const fd_pixels *form, size_t plane, size_t count);

/* The size of a value, in bytes. */
size_t fd_value_size(const fd_pixels *form);

/* Whether an image of this size can be cut into patches as `form` says, or is not to be cut. */
int fd_can_be_cut(const fd_pixels *form, int32_t width, int32_t height);

/* Whether fd_cut takes the planes of a band, or else its pixels. */
int fd_cuts_planes(const fd_pixels *form, int32_t width, int32_t height);

/* How many rows of pixels a row of squares of patches has; 0: the result is not cut. */
size_t fd_band_height(const fd_pixels *form);

/* Write row `y` of the squares of patches of a result to `out`. `band` has its values, without gaps, as fd_store
 * stores them with `channels_first` of `form`, which is fd_cuts_planes. */
void fd_cut(char *out, const char *band, const fd_pixels *form, size_t width, size_t height,
            size_t y);
