/* reshape.c: operations that move whole pixels: crop, pad, mirror, turn and resize. */
#include "operations.h"

#include <math.h>
#include <string.h>

int fd_crop(fd_canvas *canvas, const fd_operation *how) {
    size_t stride = 4 * (size_t)canvas->width, row = 4 * (size_t)canvas->out_width;
    const uint8_t *from = canvas->pixels + stride * (size_t)how->box.top +
                          4 * (size_t)how->box.left;

    for (size_t y = 0; y < (size_t)canvas->out_height; y++)
        memcpy(canvas->other + row * y, from + stride * y, row);
    fd_canvas_become(canvas);
    return FD_OK;
}

int fd_pad(fd_canvas *canvas, const fd_operation *how) {
    int32_t left = (int32_t)how->pad.left, top = (int32_t)how->pad.top, mode = how->filter;
    int32_t width = canvas->width, across = canvas->out_width;
    uint8_t *out = canvas->other;

    if (across == width && canvas->out_height == canvas->height)
        return FD_OK;
    for (int32_t y = 0; y < canvas->out_height; y++, out += 4 * (size_t)across) {
        int32_t row = fd_padded(y - top, canvas->height, mode);
        const uint8_t *from = row < 0 ? NULL : canvas->pixels + 4 * (size_t)row * (size_t)width;
        for (int32_t x = 0; x < across; x++) {
            if (x == left && row >= 0) { /* the image itself */
                memcpy(out + 4 * (size_t)x, from, 4 * (size_t)width);
                x += width - 1;
                continue;
            }
            int32_t column = row < 0 ? -1 : fd_padded(x - left, width, mode);
            memcpy(out + 4 * (size_t)x, column < 0 ? how->fill : from + 4 * (size_t)column, 4);
        }
    }
    fd_canvas_become(canvas);
    return FD_OK;
}

/* ---- mirroring ---- */

int fd_mirror(fd_canvas *canvas, const fd_operation *how) {
    size_t width = (size_t)canvas->width;

    (void)how;
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        fd_mirror_row(canvas->other + 4 * width * y, canvas->pixels + 4 * width * y, width);
    fd_canvas_swap(canvas);
    return FD_OK;
}

