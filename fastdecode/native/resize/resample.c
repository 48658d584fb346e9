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
#include "resample.h"

#include <math.h>
#include <string.h>

enum {
    LARGEST_SIDE = 65500, /* libjpeg's limit */
    BLEND_BITS = 15 /* fraction bits of the weights that `blend` takes */
};

/* Put the weights of the columns in the order in which the kernels read them. */
static int arrange_columns(fd_scaler *scaler) {
    const fd_axis *across = &scaler->across;
    fd_columns *columns = &scaler->columns;
    int32_t pairs = (across->most + 1) / 2;
    int32_t groups = (scaler->width + FD_GROUP - 1) / FD_GROUP;
    size_t results = (size_t)groups * FD_GROUP;
    size_t size = results * (size_t)pairs * 2 * sizeof(int16_t);
    uint8_t *memory = fd_room_for(&scaler->weights_room, size + results * sizeof(int32_t));

    if (memory == NULL)
        return FD_NO_MEMORY;
    memset(memory, 0, size + results * sizeof(int32_t));
    int16_t *weights = (int16_t *)(void *)memory;
    int32_t *first = (int32_t *)(void *)(memory + size);
    for (int32_t i = 0; i < scaler->width; i++) {
        const uint16_t *from = across->weights + (size_t)i * (size_t)across->stride;
        int16_t *to = weights + (size_t)(i / FD_GROUP) * (size_t)pairs * 2 * FD_GROUP +
                      i % FD_GROUP * 2;
        first[i] = across->first[i];
        for (int32_t t = 0; t < across->count[i]; t++)
            to[t / 2 * 2 * FD_GROUP + t % 2] = (int16_t)from[t];
    }
    columns->groups = groups;
    columns->pairs = pairs;
    columns->first = first;
    columns->weights = weights;
    return FD_OK;
}

/* ---- rows ---- */

/* The sink of the mirror image of a part of the image that keeps its size. */
static void copy_mirrored_row(void *state, int32_t y, const uint8_t *pixels) {
    fd_scaler *scaler = state;

    fd_mirror_row(scaler->rgbx, pixels, (size_t)scaler->width);
    scaler->emit(scaler->state, y, scaler->rgbx);
}

static int is_copy(const fd_resize *resize) {
    return resize->right - resize->left == resize->canvas_width &&
           resize->bottom - resize->top == resize->canvas_height &&
           resize->left == rint(resize->left) && resize->top == rint(resize->top) &&
           resize->in_left <= resize->left && resize->in_right >= resize->right &&
           resize->in_top <= resize->top && resize->in_bottom >= resize->bottom;
}

/* Compute a result row from the complete values of `row`. */
static void finish_row(fd_scaler *scaler) {
    fd_kernels_now()->squeeze(scaler->rgbx, scaler->row, &scaler->columns);
    scaler->emit(scaler->state, scaler->next++, scaler->rgbx);
}

/* Round the sums of rows to `row`. */
static void settle(fd_scaler *scaler, const int32_t *sums) {
    int32_t shift = scaler->down.bits - scaler->fraction;
    int32_t half = INT32_C(1) << (shift - 1), later = INT32_C(1) << (scaler->fraction - 1);

    for (size_t i = 0; i < scaler->count; i++)
        scaler->row[i] = (int16_t)(((sums[i] + half) >> shift) + later);
}

/* Add source rows `from` to `to`, with their weights for result row `i`, to `sums`. */
static void add_rows(fd_scaler *scaler, int32_t i, int32_t from, int32_t to, int32_t *sums) {
    const fd_axis *down = &scaler->down;
    const uint8_t *rows[FD_FEW_ROWS];

    for (int32_t y = from; y <= to; y++)
        rows[y - from] = scaler->recent[y % FD_FEW_ROWS];
    size_t weight = (size_t)i * (size_t)down->stride + (size_t)(from - down->first[i]);
    fd_add(sums, rows, down->weights + weight, to - from + 1, scaler->count);
}

/* Blend a few source rows to `row`, for result row `i`. */
static void blend_rows(fd_scaler *scaler, int32_t i) {
    const fd_axis *down = &scaler->down;
    const uint8_t *rows[FD_FEW_ROWS];
    int32_t first = down->first[i], count = down->count[i];

    if (!scaler->blends) {
        memset(scaler->sums, 0, scaler->count * sizeof *scaler->sums);
        add_rows(scaler, i, first, first + count - 1, scaler->sums);
        settle(scaler, scaler->sums);
        return;
    }
    for (int32_t t = 0; t < count; t++)
        rows[t] = scaler->recent[(first + t) % FD_FEW_ROWS];
    /* Add half a step for the rounding, and half of what the truncation of products loses. */
    int32_t start = (1 << (FD_FRACTION - 1)) + count / 2;
    fd_blend(scaler->row, rows, down->weights + (size_t)i * (size_t)down->stride, count, start,
             scaler->count);
}

/* The sink of the common case, where few source rows make a result row. */
static void take_row(void *state, int32_t y, const uint8_t *pixels) {
    fd_scaler *scaler = state;
    const fd_axis *down = &scaler->down;

    scaler->recent[y % FD_FEW_ROWS] = pixels;
    while (scaler->next < scaler->height &&
           down->first[scaler->next] + down->count[scaler->next] - 1 <= y) {
        blend_rows(scaler, scaler->next);
        finish_row(scaler);
    }
}

/* The sink for many source rows per result row: FD_FEW_ROWS at a time are added, with their weights, to the
 * sums of each result that they reach; a result whose last row was among them is finished. */
