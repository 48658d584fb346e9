/* augment.c: augmentations of a crop in memory.
 *
 * A file calls only what is below it; of the same row, none:
 *
 *   augment.c                         chooses what applies an operation
 *   tensors.c, remap.c                warps of torchvision and OpenCV; the colours of torchvision
 *   warp.c                            (warp.h) warps of Pillow, and what all warps share
 *   pillow.c, opencv.c                (operations.h) levels and colours
 *   blur.c, filter.c, clahe.c         neighbours
 *   reshape.c, mix.c                  whole pixels; several images
 *   limits.c, geometry.c              the numbers of an operation: are they good, and what do they say?
 *   canvas.c, noise.c                 (canvas.h, random.h) the image; random numbers
 *
 * Beside them, program.c draws operations (limits.c, geometry.c), and result.c, which calls this file, stores
 * what they make, and lets erase.c replace a part of it. An operation changes the pixels in place, or writes
 * to the second buffer and swaps.
 */
#include "warp.h"

#include <math.h>
#include <stdlib.h>

enum {
    LARGEST_SIDE = 65500,
    LARGEST_IMAGE = 1 << 29, /* pixels */
    LARGEST_WARPED = 16384 /* side: beyond it Pillow's own arithmetic changes */
};

struct fd_augmenter {
    fd_canvas canvas;
    fd_mixing mixing;
    fd_scaler scaler;
};

/* ---- warps ---- */

static int is_small(const fd_canvas *canvas) {
    return canvas->width <= LARGEST_WARPED && canvas->height <= LARGEST_WARPED;
}

/* Warp by an inverse affine matrix, with the result of the operation's library. */
static int warp_by(fd_canvas *canvas, const double matrix[6], const fd_operation *how) {
    fd_operation warp = *how;

    if (!is_small(canvas))
        return FD_ARGUMENT;
    memset(warp.value, 0, sizeof warp.value);
    memcpy(warp.matrix, matrix, 6 * sizeof *matrix);
    if (how->library == FD_OPENCV) {
        warp.outside.padding = how->outside.padding;
        return fd_opencv_warp(canvas, &warp);
    }
    if (how->library == FD_TORCHVISION && !fd_moves_whole_pixels(matrix))
        return fd_tensor_warp(canvas, &warp);
    return fd_pillow_warp(canvas, &warp);
}

static int warp(fd_canvas *canvas, const fd_operation *how) {
    return warp_by(canvas, how->matrix, how);
}

static int perspective(fd_canvas *canvas, const fd_operation *how) {
    if (!is_small(canvas))
        return FD_ARGUMENT;
    return how->library == FD_TORCHVISION ? fd_tensor_warp(canvas, how)
                                          : fd_pillow_perspective(canvas, how);
}

/* As PIL.Image.rotate does. */
static int rotate(fd_canvas *canvas, const fd_operation *how) {
    int turns = canvas->width == canvas->height || how->rotate.grows != 0.0;
    double angle = fd_angle_of(how->rotate.degrees), m[6];
    double right_by = how->rotate.right, down_by = how->rotate.down;

    if (angle == 0.0 && how->rotate.grows != 2.0)
        return FD_OK;
    if (right_by == 0.0 && down_by == 0.0 && how->rotate.grows != 2.0 &&
        (angle == 180.0 || (turns && (angle == 90.0 || angle == 270.0)))) {
        fd_turn_quarters(canvas, (int)(angle / 90.0));
        return FD_OK;
    }
    fd_set_rotation(m, angle, canvas->width / 2.0 + right_by, canvas->height / 2.0 + down_by);
    double x = -(canvas->out_width - canvas->width) / 2.0;
    double y = -(canvas->out_height - canvas->height) / 2.0, right = m[2], below = m[5];
    m[2] = m[0] * x + m[1] * y + right;
    m[5] = m[3] * x + m[4] * y + below;
    return warp_by(canvas, m, how);
}

static int affine(fd_canvas *canvas, const fd_operation *how) {
    double m[6];

    return fd_set_affine(m, how, canvas->width * 0.5, canvas->height * 0.5)
               ? warp_by(canvas, m, how)
               : FD_ARGUMENT;
}

/* ---- the choice ---- */

/* Find the size of an operation's result, and memory for it. */
static int prepare(fd_canvas *canvas, const fd_operation *operation) {
    canvas->out_width = canvas->width;
    canvas->out_height = canvas->height;
    if (!fd_resized_by(operation, &canvas->out_width, &canvas->out_height) ||
        canvas->out_width > LARGEST_SIDE || canvas->out_height > LARGEST_SIDE ||
        (int64_t)canvas->out_width * canvas->out_height > LARGEST_IMAGE)
        return FD_ARGUMENT;
    size_t size = 4 * (size_t)canvas->out_width * (size_t)canvas->out_height + FD_PADDING;
    canvas->other = fd_room_for(&canvas->rooms[1], size);
    return canvas->other == NULL ? FD_NO_MEMORY : FD_OK;
}