int fd_turn_over(fd_canvas *canvas, const fd_operation *how) {
    size_t stride = 4 * (size_t)canvas->width, height = (size_t)canvas->height;

    (void)how;
    for (size_t y = 0; y < height; y++)
        memcpy(canvas->other + stride * y, canvas->pixels + stride * (height - 1 - y), stride);
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* Turn by a quarter to the left, `quarters` times; Pillow then moves pixels and ignores the filter. */
void fd_turn_quarters(fd_canvas *canvas, int quarters) {
    ptrdiff_t width = canvas->width, height = canvas->height;
    ptrdiff_t across = quarters == 2 ? width : height, down = quarters == 2 ? height : width;

    for (ptrdiff_t y = 0; y < down; y++)
        for (ptrdiff_t x = 0; x < across; x++) {
            ptrdiff_t column = quarters == 1 ? width - 1 - y : quarters == 2 ? width - 1 - x : y;
            ptrdiff_t row = quarters == 1 ? x : quarters == 2 ? height - 1 - y : height - 1 - x;
            memcpy(canvas->other + 4 * (y * across + x),
                   canvas->pixels + 4 * (row * width + column), 4);
        }
    fd_canvas_become(canvas);
}

/* ---- resizing ---- */

/* torch's and OpenCV's: from the beginning of each pixel, torch's in float32. */
static void find_beginnings(int32_t *sources, int32_t count, int32_t limit, int32_t library) {
    float step = (float)limit / (float)count;
    double finer = 1.0 / ((double)count / limit);

    for (int32_t i = 0; i < count; i++) {
        double at = library == FD_OPENCV ? floor(i * finer) : floorf((float)i * step);
        sources[i] = at < limit ? (int32_t)at : limit - 1;
    }
}

/* Make an image of pixels of some columns and rows; of -1, which is outside, they are black. */
static void pick(fd_canvas *canvas, const int32_t *columns, const int32_t *rows) {
    static const uint8_t black[4];
    uint8_t *out = canvas->other;

    for (int32_t y = 0; y < canvas->out_height; y++)
        for (int32_t x = 0; x < canvas->out_width; x++, out += 4) {
            size_t at = (size_t)rows[y] * (size_t)canvas->width + (size_t)columns[x];
            memcpy(out, rows[y] < 0 || columns[x] < 0 ? black : canvas->pixels + 4 * at, 4);
        }
    fd_canvas_become(canvas);
}

static int scale_nearest(fd_canvas *canvas, const fd_operation *how) {
    int32_t width = canvas->out_width, height = canvas->out_height;
    int32_t *columns = fd_room_for(&canvas->scratch, (size_t)(width + height) * sizeof *columns);

    if (columns == NULL)
        return FD_NO_MEMORY;
    int32_t *rows = columns + width;
    if (how->library != FD_PILLOW) {
        find_beginnings(columns, width, canvas->width, how->library);
        find_beginnings(rows, height, canvas->height, how->library);
    } else {
        fd_find_sources(columns, width, 0.0, (double)canvas->width / width, canvas->width);
        fd_find_sources(rows, height, 0.0, (double)canvas->height / height, canvas->height);
    }
    pick(canvas, columns, rows);
    return FD_OK;
}

int fd_downscale(fd_canvas *canvas, const fd_operation *how) {
    const int32_t sides[2] = {canvas->width, canvas->height};
    size_t count = (size_t)(sides[0] + sides[1]);
    int32_t *sources = fd_room_for(&canvas->scratch, count * sizeof *sources), *at = sources;

    if (sources == NULL)
        return FD_NO_MEMORY;
    for (int axis = 0; axis < 2; axis++, at += sides[0]) { /* across, down */
        int32_t small = (int32_t)rint(sides[axis] * how->scale), limit = sides[axis] - 1;
        if (small < 1)
            return FD_ARGUMENT;
        find_beginnings(at, sides[axis], small, FD_OPENCV);
        for (int32_t i = 0; i < sides[axis]; i++) {
            double place = floor(at[i] * (1.0 / how->scale));
            at[i] = place < limit ? (int32_t)place : limit;
        }
    }
    pick(canvas, sources, sources + sides[0]);
    return FD_OK;
}

/* Keep a row of the result. */
static void keep_row(void *state, int32_t y, const uint8_t *rgbx) {
    const fd_canvas *canvas = state;
    size_t stride = 4 * (size_t)canvas->out_width;

    memcpy(canvas->other + stride * (size_t)y, rgbx, stride);
}

int fd_scale(fd_canvas *canvas, fd_scaler *scaler, const fd_operation *how) {
    int32_t width = canvas->width, height = canvas->height, window[4];
    fd_sink sink;

    if (canvas->out_width == width && canvas->out_height == height)
        return FD_OK;
    if (how->filter == FD_FILTER_NEAREST)
        return scale_nearest(canvas, how);
    const fd_resize resize = {.right = width,
                              .bottom = height,
                              .in_right = width,
                              .in_bottom = height,
                              .canvas_width = canvas->out_width,
                              .canvas_height = canvas->out_height,
                              .width = canvas->out_width,
                              .height = canvas->out_height,
                              .filter = how->filter};
    int status = fd_scaler_begin(scaler, &resize, keep_row, canvas, window, &sink);
    for (int32_t y = window[1]; status == FD_OK && y < window[3]; y++) {
        size_t at = (size_t)y * (size_t)width + (size_t)window[0];
        sink.row(sink.state, y - window[1], canvas->pixels + 4 * at);
    }
    if (status == FD_OK)
        fd_canvas_become(canvas);
    return status;
}
