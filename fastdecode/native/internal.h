/* internal.h: declarations that only the files of the core share. */
#pragma once

#include "fastdecode.h"

#include <float.h>

/* What every processor must have to give the same, safely: sizes are computed without a look at overflow. */
_Static_assert(sizeof(size_t) == 8, "fastdecode needs a system with 64 bits");
#if FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2
#error "fastdecode needs a compiler that computes floats as floats: -std=gnu11 may help"
#endif

/* Receives the rows of an image as they are decoded.
 *
 * `row` is called for each row of the window, with y counted from 0. `pixels` are RGBX, four bytes
 * each, from the window's left edge on; they stay readable until `rows_kept` more rows have come. At
 * least FD_PADDING bytes after the last pixel can be read, too, with arbitrary values. */
typedef struct {
    void (*row)(void *state, int32_t y, const uint8_t *pixels);
    void *state;
    int32_t rows_kept;
} fd_sink;

enum { FD_PADDING = 64 };

/* How many scans an image of so many pixels in `size` bytes may have: a few bytes can make a scan of a large image, and
 * each costs a pass over all of it. 0 is no limit. Whatever the
 * image shows, a real file has at least one bit per block of 64 pixels, and about ten scans. */
static inline int32_t fd_most_scans(const fd_limits *limits, int64_t pixels, size_t size) {
    const int64_t free_pixels = (int64_t)1 << 28, pixels_per_byte = 10000, fewest = 16;
    int64_t passes = (int64_t)size * pixels_per_byte;
    passes = passes > free_pixels ? passes : free_pixels;
    passes /= pixels;
    passes = passes > fewest ? passes : fewest;
    return passes < limits->scans ? (int32_t)passes : limits->scans;
}

/* ---- structure.c ---- */

/* Return the pixels of an FD_PPM, and their number in both directions; NULL of anything else. */
const uint8_t *fd_ppm_pixels(const uint8_t *data, size_t size, int32_t *width, int32_t *height);

/* ---- resample.c ---- */

/* Whether a resize stays within what the core can compute. */
int fd_is_possible(const fd_resize *resize);

/* ---- result.c ---- */

/* Prepare the weights of all rows and columns for an image, which is augmented or not. Sets `window` (left, top, right, bottom)
 * to the reduced pixels that the caller must then feed to `sink`; it never exceeds what `resize`
 * allows to be read. `sink` writes to `out`, which is complete after the window's last row; if the
 * image is augmented, after fd_resampler_finish. */
int fd_resampler_begin(fd_resampler *resampler, const fd_resize *resize, int is_augmented,
                       const fd_pixels *pixels, void *out, int32_t window[4], fd_sink *sink);

/* Apply the operations to an image that is augmented, and write it to `out`. */
int fd_resampler_finish(fd_resampler *resampler, const fd_operation *operations, int32_t count);

/* ---- augment.c ---- */

/* Set `pixels` to memory for an image, RGBX without gaps, which the caller then fills. */
int fd_augmenter_begin(fd_augmenter *augmenter, int32_t width, int32_t height, uint8_t **pixels);

/* Apply the operations to it, and set `pixels` to the result, which lasts until the next call, and
 * `width` and `height` to its size. */
int fd_augmenter_run(fd_augmenter *augmenter, const fd_operation *operations, size_t count,
                     const uint8_t **pixels, int32_t *width, int32_t *height);

/* ---- erase.c ---- */

/* Carry out an FD_ERASE, whose box must be inside, on a result of this form. */
void fd_erase(float *out, int32_t width, int32_t height, const fd_pixels *form,
              const fd_operation *operation);
