/* internal.h: declarations that only the files of the core share. */
#ifndef FASTDECODE_INTERNAL_H
#define FASTDECODE_INTERNAL_H

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include "fastdecode.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "the core needs libjpeg-turbo: plain libjpeg decodes no regions"
#endif

/* ---- errors.c ---- */

/* Keeps libjpeg's errors and counts its warnings. `jpeg` comes first, so that libjpeg's pointer to
 * it is also a pointer to this struct. */
typedef struct {
    struct jpeg_error_mgr jpeg;
    jmp_buf escape;    /* target of failures inside libjpeg: call setjmp before libjpeg */
    fd_status status;  /* of the failure */
    int64_t warnings;  /* so far */
    int missing;       /* one of them said that pixels are not in the data */
    char message[FD_MESSAGE];
} fd_errors;

/* Clear it, so that it can become libjpeg's `err`. */
void fd_errors_begin(fd_errors *errors);

/* Leave libjpeg for `escape`, from one of its callbacks. */
_Noreturn void fd_errors_leave(fd_errors *errors, fd_status status, const char *words);

/* Fail outside libjpeg: keep the message, and return the status. */
fd_status fd_errors_note(fd_errors *errors, fd_status status, const char *words);

/* ---- source.c ---- */

/* The data that libjpeg reads: up to four pieces of memory, one after another. */
typedef struct {
    struct jpeg_source_mgr jpeg;
    struct {
        const uint8_t *at;
        size_t size;
    } pieces[4];
    int count, next;
    int restarts_passed;  /* restart markers before the last piece, which libjpeg has not seen */
    uint8_t height[2];    /* the height that replaces the header's, big-endian */
} fd_source;

/* Read `data` from its beginning to its end. */
void fd_source_whole(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size);

/* After jpeg_read_header on the whole file: start again as if the image began at a row of MCUs at or
 * above `row` (a stored pixel row), right after a restart marker. Every marker up to `last` (the last
 * row that is needed) must be in order. Returns the stored row that has become row 0; or 0, without
 * any change, if there is no such marker. */
int32_t fd_source_jump(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size,
                       int32_t row, int32_t last);

/* Whether an end marker follows anywhere after the start of the first scan's data. */
int fd_has_end(const uint8_t *data, size_t size, size_t scan_offset);

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
 * each costs a pass over all of it. 0 is no limit. The same rule as in _headers/jpeg_stream.py. */
static inline int32_t fd_most_scans(const fd_limits *limits, int64_t pixels, size_t size) {
    const int64_t free_pixels = (int64_t)1 << 28, pixels_per_byte = 10000, fewest = 16;
    int64_t passes = (int64_t)size * pixels_per_byte;
    passes = passes > free_pixels ? passes : free_pixels;
    passes /= pixels;
    passes = passes > fewest ? passes : fewest;
    return passes < limits->scans ? (int32_t)passes : limits->scans;
}

/* ---- decode.c ---- */

/* The error state of a decoder. */
fd_errors *fd_decoder_errors(fd_decoder *decoder);

/* ---- resample.c ---- */

/* Prepare the weights of all rows and columns for an image, which is augmented or not. Sets `window` (left, top, right, bottom)
 * to the reduced pixels that the caller must then feed to `sink`; it never exceeds what `resize`
 * allows to be read. `sink` writes to `out`, which is complete after the window's last row; if the
 * image is augmented, after fd_resampler_finish. */
int fd_resampler_begin(fd_resampler *resampler, const fd_resize *resize, int is_augmented,
                       const fd_pixels *pixels, void *out, int32_t window[4], fd_sink *sink);

/* Resize an image of RGBX without gaps, with FD_PADDING bytes after it, to another one. */
int fd_resample(fd_resampler *resampler, const uint8_t *rgbx, int32_t width,
                const fd_resize *resize, uint8_t *out);

/* Apply the operations to an image that is augmented, and write it to `out`. */
int fd_resampler_finish(fd_resampler *resampler, const fd_operation *operations, int32_t count);

/* ---- augment.c ---- */

/* Set `pixels` to memory for an image, RGBX without gaps, which the caller then fills. */
int fd_augmenter_begin(fd_augmenter *augmenter, int32_t width, int32_t height, uint8_t **pixels);

/* Apply the operations to it, and set `pixels` to the result, which lasts until the next call, and
 * `width` and `height` to its size. */
int fd_augmenter_run(fd_augmenter *augmenter, const fd_operation *operations, size_t count,
                     const uint8_t **pixels, int32_t *width, int32_t *height);

/* ---- plan.c ---- */

/* Draw the operations that follow a resize, and let it do the first of them. FD_ARGUMENT if they are
 * not possible, or their result has not the size of the recipe. */
int fd_draw_after(const fd_recipe *recipe, fd_resize *resize, int resizes, uint64_t *state,
                  fd_operation operations[FD_MOST_OPERATIONS], int32_t *count);

/* ---- erase.c ---- */

/* Carry out an FD_ERASE, whose box must be inside, on a result of this form. */
void fd_erase(float *out, int32_t width, int32_t height, const fd_pixels *form,
              const fd_operation *operation);

#endif
