/* operations.h: the operations, each of which one file applies to a canvas; augment.c chooses among them. */
#pragma once

#include "canvas.h"
#include "resample.h"

#define FD_LARGEST_NUMBER 1e6 /* of a value of an operation */

enum { FD_MOST_CELLS = 64 }; /* of an FD_GRID, along an axis */

/* ---- limits.c, geometry.c: what the numbers of an operation say ---- */

/* Whether the numbers are in the limits of the operation, or of the step, whose kind exists. */
int fd_is_good(const fd_operation *operation);
int fd_is_good_step(const fd_step *step);

/* An angle from 0 up to 360 degrees. */
double fd_angle_of(double degrees);

/* Set the inverse affine matrix that turns an image about a point; and that of an FD_AFFINE about it. 0 if
 * there is none. */
void fd_set_rotation(double m[6], double angle, double x, double y);
int fd_set_affine(double m[6], const fd_operation *how, double x, double y);

/* ---- each in the file of its library: levels and colours ---- */

/* Apply an operation, whose numbers are good. */
typedef int fd_apply(fd_canvas *canvas, const fd_operation *how);

fd_apply fd_brighten, fd_pillow_contrast, fd_pillow_saturate, fd_pillow_hue, fd_pillow_grey;
fd_apply fd_sharpen, fd_invert, fd_solarize, fd_solarize_add, fd_posterize, fd_pillow_equalize;
fd_apply fd_autocontrast, fd_permute;
fd_apply fd_tensor_contrast, fd_tensor_saturate, fd_tensor_hue, fd_tensor_grey;
fd_apply fd_opencv_contrast, fd_opencv_saturate, fd_opencv_grey, fd_opencv_equalize;
fd_apply fd_levels, fd_scale_channels, fd_gamma, fd_shift_colours, fd_fill_box, fd_add_noise;

/* ---- blur.c, filter.c, clahe.c: each pixel and its neighbours ---- */

fd_apply fd_blur, fd_box_blur, fd_mean_blur, fd_convolve, fd_median, fd_clahe;

/* ---- reshape.c: whole pixels ---- */

fd_apply fd_crop, fd_pad, fd_mirror, fd_turn_over, fd_downscale;

/* Turn by a quarter to the left, `quarters` times. */
void fd_turn_quarters(fd_canvas *canvas, int quarters);

/* FD_RESIZE; without interpolation as Pillow or torch does. */
int fd_scale(fd_canvas *canvas, fd_scaler *scaler, const fd_operation *how);

/* ---- warp.c, tensors.c, remap.c: warps ---- */

/* Map the image by the inverse `matrix`, affine or of a perspective: the result's pixel (x, y) is the
 * source's at matrix[0] * (x + .5) + matrix[1] * (y + .5) + matrix[2], and so on. */
fd_apply fd_pillow_warp, fd_pillow_perspective, fd_tensor_warp, fd_opencv_warp;

fd_apply fd_remap; /* FD_LENS, FD_GRID, FD_ELASTIC, and FD_PERSPECTIVE as OpenCV does it */

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
