/* internal.h: what the files of the core tell each other, and nobody else. */
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

/* libjpeg's errors and warnings, in words and counted. libjpeg is given the address of `jpeg`, and
 * so everybody else can come back from it to the whole. */
typedef struct {
    struct jpeg_error_mgr jpeg;
    jmp_buf escape;    /* where a failure inside libjpeg goes: setjmp before calling it */
    fd_status status;  /* of that failure */
    int64_t warnings;  /* so far */
    int missing;       /* one of them said that pixels are not in the data */
    char message[FD_MESSAGE];
} fd_errors;

/* Forget what was; ready to be libjpeg's `err`. */
void fd_errors_begin(fd_errors *errors);

/* Leave libjpeg for `escape`, from one of its callbacks. */
_Noreturn void fd_errors_leave(fd_errors *errors, fd_status status, const char *words);

/* Fail where there is no libjpeg to leave: keep the words, return the status. */
fd_status fd_errors_note(fd_errors *errors, fd_status status, const char *words);

/* ---- memory.c ---- */

typedef struct fd_memory fd_memory;

/* Let `jpeg`, just created, take what it needs for an image from memory that is kept from image
 * to image, instead of from malloc. NULL if there is none; jpeg_destroy frees it. */
fd_memory *fd_memory_install(j_decompress_ptr jpeg);

/* Take back what outlasts an image: libjpeg's tables, to which nothing may point any more. */
void fd_memory_forget(fd_memory *memory);

/* How many bytes images may take from now on; 0 is no limit. */
void fd_memory_limit(fd_memory *memory, int64_t bytes);

/* ---- source.c ---- */

/* Where libjpeg reads: up to four pieces of memory, one after another. */
typedef struct {
    struct jpeg_source_mgr jpeg;
    struct {
        const uint8_t *at;
        size_t size;
    } pieces[4];
    int count, next;
    int restarts_passed;  /* restart markers before the last piece, which libjpeg did not see */
    uint8_t height[2];    /* what stands in the header instead, big-endian */
} fd_source;

/* Read `data` from its beginning to its end. */
void fd_source_whole(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size);

/* After jpeg_read_header on the whole: start over as if the image began at some row of MCUs at or
 * above `row` (a stored pixel row), right behind a restart marker. Every marker up to `last` (the
 * last row that is needed) must be in turn. Returns the stored row that has become row 0; 0, and
 * nothing is changed, if there is no such marker. */
int32_t fd_source_jump(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size,
                       int32_t row, int32_t last);

/* Whether an end marker follows the first scan's data, anywhere. */
int fd_has_end(const uint8_t *data, size_t size, size_t scan_offset);

/* Who takes the rows of an image as they are decoded.
 *
 * `row` is called for each row of the window, y counting from 0; `pixels` are RGBX, four bytes each,
 * from the window's left edge on, and stay readable until `rows_kept` more rows have come. At least
 * FD_PADDING bytes after the last pixel can be read, too (their values are anything). */
typedef struct {
    void (*row)(void *state, int32_t y, const uint8_t *pixels);
    void *state;
    int32_t rows_kept;
} fd_sink;

enum { FD_PADDING = 64 };

/* ---- decode.c ---- */

/* Where a decoder keeps its words. */
fd_errors *fd_decoder_errors(fd_decoder *decoder);

/* ---- resample.c ---- */

/* Prepare for an image: weights of all rows and columns. `window` (left, top, right, bottom) is what
 * must then be fed, in reduced pixels, never more than `resize` allows to be read; `sink` takes it,
 * and writes to `out`, which is complete after the window's last row. */
int fd_resampler_begin(fd_resampler *resampler, const fd_resize *resize, const fd_pixels *pixels,
                       void *out, int32_t window[4], fd_sink *sink);

#endif