static void take_row_of_many(void *state, int32_t y, const uint8_t *pixels) {
    fd_scaler *scaler = state;
    const fd_axis *down = &scaler->down;

    scaler->recent[y % FD_FEW_ROWS] = pixels;
    if (y - scaler->chunk + 1 < FD_FEW_ROWS && y != scaler->window_height - 1)
        return;
    for (int32_t i = scaler->next; i < scaler->height && down->first[i] <= y; i++) {
        int32_t first = down->first[i], last = first + down->count[i] - 1;
        int32_t *sums = scaler->sums + (size_t)(i % FD_SUMS) * scaler->count;

        if (first >= scaler->chunk)
            memset(sums, 0, scaler->count * sizeof *sums);
        add_rows(scaler, i, first > scaler->chunk ? first : scaler->chunk, last < y ? last : y,
                 sums);
        if (last <= y) {
            settle(scaler, sums);
            finish_row(scaler);
        }
    }
    scaler->chunk = y + 1;
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

/* Prepare both axes, and choose how many fraction bits rows keep. */
static int prepare_axes(fd_scaler *scaler, const fd_resize *resize) {
    fd_span spans[2];

    fd_spans_of(resize, spans);
    if (fd_axis_measure(&scaler->across, &spans[0]) != FD_OK ||
        fd_axis_measure(&scaler->down, &spans[1]) != FD_OK)
        return FD_NO_MEMORY;
    /* 255.5 * 2^(bits + fraction) must fit an int32. */
    int32_t bits = scaler->across.bits;
    scaler->fraction = bits > 23 - FD_FRACTION ? 23 - bits : FD_FRACTION;
    scaler->columns.shift = bits + scaler->fraction;
    scaler->few = scaler->down.support <= FD_FEW_ROWS / 2;
    scaler->blends = scaler->few && scaler->fraction == FD_FRACTION;
    scaler->down.bits = scaler->blends ? BLEND_BITS : scaler->down.bits;
    fd_axis_quantise(&scaler->across, resize->width);
    fd_axis_quantise(&scaler->down, resize->height);
    return arrange_columns(scaler);
}

int fd_scaler_begin(fd_scaler *scaler, const fd_resize *resize, fd_emit_row *emit, void *state,
                    int32_t window[4], fd_sink *sink) {
    scaler->emit = emit;
    scaler->state = state;
    scaler->width = resize->width;
    scaler->height = resize->height;
    scaler->next = scaler->chunk = 0;
    if (is_copy(resize)) {
        window[0] = (int32_t)resize->left + resize->x;
        window[1] = (int32_t)resize->top + resize->y;
        window[2] = window[0] + resize->width;
        window[3] = window[1] + resize->height;
        *sink = resize->flip ? (fd_sink){copy_mirrored_row, scaler, 1} : (fd_sink){emit, state, 1};
        scaler->rgbx = fd_room_for(&scaler->rgbx_room, 4 * (size_t)resize->width + FD_PADDING);
        return scaler->rgbx == NULL ? FD_NO_MEMORY : FD_OK;
    }
    if (resize->filter >= FD_FILTER_TRIANGLE && resize->filter <= FD_FILTER_TORCH_LANCZOS)
        return fd_twopass_begin(&scaler->twopass, resize, emit, state, window, sink);
    int status = prepare_axes(scaler, resize);
    if (status != FD_OK)
        return status;
    const fd_axis *across = &scaler->across, *down = &scaler->down;
    size_t count = (size_t)(across->end - across->begin) * 4;
    count = (count + FD_BLOCK - 1) / FD_BLOCK * FD_BLOCK;
    scaler->count = count;
    scaler->window_height = down->end - down->begin;
    /* At the right edge results may have fewer pixels: the pixels that follow get weight 0. */
    size_t row = count + (size_t)scaler->columns.pairs * 8;
    size_t rgbx = (size_t)scaler->columns.groups * FD_GROUP * 4;
    scaler->row = fd_room_for(&scaler->row_room, row * sizeof(int16_t));
    scaler->rgbx = fd_room_for(&scaler->rgbx_room, rgbx);
    scaler->sums = fd_room_for(&scaler->sums_room, FD_SUMS * count * sizeof(int32_t));
    if (!scaler->row || !scaler->rgbx || !scaler->sums)
        return FD_NO_MEMORY;
    window[0] = across->begin;
    window[1] = down->begin;
    window[2] = across->end;
    window[3] = down->end;
    sink->state = scaler;
    if (scaler->few) {
        sink->row = take_row;
        sink->rows_kept = down->most;
    } else {
        sink->row = take_row_of_many;
        sink->rows_kept = FD_FEW_ROWS;
    }
    return FD_OK;
}

/* X is the next pixel's R, so the last pixel is copied separately. */
void fd_to_rgbx_plain(uint8_t *out, const uint8_t *rgb, size_t count) {
    for (size_t i = 0; i + 1 < count; i++)
        memcpy(out + 4 * i, rgb + 3 * i, 4);
    memcpy(out + 4 * (count - 1), rgb + 3 * (count - 1), 3);
}

void fd_scaler_free(fd_scaler *scaler) {
    fd_axis_free(&scaler->across);
    fd_axis_free(&scaler->down);
    fd_room_free(&scaler->sums_room);
    fd_room_free(&scaler->row_room);
    fd_room_free(&scaler->rgbx_room);
    fd_room_free(&scaler->weights_room);
    fd_twopass_free(&scaler->twopass);
}