/* What applies an operation: for Pillow's result, torchvision's and OpenCV's; NULL is as Pillow. */
static fd_apply *const APPLY[][3] = {
    [FD_BRIGHTNESS] = {fd_brighten},
    [FD_CONTRAST] = {fd_pillow_contrast, fd_tensor_contrast, fd_opencv_contrast},
    [FD_SATURATION] = {fd_pillow_saturate, fd_tensor_saturate, fd_opencv_saturate},
    [FD_HUE] = {fd_pillow_hue, fd_tensor_hue},
    [FD_SHARPNESS] = {fd_sharpen},
    [FD_GREY] = {fd_pillow_grey, fd_tensor_grey, fd_opencv_grey},
    [FD_INVERT] = {fd_invert},
    [FD_SOLARIZE] = {fd_solarize},
    [FD_SOLARIZE_ADD] = {fd_solarize_add},
    [FD_POSTERIZE] = {fd_posterize},
    [FD_EQUALIZE] = {fd_pillow_equalize, fd_pillow_equalize, fd_opencv_equalize},
    [FD_AUTOCONTRAST] = {fd_autocontrast},
    [FD_BLUR] = {fd_blur},
    [FD_BOX_BLUR] = {fd_box_blur},
    [FD_MIRROR] = {fd_mirror},
    [FD_TURN_OVER] = {fd_turn_over},
    [FD_WARP] = {warp},
    [FD_ROTATE] = {rotate},
    [FD_AFFINE] = {affine},
    [FD_PERMUTE] = {fd_permute},
    [FD_PERSPECTIVE] = {perspective, perspective, fd_remap},
    [FD_CROP] = {fd_crop},
    [FD_PAD] = {fd_pad},
    [FD_LEVELS] = {NULL, NULL, fd_levels},
    [FD_SHIFT_COLOURS] = {NULL, NULL, fd_shift_colours},
    [FD_FILL] = {fd_fill_box},
    [FD_NOISE] = {NULL, NULL, fd_add_noise},
    [FD_MEAN_BLUR] = {fd_mean_blur},
    [FD_CLAHE] = {fd_clahe},
    [FD_CHANNELS] = {NULL, NULL, fd_scale_channels},
    [FD_GAMMA] = {NULL, NULL, fd_gamma},
    [FD_CONVOLVE] = {fd_convolve},
    [FD_MEDIAN] = {fd_median},
    [FD_DOWNSCALE] = {fd_downscale},
    [FD_LENS] = {fd_remap},
    [FD_GRID] = {fd_remap},
    [FD_ELASTIC] = {fd_remap},
};

static int run(fd_augmenter *augmenter, const fd_operation *how) {
    fd_canvas *canvas = &augmenter->canvas;
    int32_t library = how->library == FD_TORCHVISION || how->library == FD_OPENCV ? how->library
                                                                                  : FD_PILLOW;

    if (how->kind >= FD_MIX_BEGIN && how->kind <= FD_MIX_END)
        return fd_mix(canvas, &augmenter->mixing, how);
    if (how->kind == FD_RESIZE)
        return fd_scale(canvas, &augmenter->scaler, how);
    if (how->kind < 0 || how->kind >= (int32_t)(sizeof APPLY / sizeof *APPLY))
        return FD_ARGUMENT;
    fd_apply *const *apply = APPLY[how->kind], *own = apply[library];
    own = own == NULL ? apply[FD_PILLOW] : own;
    return own == NULL ? FD_ARGUMENT : own(canvas, how);
}

int fd_augmenter_begin(fd_augmenter *augmenter, int32_t width, int32_t height, uint8_t **pixels) {
    size_t size = 4 * (size_t)width * (size_t)height + FD_PADDING;

    if (width < 1 || height < 1 || width > LARGEST_SIDE || height > LARGEST_SIDE)
        return FD_ARGUMENT;
    fd_canvas *canvas = &augmenter->canvas;
    canvas->pixels = fd_room_for(&canvas->rooms[0], size);
    canvas->width = width;
    canvas->height = height;
    *pixels = canvas->pixels;
    return canvas->pixels != NULL ? FD_OK : FD_NO_MEMORY;
}

int fd_augmenter_run(fd_augmenter *augmenter, const fd_operation *operations, size_t count,
                     const uint8_t **pixels, int32_t *width, int32_t *height) {
    augmenter->mixing.is_begun = 0;
    for (size_t i = 0; i < count; i++) {
        int status = fd_is_good(&operations[i]) ? prepare(&augmenter->canvas, &operations[i])
                                                : FD_ARGUMENT;
        if (status == FD_OK)
            status = run(augmenter, &operations[i]);
        if (status != FD_OK)
            return status;
    }
    *pixels = augmenter->canvas.pixels;
    *width = augmenter->canvas.width;
    *height = augmenter->canvas.height;
    return augmenter->mixing.is_begun ? FD_ARGUMENT : FD_OK;
}

int fd_augment_rgb(fd_augmenter *augmenter, const uint8_t *rgb, int32_t width, int32_t height,
                   const fd_operation *operations, size_t count, uint8_t *out) {
    uint8_t *pixels;
    const uint8_t *result;

    if (augmenter == NULL || rgb == NULL || out == NULL || (operations == NULL && count > 0))
        return FD_ARGUMENT;
    int status = fd_augmenter_begin(augmenter, width, height, &pixels);
    if (status != FD_OK)
        return status;
    size_t all = (size_t)width * (size_t)height;
    for (size_t i = 0; i < all; i++)
        memcpy(pixels + 4 * i, rgb + 3 * i, 3);
    status = fd_augmenter_run(augmenter, operations, count, &result, &width, &height);
    all = (size_t)width * (size_t)height;
    for (size_t i = 0; status == FD_OK && i < all; i++)
        memcpy(out + 3 * i, result + 4 * i, 3);
    return status;
}

fd_augmenter *fd_augmenter_create(void) { return calloc(1, sizeof(fd_augmenter)); }

void fd_augmenter_destroy(fd_augmenter *augmenter) {
    if (augmenter == NULL)
        return;
    fd_room_free(&augmenter->canvas.rooms[0]);
    fd_room_free(&augmenter->canvas.rooms[1]);
    fd_scaler_free(&augmenter->scaler);
    fd_room_free(&augmenter->canvas.scratch);
    fd_room_free(&augmenter->mixing.sums_room);
    fd_room_free(&augmenter->mixing.kept_room);
    free(augmenter);
}
