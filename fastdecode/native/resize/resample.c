/* resample.c: antialiased resizing of a box to a canvas, row by row as the source arrives.
 *
 * The filter is the triangle of Pillow's BILINEAR and torch's interpolate(antialias=True): result i
 * has its centre at start + (i + 0.5) * scale, reaches max(scale, 1) pixels to each side, and stops
 * where pixels may not be read. Once all source rows of a result row are there, they are blended to
 * one row with a few fraction bits; its columns are then computed, rounded once, and stored in the
 * form that the caller asked for.
 *
 * All arithmetic is on integers: a weight is a multiple of 1 / 2^bits, and the weights of one result
 * add up to exactly 2^bits. So nothing overflows or needs clamping, and a plain colour is kept.
 */
#include "augment.h"
#include "kernels.h"
#include "twopass.h"
#include "weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGEST_SIDE = 65500, /* libjpeg's limit */
    BLEND_BITS = 15,      /* fraction bits of the weights that `blend` takes */
    SUMS = 4              /* result rows that may be in progress; two are enough */
};

struct fd_resampler {
    fd_pixels pixels;
    uint8_t *out;
    int32_t width, height; /* of the result */
    int32_t window_height;
    fd_axis across, down;
    fd_columns columns;
    int32_t fraction;                   /* fraction bits of the values in `row` */
    int few;                            /* a result row needs at most FD_FEW_ROWS */
    int blends;                         /* if also `blend` is exact enough */
    int32_t next;                       /* next result row to compute */
    int32_t chunk;                      /* first source row that is not added yet */
    size_t count;                       /* values in a source row, rounded up to whole blocks */
    const uint8_t *recent[FD_FEW_ROWS]; /* source row y is at y % FD_FEW_ROWS */
    int32_t *sums;                      /* weighted sums of source rows, for SUMS results */
    int16_t *row;                       /* source rows blended for one result row */
    uint8_t *rgbx;                      /* the result row */
    fd_twopass twopass; /* instead of the above, for Pillow's and torch's filters */
    fd_augmenter *augmenter; /* made when it is first needed */
    uint8_t *canvas; /* the whole result, where it is augmented; else NULL */
    fd_room sums_room, row_room, rgbx_room, weights_room;
    char *band;                         /* values of the rows that are cut at once */
    fd_room band_room;
    fd_room ring; /* of source rows, for fd_resize_rgb */
};

/* Put the weights of the columns in the order in which the kernels read them. */
static int arrange_columns(fd_resampler *resampler) {
    const fd_axis *across = &resampler->across;
    fd_columns *columns = &resampler->columns;
    int32_t pairs = (across->most + 1) / 2;
    int32_t groups = (resampler->width + FD_GROUP - 1) / FD_GROUP;
    size_t results = (size_t)groups * FD_GROUP;
    size_t size = results * (size_t)pairs * 2 * sizeof(int16_t);
    uint8_t *memory = fd_room_for(&resampler->weights_room, size + results * sizeof(int32_t));

    if (memory == NULL) {
        return FD_NO_MEMORY;
    }
    memset(memory, 0, size + results * sizeof(int32_t));
    int16_t *weights = (int16_t *)(void *)memory;
    int32_t *first = (int32_t *)(void *)(memory + size);
    for (int32_t i = 0; i < resampler->width; i++) {
        const uint16_t *from = across->weights + (size_t)i * (size_t)across->stride;
        int16_t *to = weights + (size_t)(i / FD_GROUP) * (size_t)pairs * 2 * FD_GROUP +
                      i % FD_GROUP * 2;
        first[i] = across->first[i];
        for (int32_t t = 0; t < across->count[i]; t++) {
            to[t / 2 * 2 * FD_GROUP + t % 2] = (int16_t)from[t];
        }
    }
    columns->groups = groups;
    columns->pairs = pairs;
    columns->first = first;
    columns->weights = weights;
    return FD_OK;
}

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

/* The sink of a part of the image that keeps its size. */
static void copy_row(void *state, int32_t y, const uint8_t *pixels) { emit_row(state, y, pixels); }

/* The same, of its mirror image. */
static void copy_mirrored_row(void *state, int32_t y, const uint8_t *pixels) {
    fd_resampler *resampler = state;

    fd_mirror_row(resampler->rgbx, pixels, (size_t)resampler->width);
    emit_row(resampler, y, resampler->rgbx);
}

