/* result.c: the result of an image: resized, augmented, and stored in the form that the caller asked for. */
#include "resample.h"

#include <stdlib.h>
#include <string.h>

struct fd_resampler {
    fd_pixels pixels;
    uint8_t *out;
    int32_t width, height; /* of the result */
    fd_scaler scaler;
    fd_augmenter *augmenter; /* made when it is first needed */
    uint8_t *canvas; /* the whole result, where it is augmented; else NULL */
    char *band; /* values of the rows that are cut at once */
    fd_room band_room;
    fd_room ring; /* of source rows, for fd_resize_rgb */
};

/* ---- rows ---- */

/* Store row `y` of the result, or of a band of it that is then cut into patches. */
static void store_row(fd_resampler *resampler, int32_t y, const uint8_t *rgbx) {
    const fd_pixels *pixels = &resampler->pixels;
    size_t width = (size_t)resampler->width, height = (size_t)resampler->height;
    size_t band = fd_band_height(pixels), row = (size_t)y;
    size_t step = fd_value_size(pixels) * width *
                  (pixels->channels_first ? 1 : (size_t)pixels->channels);

    if (band == 0) {
        fd_store(resampler->out + step * row, rgbx, pixels, width * height, width);
        return;
    }
    fd_store(resampler->band + step * (row % band), rgbx, pixels, width * band, width);
    if (row % band == band - 1)
        fd_cut((char *)resampler->out, resampler->band, pixels, width, height, row / band);
}

/* Store row `y` of the result, or keep it for the augmentations. */
static void emit_row(void *state, int32_t y, const uint8_t *rgbx) {
    fd_resampler *resampler = state;
    size_t stride = 4 * (size_t)resampler->width;

    if (resampler->canvas != NULL)
        memcpy(resampler->canvas + stride * (size_t)y, rgbx, stride);
    else
        store_row(resampler, y, rgbx);
}

/* ---- the interface ---- */

static int is_good(const fd_resize *resize, const fd_pixels *pixels) {
    int has_four = pixels->channels == 4 && pixels->dtype == FD_UINT8 && !pixels->channels_first &&
                   pixels->patches.height == 0;

    return fd_is_possible(resize) && pixels->dtype >= FD_UINT8 && pixels->dtype <= FD_BFLOAT16 &&
           (pixels->channels == 1 || pixels->channels == 3 || has_four);
}

/* Get memory for a band of a result of this size, if it can be cut into patches. */
static int prepare_band(fd_resampler *resampler, int32_t width, int32_t height) {
    fd_pixels *pixels = &resampler->pixels;

    if (!fd_can_be_cut(pixels, width, height))
        return FD_ARGUMENT;
    size_t values = (size_t)width * fd_band_height(pixels) * (size_t)pixels->channels;
    if (values == 0)
        return FD_OK;
    pixels->channels_first = fd_cuts_planes(pixels, width, height);
    resampler->band = fd_room_for(&resampler->band_room, fd_value_size(pixels) * values);
    return resampler->band == NULL ? FD_NO_MEMORY : FD_OK;
}

/* Get memory for the whole result, if it is to be augmented. */
static int prepare_canvas(fd_resampler *resampler, int is_augmented, int32_t width,
                          int32_t height) {
    resampler->canvas = NULL;
    if (!is_augmented)
        return FD_OK;
    if (resampler->augmenter == NULL && (resampler->augmenter = fd_augmenter_create()) == NULL)
        return FD_NO_MEMORY;
    return fd_augmenter_begin(resampler->augmenter, width, height, &resampler->canvas);
}

int fd_resampler_begin(fd_resampler *resampler, const fd_resize *resize, int is_augmented,
                       const fd_pixels *pixels, void *out, int32_t window[4], fd_sink *sink) {
    if (out == NULL || !is_good(resize, pixels))
        return FD_ARGUMENT;
    resampler->pixels = *pixels;
    resampler->out = out;
    resampler->width = resize->width;
    resampler->height = resize->height;
    int status = is_augmented ? FD_OK : prepare_band(resampler, resize->width, resize->height);
    if (status == FD_OK)
        status = prepare_canvas(resampler, is_augmented, resize->width, resize->height);
    return status != FD_OK
               ? status
               : fd_scaler_begin(&resampler->scaler, resize, emit_row, resampler, window, sink);
}

