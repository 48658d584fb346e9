/* warp.c: affine transformations with the results of Pillow's Image.transform and Image.rotate.
 *
 * Without interpolation Pillow walks through the source in 16.16 fixed point; with it, in doubles, and
 * truncates the result. A pixel whose centre falls outside the source is `fill` and nothing else.
 */
#include "warp.h"

#include <math.h>
#include <string.h>

static void fill_pixels(uint8_t *out, int32_t count, const uint8_t fill[4]) {
    for (int32_t i = 0; i < count; i++)
        memcpy(out + 4 * (ptrdiff_t)i, fill, 4);
}

/* ---- nearest ---- */

static int64_t floor_divide(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

/* Narrow [*from, *to) to the steps k for which 0 <= start + k * step < limit. */
static void narrow(int64_t start, int64_t step, int64_t limit, int64_t *from, int64_t *to) {
    int64_t low = 0, high = *to;

    if (step == 0)
        high = start >= 0 && start < limit ? high : 0;
    else if (step > 0) {
        low = -floor_divide(start, step);
        high = -floor_divide(start - limit, step);
    } else {
        low = floor_divide(start - limit, -step) + 1;
        high = floor_divide(start, -step) + 1;
    }
    *from = low > *from ? low : *from;
    *to = high < *to ? high : *to;
}

/* Copy pixels from places in the source, which all exist, in 16.16 fixed point. */
VARIANTS(copy_run,
         (uint8_t *restrict out, const uint8_t *restrict pixels, size_t count, uint32_t width,
          uint32_t x, uint32_t y, uint32_t right, uint32_t down),
         (out, pixels, count, width, x, y, right, down)) {
    enum { RUN = 64 };
    uint32_t places[RUN];

    for (size_t from = 0; from < count; from += RUN, x += RUN * right, y += RUN * down) {
        size_t part = count - from < RUN ? count - from : RUN;
        for (uint32_t i = 0; i < RUN; i++)
            places[i] = ((y + i * down) >> 16) * width + ((x + i * right) >> 16);
        for (size_t i = 0; i < part; i++)
            memcpy(out + 4 * (from + i), pixels + 4 * (size_t)places[i], 4);
    }
}

/* The general case, Pillow's affine_fixed (Geometry.c): the place of pixel (x, y) is linear in x and y, and
 * its 16.16 fixed point rounds the six numbers once, so columns of a row are steps of integers. Instead of a
 * test for each pixel, solve for the columns that lie inside: fill, copy, fill. */
static void warp_fixed(fd_canvas *canvas, const double m[6], const uint8_t fill[4]) {
    int32_t width = canvas->width, height = canvas->height, across = canvas->out_width;
    int64_t fixed[6];

    for (int i = 0; i < 6; i++) {
        double value = i % 3 == 2 ? m[i] + m[i - 2] * 0.5 + m[i - 1] * 0.5 : m[i];
        fixed[i] = (int64_t)floor(value * 65536.0 + 0.5);
    }
    for (int64_t y = 0; y < canvas->out_height; y++) {
        uint8_t *out = canvas->other + 4 * (size_t)across * (size_t)y;
        int64_t x = fixed[2] + fixed[1] * y, row = fixed[5] + fixed[4] * y;
        int64_t from = 0, to = across;
        narrow(x, fixed[0], (int64_t)width << 16, &from, &to);
        narrow(row, fixed[3], (int64_t)height << 16, &from, &to);
        if (from >= to) {
            fill_pixels(out, across, fill);
            continue;
        }
        fill_pixels(out, (int32_t)from, fill);
        if (fixed[0] == 65536 && fixed[3] == 0)
            memcpy(out + 4 * from,
                   canvas->pixels + 4 * ((row >> 16) * width + ((x + (from << 16)) >> 16)),
                   4 * (size_t)(to - from));
        else
            copy_run(out + 4 * from, canvas->pixels, (size_t)(to - from), (uint32_t)width,
                     (uint32_t)(x + from * fixed[0]), (uint32_t)(row + from * fixed[3]),
                     (uint32_t)fixed[0], (uint32_t)fixed[3]);
        fill_pixels(out + 4 * to, across - (int32_t)to, fill);
    }
}

/* Without rotation and shear. */
static int warp_straight(fd_canvas *canvas, const double m[6], const uint8_t fill[4]) {
    int32_t width = canvas->width, height = canvas->height;
    int32_t *sources = fd_room_for(&canvas->scratch, (size_t)(width + height) * sizeof *sources);

    if (sources == NULL)
        return FD_NO_MEMORY;
    int32_t *rows = sources + width;
    fd_find_sources(sources, width, m[2], m[0], width);
    fd_find_sources(rows, height, m[5], m[4], height);
    for (int32_t y = 0; y < height; y++) {
        uint8_t *out = canvas->other + 4 * (size_t)width * (size_t)y;
        const uint8_t *row = canvas->pixels + 4 * (ptrdiff_t)width * rows[y];
        if (rows[y] < 0) {
            fill_pixels(out, width, fill);
            continue;
        }
        for (int32_t x = 0; x < width; x++)
            memcpy(out + 4 * (ptrdiff_t)x, sources[x] < 0 ? fill : row + 4 * (ptrdiff_t)sources[x],
                   4);
    }
    return FD_OK;
}

/* ---- bilinear and bicubic ---- */

/* Of two numbers, or of four. */
static double between(const double *of, double place, int is_cubic) {
    if (!is_cubic)
        return of[0] + (of[1] - of[0]) * place;
    double p2 = -of[0] + of[2], p3 = 2.0 * (of[0] - of[1]) + of[2] - of[3];
    double p4 = -of[0] + of[1] - of[2] + of[3];

    return of[1] + place * (p2 + place * (p3 + place * p4));
}

/* Channel `c` at a place of the source, of its 4 or 16 neighbours. */
static double level_at(const fd_canvas *canvas, const fd_places *at, int32_t i, int c,
                       int is_cubic) {
    const int32_t side = is_cubic ? 4 : 2, before = is_cubic ? 1 : 0;
    double rows[4], row[4];

    for (int32_t y = 0; y < side; y++) {
        for (int32_t x = 0; x < side; x++)
            row[x] = fd_pixel(canvas, at->x[i] - before + x, at->y[i] - before + y)[c];
        rows[y] = between(row, at->dx[i], is_cubic);
    }
    return between(rows, at->dy[i], is_cubic);
}

void fd_warp_smooth_plain(const fd_canvas *canvas, const double *m, int is_cubic,
                          const uint8_t *fill) {
    uint8_t *out = canvas->other;
    fd_places at;

    for (int32_t y = 0; y < canvas->out_height; y++)
        for (int32_t x = 0; x < canvas->out_width; x++, out += 4) {
            int32_t i = x % FD_PLACES;
            if (i == 0)
                fd_find_places(canvas, m, x, y, &at);
            if (!at.is_inside[i]) {
                memcpy(out, fill, 4);
                continue;
            }
            for (int c = 0; c < 3; c++) { /* truncated as in Pillow */
                double level = level_at(canvas, &at, i, c, is_cubic);
                out[c] = (uint8_t)(level <= 0.0 ? 0 : level >= 255.0 ? 255 : (int32_t)level);
            }
        }
}

/* ---- bilinear, in fixed point ---- */

void fd_blend_run_plain(uint8_t *restrict out, const fd_canvas *canvas, fd_run run, int32_t count) {
    const ptrdiff_t stride = 4 * (ptrdiff_t)canvas->width;

    for (int32_t i = 0; i < count; i++, run.x += run.right, run.y += run.down, out += 4) {
        const uint8_t *above = fd_run_pixel(canvas, &run), *below = above + stride;
        int32_t dx = fd_share(run.x), dy = fd_share(run.y);
        for (int c = 0; c < 4; c++) {
            int32_t upper = above[c] * (FD_WHOLE - dx) + above[4 + c] * dx;
            int32_t lower = below[c] * (FD_WHOLE - dx) + below[4 + c] * dx;
            int32_t sum = (upper >> FD_LESS_BITS) * (FD_WHOLE - dy) + (lower >> FD_LESS_BITS) * dy;
            out[c] = (uint8_t)((sum + (1 << (FD_SUM_BITS - 1))) >> FD_SUM_BITS);
        }
    }
}

/* Each row has pixels outside, then some at the border, then those of a run, and so on: the columns from
 * which each part begins are solved for, as in warp_fixed. */
void fd_warp_in_runs(const fd_canvas *canvas, const double *m, const uint8_t *outside,
                     fd_write_pixel *write_pixel, const fd_operation *how) {
    const int64_t one = 1 << FD_PLACE_BITS, across = canvas->out_width;
    const int64_t width = canvas->width * one, height = canvas->height * one;
    fd_blend_run *blend_run = fd_kernels_now()->blend_run;
    uint8_t *out = canvas->other;
    int64_t fixed[6];

    for (int i = 0; i < 6; i++) {
        double value = i % 3 == 2 ? m[i] + (m[i - 2] + m[i - 1] - 1.0) * 0.5 : m[i];
        fixed[i] = (int64_t)floor(value * (double)one + 0.5);
    }
    for (int32_t y = 0; y < canvas->out_height; y++, out += 4 * across) {
        fd_run run = {fixed[2] + fixed[1] * y, fixed[5] + fixed[4] * y, fixed[0], fixed[3]};
        int64_t seen = 0, unseen = across;
        if (outside != NULL) {
            narrow(run.x + one, run.right, width + one, &seen, &unseen);
            narrow(run.y + one, run.down, height + one, &seen, &unseen);
        }
        int64_t from = seen, to = unseen;
        narrow(run.x, run.right, width - one, &from, &to);
        narrow(run.y, run.down, height - one, &from, &to);
        if (seen >= unseen)
            seen = unseen = across;
        if (from >= to)
            from = to = unseen;
        fill_pixels(out, (int32_t)seen, outside);
        for (int64_t x = seen; x < from; x++)
            write_pixel(out + 4 * x, canvas, m, (int32_t)x, y, how);
        run.x += run.right * from;
        run.y += run.down * from;
        blend_run(out + 4 * from, canvas, run, (int32_t)(to - from));
        for (int64_t x = to; x < unseen; x++)
            write_pixel(out + 4 * x, canvas, m, (int32_t)x, y, how);
        fill_pixels(out + 4 * unseen, (int32_t)(across - unseen), outside);
    }
}

/* ---- the choice ---- */

int fd_pillow_warp(fd_canvas *canvas, const fd_operation *how) {
    const double *m = how->matrix;
    int grows = canvas->out_width != canvas->width || canvas->out_height != canvas->height;
    int status = FD_OK;

    if (how->filter != FD_NEAREST && (grows || !fd_moves_whole_pixels(m)))
        fd_kernels_now()->warp_smooth(canvas, m, how->filter == FD_BICUBIC, how->fill);
    else if (m[1] == 0.0 && m[3] == 0.0 && !grows && !fd_moves_whole_pixels(m))
        status = warp_straight(canvas, m, how->fill);
    else
        warp_fixed(canvas, m, how->fill);
    if (status == FD_OK)
        fd_canvas_become(canvas);
    return status;
}

/* ---- perspective ---- */

int fd_pillow_perspective(fd_canvas *canvas, const fd_operation *how) {
    const double *m = how->matrix;
    uint8_t *out = canvas->other;

    if (how->filter != FD_NEAREST) {
        fd_kernels_now()->warp_smooth(canvas, m, how->filter == FD_BICUBIC, how->fill);
        fd_canvas_swap(canvas);
        return FD_OK;
    }
    for (int32_t row = 0; row < canvas->height; row++)
        for (int32_t column = 0; column < canvas->width; column++, out += 4) {
            double x = column + 0.5, y = row + 0.5, over = m[6] * x + m[7] * y + 1;
            double across = (m[0] * x + m[1] * y + m[2]) / over;
            double down = (m[3] * x + m[4] * y + m[5]) / over;
            int is_inside = across >= 0 && across < canvas->width && down >= 0 &&
                            down < canvas->height;
            memcpy(out, is_inside ? fd_pixel(canvas, (int32_t)across, (int32_t)down) : how->fill,
                   4);
        }
    fd_canvas_swap(canvas);
    return FD_OK;
}
