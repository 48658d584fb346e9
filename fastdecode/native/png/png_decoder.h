/* png_decoder.h: the core's own decoder of PNG (third edition of the specification), in four steps; only
 * decode.c, structure.c and the files of these steps use it.
 *
 *   png.c       the chunks, and rows to pixels: the only code that parses untrusted structure
 *   inflate.c   deflate, piece by piece
 *   checksum.c  CRC-32 and Adler-32, which are always checked
 *   unfilter.c  the filters of rows
 *
 * It returns the pixels of libpng, or gives up: on interlaced and animated files, and on anything
 * unusual. It never decides whether a file is damaged: the caller leaves it to another library.
 */
#pragma once

#include "baseline.h"

/* ---- checksum.c, checksum_simd.h ---- */

uint32_t fd_crc32(const uint8_t *data, size_t size);

/* Go on with an Adler-32, which begins as 1. */
uint32_t fd_adler32(uint32_t sum, const uint8_t *data, size_t size);

enum {
    FD_ADLER_MODULUS = 65521,
    FD_ADLER_BYTES = 5536 /* before the sums exceed 32 bits */
};
fd_checksum fd_crc_plain, fd_adler_plain;

/* ---- unfilter.c, unfilter_simd.h ---- */

enum { FD_ROW_PADDING = 32 }; /* bytes after a row that may be read and written */

/* Undo the filter of `size` bytes at `in`. `step` is the distance to the pixel on the left: 1, 2, 3, 4,
 * 6 or 8 bytes. `above` is the row above, complete. */
typedef void fd_unfilter(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                         size_t step);

enum { FD_NONE, FD_SUB, FD_UP, FD_AVERAGE, FD_PAETH, FD_FILTERS };

typedef struct fd_unfilters {
    fd_unfilter *filters[FD_FILTERS];

    /* Two rows with FD_PAETH together, whose pixels have 3 or 4 bytes; NULL if it would not be faster.
     * They are `in_stride` and `out_stride` bytes apart. */
    void (*two_paeth)(uint8_t *out, size_t out_stride, const uint8_t *in, size_t in_stride,
                      const uint8_t *above, size_t size, size_t step);
} fd_unfilters;

extern const fd_unfilters fd_unfilters_plain, fd_unfilters_16;
#ifdef FD_AVX2
extern const fd_unfilters fd_unfilters_avx2;
#endif

/* ---- png.c ---- */

/* Whether the data begins as a PNG does. */
int fd_is_png(const uint8_t *data, size_t size);

/* Read the header of a PNG, and return what is wrong; NULL if all is right. */
const char *fd_png_probe(const uint8_t *data, size_t size, fd_header *header);

typedef struct fd_png fd_png;

fd_png *fd_png_create(void);
void fd_png_destroy(fd_png *png);

/* Decode; `reduce` of the target must be 1. Returns 0 if it gives up; the target may have received some
 * rows by then. */
int fd_png_decode(fd_png *png, const uint8_t *data, size_t size, const fd_target *target);