/* Whether the box of an erasure lies inside the result. */
static int box_is_inside(const fd_operation *erasure, int32_t width, int32_t height) {
    return erasure->box.left >= 0 && erasure->box.top >= 0 && erasure->box.width >= 0 &&
           erasure->box.height >= 0 && erasure->box.left + erasure->box.width <= width &&
           erasure->box.top + erasure->box.height <= height;
}

int fd_resampler_finish(fd_resampler *resampler, const fd_operation *operations, int32_t count) {
    const uint8_t *rgbx;

    if (resampler->canvas == NULL)
        return FD_OK;
    const fd_pixels *stored = &resampler->pixels;
    int32_t before = count; /* operations before the erasures, which come last */
    while (before > 0 && operations[before - 1].kind == FD_ERASE)
        before--;
    if (before < count && (stored->dtype != FD_FLOAT32 || stored->patches.height > 0))
        return FD_ARGUMENT;
    int status = fd_augmenter_run(resampler->augmenter, operations, (size_t)before, &rgbx,
                                  &resampler->width, &resampler->height);
    if (status == FD_OK)
        status = prepare_band(resampler, resampler->width, resampler->height);
    if (status != FD_OK)
        return status;
    for (int32_t i = before; i < count; i++)
        if (!box_is_inside(&operations[i], resampler->width, resampler->height))
            return FD_ARGUMENT;
    for (int32_t y = 0; y < resampler->height; y++)
        store_row(resampler, y, rgbx + 4 * (size_t)resampler->width * (size_t)y);
    for (int32_t i = before; i < count; i++)
        fd_erase((float *)(void *)resampler->out, resampler->width, resampler->height, stored,
                 &operations[i]);
    return FD_OK;
}

int fd_resize_rgb(fd_resampler *resampler, const uint8_t *rgb, int32_t width, int32_t height,
                  int32_t channels, ptrdiff_t stride, const fd_resize *resize,
                  const fd_operation *operations, int32_t count, const fd_pixels *pixels,
                  void *out) {
    int32_t window[4];
    fd_sink sink;

    if (resampler == NULL || rgb == NULL || resize == NULL || pixels == NULL ||
        (channels != 3 && channels != 4) || resize->in_right > width || resize->in_bottom > height)
        return FD_ARGUMENT;
    int status = fd_resampler_begin(resampler, resize, count > 0, pixels, out, window, &sink);
    if (status != FD_OK)
        return status;
    size_t columns = (size_t)(window[2] - window[0]);
    size_t row_size = (columns * 4 + FD_PADDING + 63) / 64 * 64;
    uint8_t *ring = fd_room_for(&resampler->ring, row_size * (size_t)sink.rows_kept);
    if (ring == NULL)
        return FD_NO_MEMORY;
    fd_to_rgbx *to_rgbx = fd_kernels_now()->to_rgbx;
    for (int32_t y = 0; y < window[3] - window[1]; y++) {
        uint8_t *row = ring + row_size * (size_t)(y % sink.rows_kept);
        const uint8_t *from = rgb + (ptrdiff_t)(window[1] + y) * stride +
                              (ptrdiff_t)window[0] * channels;
        int is_inside = (height - window[1] - y - 1) * stride >= (ptrdiff_t)row_size;
        if (channels == 4 && is_inside) {
            sink.row(sink.state, y, from);
            continue;
        }
        if (channels == 3)
            to_rgbx(row, from, columns);
        else
            memcpy(row, from, 4 * columns);
        sink.row(sink.state, y, row);
    }
    return fd_resampler_finish(resampler, operations, count);
}

fd_resampler *fd_resampler_create(void) { return calloc(1, sizeof(fd_resampler)); }

void fd_resampler_destroy(fd_resampler *resampler) {
    if (resampler == NULL)
        return;
    fd_scaler_free(&resampler->scaler);
    fd_room_free(&resampler->band_room);
    fd_room_free(&resampler->ring);
    fd_augmenter_destroy(resampler->augmenter);
    free(resampler);
}
