/* reshape.c: operations that change the size of an image: crop, pad and resize. */
#include "augment.h"

#include <math.h>
#include <string.h>

enum { LARGEST_SIDE = 65500, MOST = 1 << 30 /* of a size that is only a step to another one */ };

static int is_whole(double number, double least, double most) {
    return number >= least && number <= most && number == rint(number);
}

/* Whether the box of an operation lies in an image; it may be empty. */
static int is_inside(const fd_operation *of, double width, double height) {
    return is_whole(of->box.left, 0, width) && is_whole(of->box.top, 0, height) &&
           is_whole(of->box.width, 0, width - of->box.left) &&
           is_whole(of->box.height, 0, height - of->box.top);
}

int fd_resized_by(const fd_operation *operation, int32_t *width, int32_t *height) {
    double across = *width, down = *height;

    if (operation->kind == FD_ROTATE && operation->rotate.grows != 0.0) {
        if (*width > LARGEST_SIDE || *height > LARGEST_SIDE ||
            !(fabs(operation->rotate.degrees) < FD_LARGEST_NUMBER) || /* NaN, too */
            !(fabs(operation->rotate.right) < FD_LARGEST_NUMBER) ||
            !(fabs(operation->rotate.down) < FD_LARGEST_NUMBER))
            return 0;
        fd_turned_size(operation, width, height);
        across = *width;
        down = *height;
    } else if (operation->kind == FD_RESIZE) {
        int grows = operation->resize.width > across || operation->resize.height > down;
        int shrinks = operation->resize.width < across || operation->resize.height < down;
        if (operation->filter == FD_FILTER_AREA && grows && shrinks)
            return 0; /* OpenCV then interpolates in yet another way */
        across = operation->resize.width;
        down = operation->resize.height;
    } else if (operation->kind == FD_FILL) {
        return is_inside(operation, across, down);
    } else if (operation->kind == FD_CROP) {
        if (!is_inside(operation, across, down))
            return 0;
        across = operation->box.width;
        down = operation->box.height;
    } else if (operation->kind == FD_PAD) {
        for (int i = 0; i < 4; i++)
            if (!is_whole(operation->value[i], 0, LARGEST_SIDE))
                return 0;
        across += operation->pad.left + operation->pad.right;
        down += operation->pad.top + operation->pad.bottom;
    }
    if (!is_whole(across, 1, MOST) || !is_whole(down, 1, MOST))
        return 0;
    *width = (int32_t)across;
    *height = (int32_t)down;
    return 1;
}

int fd_crop(fd_canvas *canvas, const fd_operation *how) {
    size_t stride = 4 * (size_t)canvas->width, row = 4 * (size_t)canvas->out_width;
    const uint8_t *from = canvas->pixels + stride * (size_t)how->box.top +
                          4 * (size_t)how->box.left;

    for (size_t y = 0; y < (size_t)canvas->out_height; y++)
        memcpy(canvas->other + row * y, from + stride * y, row);
    fd_canvas_become(canvas);
    return FD_OK;
}

/* ---- padding ---- */

int32_t fd_padded(int32_t at, int32_t count, int32_t mode) {
    int32_t period = mode == FD_PAD_REFLECT ? 2 * (count - 1) : 2 * count;

    if (at >= 0 && at < count)
        return at;
    if (mode == FD_PAD_CONSTANT)
        return -1;
    if (mode == FD_PAD_EDGE || period == 0)
        return at < 0 ? 0 : count - 1;
    at = (at % period + period) % period;
    return at < count ? at : mode == FD_PAD_REFLECT ? period - at : period - 1 - at;
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

int fd_scale(fd_canvas *canvas, fd_resampler *resampler, const fd_operation *how) {
    int32_t width = canvas->width, height = canvas->height;

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
    int status = fd_resample(resampler, canvas->pixels, width, &resize, canvas->other);
    if (status == FD_OK)
        fd_canvas_become(canvas);
    return status;
}