static int is_copy(const fd_resize *resize) {
    return resize->right - resize->left == resize->canvas_width &&
           resize->bottom - resize->top == resize->canvas_height &&
           resize->left == rint(resize->left) && resize->top == rint(resize->top) &&
           resize->in_left <= resize->left && resize->in_right >= resize->right &&
           resize->in_top <= resize->top && resize->in_bottom >= resize->bottom;
}

/* Compute a result row from the complete values of `row`. */
static void finish_row(fd_resampler *resampler) {
    fd_kernels_now()->squeeze(resampler->rgbx, resampler->row, &resampler->columns);
    emit_row(resampler, resampler->next++, resampler->rgbx);
}

/* Round the sums of rows to `row`. */
static void settle(fd_resampler *resampler, const int32_t *sums) {
    int32_t shift = resampler->down.bits - resampler->fraction;
    int32_t half = INT32_C(1) << (shift - 1), later = INT32_C(1) << (resampler->fraction - 1);

    for (size_t i = 0; i < resampler->count; i++) {
        resampler->row[i] = (int16_t)(((sums[i] + half) >> shift) + later);
    }
}

/* Add source rows `from` to `to`, with their weights for result row `i`, to `sums`. */
static void add_rows(fd_resampler *resampler, int32_t i, int32_t from, int32_t to, int32_t *sums) {
    const fd_axis *down = &resampler->down;
    const uint8_t *rows[FD_FEW_ROWS];

    for (int32_t y = from; y <= to; y++) {
        rows[y - from] = resampler->recent[y % FD_FEW_ROWS];
    }
    size_t weight = (size_t)i * (size_t)down->stride + (size_t)(from - down->first[i]);
    fd_add(sums, rows, down->weights + weight, to - from + 1, resampler->count);
}

/* Blend a few source rows to `row`, for result row `i`. */
static void blend_rows(fd_resampler *resampler, int32_t i) {
    const fd_axis *down = &resampler->down;
    const uint8_t *rows[FD_FEW_ROWS];
    int32_t first = down->first[i], count = down->count[i];

    if (!resampler->blends) {
        memset(resampler->sums, 0, resampler->count * sizeof *resampler->sums);
        add_rows(resampler, i, first, first + count - 1, resampler->sums);
        settle(resampler, resampler->sums);
        return;
    }
    for (int32_t t = 0; t < count; t++) {
        rows[t] = resampler->recent[(first + t) % FD_FEW_ROWS];
    }
    /* Add half a step for the rounding, and half of what the truncation of products loses. */
    int32_t start = (1 << (FD_FRACTION - 1)) + count / 2;
    fd_blend(resampler->row, rows, down->weights + (size_t)i * (size_t)down->stride, count, start,
             resampler->count);
}

/* The sink of the common case, where few source rows make a result row. */
static void take_row(void *state, int32_t y, const uint8_t *pixels) {
    fd_resampler *resampler = state;
    const fd_axis *down = &resampler->down;

    resampler->recent[y % FD_FEW_ROWS] = pixels;
    while (resampler->next < resampler->height &&
           down->first[resampler->next] + down->count[resampler->next] - 1 <= y) {
        blend_rows(resampler, resampler->next);
        finish_row(resampler);
    }
}

/* The sink for many source rows per result row: they are added up a few at a time. */
static void take_row_of_many(void *state, int32_t y, const uint8_t *pixels) {
    fd_resampler *resampler = state;
    const fd_axis *down = &resampler->down;

    resampler->recent[y % FD_FEW_ROWS] = pixels;
    if (y - resampler->chunk + 1 < FD_FEW_ROWS && y != resampler->window_height - 1) {
        return;
    }
    for (int32_t i = resampler->next; i < resampler->height && down->first[i] <= y; i++) {
        int32_t first = down->first[i], last = first + down->count[i] - 1;
        int32_t *sums = resampler->sums + (size_t)(i % SUMS) * resampler->count;

        if (first >= resampler->chunk) {
            memset(sums, 0, resampler->count * sizeof *sums);
        }
        add_rows(resampler, i, first > resampler->chunk ? first : resampler->chunk,
                 last < y ? last : y, sums);
        if (last <= y) {
            settle(resampler, sums);
            finish_row(resampler);
        }
    }
    resampler->chunk = y + 1;
}

/* ---- the interface ---- */

static int box_is_good(double low, double high, int32_t in_first, int32_t in_end) {
    return isfinite(low) && isfinite(high) && low >= -LARGEST_SIDE && high <= 2 * LARGEST_SIDE &&
           in_first >= 0 && in_first < in_end && in_end <= LARGEST_SIDE && low < high &&
           low < in_end && high > in_first;
}

