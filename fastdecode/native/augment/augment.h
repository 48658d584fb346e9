/* augment.h: what the files of the augmentations share.
 *
 * Pixels are RGBX, four bytes each, without gaps. X has no meaning and may change. The loops are plain
 * C that the compiler vectorises; `VARIANTS` compiles each function for every processor and for AVX2.
 */
#ifndef FASTDECODE_AUGMENT_H
#define FASTDECODE_AUGMENT_H

#include "kernels.h"
#include "weights.h"

#include <string.h>

#define FD_LARGEST_NUMBER 1e6 /* of a value of an operation */

/* An image and a second buffer, into which an operation may write its result. */
typedef struct fd_canvas {
    uint8_t *pixels, *other;
    int32_t width, height;
    int32_t out_width, out_height; /* of the result of the operation; the buffer has room for it */
    fd_room rooms[2]; /* of the image, and of the second buffer */
    fd_room scratch; /* what an operation needs beside them */
} fd_canvas;

INLINE size_t fd_count_pixels(const fd_canvas *canvas) {
    return (size_t)canvas->width * (size_t)canvas->height;
}

/* Apply an operation, whose numbers are good. */
typedef int fd_apply(fd_canvas *canvas, const fd_operation *how);

/* Make the second buffer the image, of the same size. */
void fd_canvas_swap(fd_canvas *canvas);

/* Make it the image, of the result's size. */
void fd_canvas_become(fd_canvas *canvas);

/* Pixels as numbers of 32 bits let the compiler vectorise. */
INLINE uint32_t fd_load_pixel(const uint8_t *pixels, size_t i) {
    uint32_t pixel;

    memcpy(&pixel, pixels + 4 * i, sizeof pixel);
    return FIRST_IS_LOW ? pixel : __builtin_bswap32(pixel);
}

INLINE void fd_save_pixel(uint8_t *pixels, size_t i, uint32_t red, uint32_t green, uint32_t blue) {
    uint32_t pixel = red | green << 8 | blue << 16;

    pixel = FIRST_IS_LOW ? pixel : __builtin_bswap32(pixel);
    memcpy(pixels + 4 * i, &pixel, sizeof pixel);
}

/* Copy a row of pixels in reverse order. */
void fd_mirror_row(uint8_t *out, const uint8_t *row, size_t width);

/* The nearest level of a byte. Numbers of operations are so small that any level which is computed as a float
 * fits an integer, and that is limited in fewer steps. */
INLINE uint32_t fd_level(int32_t value) {
    return (uint32_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* ---- augment.c ---- */

/* How often each level of each channel occurs. */
void fd_count_levels(const uint8_t *pixels, size_t count, uint32_t (*counts)[256]);

/* Replace each value by the entry of its channel's table. */
void fd_look_up(uint8_t *pixels, size_t count, uint8_t (*tables)[256]);

/* ---- limits.c ---- */

/* Whether the numbers are in the limits of the operation, or of the step, whose kind exists. */
int fd_is_good(const fd_operation *operation);
int fd_is_good_step(const fd_step *step);

/* ---- reshape.c ---- */

fd_apply fd_crop, fd_pad, fd_downscale;

/* The source of place `at` of an axis of `count` pixels; -1 is the fill. A mirror image is repeated. */
int32_t fd_padded(int32_t at, int32_t count, int32_t mode);

/* FD_RESIZE; without interpolation as Pillow or torch does. */
int fd_scale(fd_canvas *canvas, fd_resampler *resampler, const fd_operation *how);

/* ---- warp.c ---- */

fd_apply fd_warp, fd_rotate, fd_affine, fd_perspective;

/* Narrow [*from, *to) to the steps k for which 0 <= start + k * step < limit. */
void fd_narrow(int64_t start, int64_t step, int64_t limit, int64_t *from, int64_t *to);

/* The size of an image after an FD_ROTATE with which it grows. */
void fd_turned_size(const fd_operation *how, int32_t *width, int32_t *height);

/* Find the source of each of `count` results along an axis of `limit` pixels as Pillow does; -1 is
 * outside. */
void fd_find_sources(int32_t *sources, int32_t count, double start, double step, int32_t limit);

/* ---- hue.c, blur.c ---- */

fd_apply fd_shift_hue, fd_blur, fd_box_blur;

/* ---- mix.c ---- */

/* An image that was kept, and the weighted sum of its versions. */
typedef struct {
    int is_begun;
    int32_t width, height; /* of both */
    float *sums;
    uint8_t *kept;
    fd_room sums_room, kept_room;
} fd_mixing;

/* Do an FD_MIX_BEGIN, FD_MIX_ADD or FD_MIX_END. */
int fd_mix(fd_canvas *canvas, fd_mixing *mixing, const fd_operation *how);

/* ---- tensors.c ---- */

fd_apply fd_tensor_contrast, fd_tensor_saturate, fd_tensor_hue, fd_tensor_grey;

/* Map the image by the inverse `matrix`, affine or of a perspective: the result's pixel (x, y) is the
 * source's at matrix[0] * (x + .5) + matrix[1] * (y + .5) + matrix[2], and so on. Without interpolation or
 * bilinearly. */
void fd_tensor_warp(fd_canvas *canvas, const double matrix[8], const fd_operation *how);

/* ---- floats.c ---- */

/* Do the first of `count` operations, and those after it that are of the same floats; `done` is set to
 * their number. */
int fd_run_floats(fd_canvas *canvas, const fd_operation *operations, size_t count, size_t *done);

/* ---- opencv.c ---- */

fd_apply fd_opencv_contrast, fd_opencv_saturate, fd_opencv_grey, fd_opencv_equalize;
fd_apply fd_levels, fd_scale_channels, fd_gamma, fd_shift_colours, fd_fill_box, fd_add_noise;

/* The same as fd_tensor_warp of an affine matrix. */
void fd_opencv_warp(fd_canvas *canvas, const double matrix[6], const fd_operation *how);

/* ---- filter.c, clahe.c ---- */

fd_apply fd_mean_blur, fd_convolve, fd_median, fd_clahe;

/* ---- remap.c ---- */

fd_apply fd_remap; /* FD_LENS, FD_GRID, FD_ELASTIC, and FD_PERSPECTIVE as OpenCV does it */

enum { FD_MOST_CELLS = 64 }; /* of a grid, along an axis */

/* Write a pixel of the result from its place in the source, in pixels from the centre of the first one,
 * which fits an integer; `mode` is an fd_padding. */
void fd_write_nearest(uint8_t *out, const fd_canvas *canvas, double across, double down,
                      int32_t mode, const uint8_t *fill);
void fd_write_bilinear(uint8_t *out, const fd_canvas *canvas, double across, double down,
                       int32_t mode, const uint8_t *fill);

#endif