static int part_is_good(int32_t canvas, int32_t from, int32_t count) {
    return canvas >= 1 && canvas <= LARGEST_SIDE && from >= 0 && from < canvas && count >= 1 &&
           count <= canvas - from;
}

int fd_is_possible(const fd_resize *resize) {
    return box_is_good(resize->left, resize->right, resize->in_left, resize->in_right) &&
           box_is_good(resize->top, resize->bottom, resize->in_top, resize->in_bottom) &&
           part_is_good(resize->canvas_width, resize->x, resize->width) &&
           part_is_good(resize->canvas_height, resize->y, resize->height) &&
           (int64_t)resize->width * resize->height <= PTRDIFF_MAX / 12 &&
           resize->filter >= FD_FILTER_OWN && resize->filter < FD_FILTER_NEAREST;
}

static int is_good(const fd_resize *resize, const fd_pixels *pixels) {
    return fd_is_possible(resize) && pixels->dtype >= FD_UINT8 && pixels->dtype <= FD_BFLOAT16 &&
           (pixels->channels == 1 || pixels->channels == 3);
}

/* Prepare both axes, and choose how many fraction bits rows keep. */
static int prepare_axes(fd_resampler *resampler, const fd_resize *resize) {
    const fd_span across = {resize->left,         resize->right - resize->left,
                            resize->in_left,      resize->in_right,
                            resize->canvas_width, resize->x,
                            resize->width,        resize->flip,
                            resize->filter};
    const fd_span down = {resize->top,           resize->bottom - resize->top,
                          resize->in_top,        resize->in_bottom,
                          resize->canvas_height, resize->y,
                          resize->height,        0,
                          resize->filter};

    if (fd_axis_measure(&resampler->across, &across) != FD_OK ||
        fd_axis_measure(&resampler->down, &down) != FD_OK) {
        return FD_NO_MEMORY;
    }
    /* 255.5 * 2^(bits + fraction) must fit an int32. */
    int32_t bits = resampler->across.bits;
    resampler->fraction = bits > 23 - FD_FRACTION ? 23 - bits : FD_FRACTION;
    resampler->columns.shift = bits + resampler->fraction;
    resampler->few = resampler->down.support <= FD_FEW_ROWS / 2;
    resampler->blends = resampler->few && resampler->fraction == FD_FRACTION;
    resampler->down.bits = resampler->blends ? BLEND_BITS : resampler->down.bits;
    fd_axis_quantise(&resampler->across, resize->width);
    fd_axis_quantise(&resampler->down, resize->height);
    return arrange_columns(resampler);
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

/* Begin a resize whose rows are stored, or kept in the canvas. */
static int begin(fd_resampler *resampler, const fd_resize *resize, int32_t window[4],
                 fd_sink *sink) {
    resampler->width = resize->width;
    resampler->height = resize->height;
    resampler->next = resampler->chunk = 0;
    if (is_copy(resize)) {
        window[0] = (int32_t)resize->left + resize->x;
        window[1] = (int32_t)resize->top + resize->y;
        window[2] = window[0] + resize->width;
        window[3] = window[1] + resize->height;
        *sink = (fd_sink){
            .row = resize->flip ? copy_mirrored_row : copy_row, .state = resampler, .rows_kept = 1};
        resampler->rgbx = fd_room_for(&resampler->rgbx_room,
                                      4 * (size_t)resize->width + FD_PADDING);
        return resampler->rgbx == NULL ? FD_NO_MEMORY : FD_OK;
    }
    if (resize->filter >= FD_FILTER_TRIANGLE && resize->filter <= FD_FILTER_TORCH_LANCZOS)
        return fd_twopass_begin(&resampler->twopass, resize, emit_row, resampler, window, sink);
    int status = prepare_axes(resampler, resize);
    if (status != FD_OK) {
        return status;
    }
    const fd_axis *across = &resampler->across, *down = &resampler->down;
    size_t count = (size_t)(across->end - across->begin) * 4;
    count = (count + FD_BLOCK - 1) / FD_BLOCK * FD_BLOCK;
    resampler->count = count;
    resampler->window_height = down->end - down->begin;
    /* At the right edge results may have fewer pixels: the pixels that follow get weight 0. */
    size_t row = count + (size_t)resampler->columns.pairs * 8;
    size_t rgbx = (size_t)resampler->columns.groups * FD_GROUP * 4;
    resampler->row = fd_room_for(&resampler->row_room, row * sizeof(int16_t));
    resampler->rgbx = fd_room_for(&resampler->rgbx_room, rgbx);
    resampler->sums = fd_room_for(&resampler->sums_room, SUMS * count * sizeof(int32_t));
    if (!resampler->row || !resampler->rgbx || !resampler->sums) {
        return FD_NO_MEMORY;
    }
    window[0] = across->begin;
    window[1] = down->begin;
    window[2] = across->end;
    window[3] = down->end;
    sink->state = resampler;
    if (resampler->few) {
        sink->row = take_row;
        sink->rows_kept = down->most;
    } else {
        sink->row = take_row_of_many;
        sink->rows_kept = FD_FEW_ROWS;
    }
    return FD_OK;
}

int fd_resampler_begin(fd_resampler *resampler, const fd_resize *resize, int is_augmented,
                       const fd_pixels *pixels, void *out, int32_t window[4], fd_sink *sink) {
    if (out == NULL || !is_good(resize, pixels)) {
        return FD_ARGUMENT;
    }
    resampler->pixels = *pixels;
    resampler->out = out;
    int status = is_augmented ? FD_OK : prepare_band(resampler, resize->width, resize->height);
    if (status == FD_OK)
        status = prepare_canvas(resampler, is_augmented, resize->width, resize->height);
    return status == FD_OK ? begin(resampler, resize, window, sink) : status;
}

int fd_resample(fd_resampler *resampler, const uint8_t *rgbx, int32_t width,
                const fd_resize *resize, uint8_t *out) {
    int32_t window[4];
    fd_sink sink;

    resampler->canvas = out;
    int status = begin(resampler, resize, window, &sink);
    for (int32_t y = window[1]; status == FD_OK && y < window[3]; y++) {
        size_t at = (size_t)y * (size_t)width + (size_t)window[0];
        sink.row(sink.state, y - window[1], rgbx + 4 * at);
    }
    return status;
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

/* X is the next pixel's R, so the last pixel is copied separately. */
void fd_to_rgbx_plain(uint8_t *out, const uint8_t *rgb, size_t count) {
    for (size_t i = 0; i + 1 < count; i++) {
        memcpy(out + 4 * i, rgb + 3 * i, 4);
    }
    memcpy(out + 4 * (count - 1), rgb + 3 * (count - 1), 3);
}

int fd_resize_rgb(fd_resampler *resampler, const uint8_t *rgb, int32_t width, int32_t height,
                  ptrdiff_t stride, const fd_resize *resize, const fd_operation *operations,
                  int32_t count, const fd_pixels *pixels, void *out) {
    int32_t window[4];
    fd_sink sink;

    if (resampler == NULL || rgb == NULL || resize == NULL || pixels == NULL ||
        resize->in_right > width || resize->in_bottom > height) {
        return FD_ARGUMENT;
    }
    int status = fd_resampler_begin(resampler, resize, count > 0, pixels, out, window, &sink);
    if (status != FD_OK) {
        return status;
    }
    size_t columns = (size_t)(window[2] - window[0]);
    size_t row_size = (columns * 4 + FD_PADDING + 63) / 64 * 64;
    uint8_t *ring = fd_room_for(&resampler->ring, row_size * (size_t)sink.rows_kept);
    if (ring == NULL) {
        return FD_NO_MEMORY;
    }
    fd_to_rgbx *to_rgbx = fd_kernels_now()->to_rgbx;
    for (int32_t y = 0; y < window[3] - window[1]; y++) {
        uint8_t *row = ring + row_size * (size_t)(y % sink.rows_kept);
        to_rgbx(row, rgb + (ptrdiff_t)(window[1] + y) * stride + (ptrdiff_t)window[0] * 3, columns);
        sink.row(sink.state, y, row);
    }
    return fd_resampler_finish(resampler, operations, count);
}

fd_resampler *fd_resampler_create(void) { return calloc(1, sizeof(fd_resampler)); }

void fd_resampler_destroy(fd_resampler *resampler) {
    if (resampler == NULL) {
        return;
    }
    fd_axis_free(&resampler->across);
    fd_axis_free(&resampler->down);
    fd_room_free(&resampler->sums_room);
    fd_room_free(&resampler->row_room);
    fd_room_free(&resampler->rgbx_room);
    fd_room_free(&resampler->weights_room);
    fd_room_free(&resampler->band_room);
    fd_room_free(&resampler->ring);
    fd_augmenter_destroy(resampler->augmenter);
    fd_twopass_free(&resampler->twopass);
    free(resampler);
}
