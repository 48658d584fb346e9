/* warp.c: affine transformations with the results of Pillow's Image.transform and Image.rotate.
 *
 * Without interpolation Pillow walks through the source in 16.16 fixed point; with it, in doubles, and
 * truncates the result. A pixel whose centre falls outside the source is `fill` and nothing else.
 */
#include "warp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

static void fill_pixels(uint8_t *out, int32_t count, const uint8_t fill[4]) {
    for (int32_t i = 0; i < count; i++)
        memcpy(out + 4 * (ptrdiff_t)i, fill, 4);
}

/* ---- nearest ---- */

static int64_t floor_divide(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

void fd_narrow(int64_t start, int64_t step, int64_t limit, int64_t *from, int64_t *to) {
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

/* The general case: both coordinates are linear in 16.16 fixed point. */
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
        fd_narrow(x, fixed[0], (int64_t)width << 16, &from, &to);
        fd_narrow(row, fixed[3], (int64_t)height << 16, &from, &to);
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

/* Pillow adds up doubles here. */
void fd_find_sources(int32_t *sources, int32_t count, double start, double step, int32_t limit) {
    double at = start + step * 0.5;

    for (int32_t i = 0; i < count; i++, at += step)
        sources[i] = at >= 0.0 && at < limit ? (int32_t)at : -1;
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

/* The three channels of a pixel. */
typedef struct {
    double c[3];
} pixel;

static pixel read_pixel(const uint8_t *at) { return (pixel){{at[0], at[1], at[2]}}; }

static double linear(double left, double right, double place) {
    return left + (right - left) * place;
}

static double cubic(double a, double b, double c, double d, double place) {
    double p2 = -a + c, p3 = 2.0 * (a - b) + c - d, p4 = -a + b - c + d;

    return b + place * (p2 + place * (p3 + place * p4));
}

static pixel linear_pixel(pixel left, pixel right, double place) {
    for (int c = 0; c < 3; c++)
        left.c[c] = linear(left.c[c], right.c[c], place);
    return left;
}

static pixel cubic_pixel(const pixel *four, double place) {
    pixel made;

    for (int c = 0; c < 3; c++)
        made.c[c] = cubic(four[0].c[c], four[1].c[c], four[2].c[c], four[3].c[c], place);
    return made;
}

static pixel bilinear(const fd_canvas *canvas, int32_t x, int32_t y, double dx, double dy) {
    pixel rows[2];

    for (int i = 0; i < 2; i++)
        rows[i] = linear_pixel(read_pixel(fd_pixel(canvas, x, y + i)),
                               read_pixel(fd_pixel(canvas, x + 1, y + i)), dx);
    return linear_pixel(rows[0], rows[1], dy);
}

static pixel bicubic(const fd_canvas *canvas, int32_t x, int32_t y, double dx, double dy) {
    pixel rows[4], four[4];

    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++)
            four[k] = read_pixel(fd_pixel(canvas, x - 1 + k, y - 1 + i));
        rows[i] = cubic_pixel(four, dx);
    }
    return cubic_pixel(rows, dy);
}

static void write_truncated(uint8_t *out, const pixel *made) {
    for (int c = 0; c < 3; c++) /* as in Pillow */
        out[c] = (uint8_t)(made->c[c] <= 0.0 ? 0 : made->c[c] >= 255.0 ? 255 : (int32_t)made->c[c]);
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
            pixel made = (is_cubic ? bicubic : bilinear)(canvas, at.x[i], at.y[i], at.dx[i],
                                                         at.dy[i]);
            write_truncated(out, &made);
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

/* Each row has pixels outside, then some at the border, then those of a run, and so on. */
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
            fd_narrow(run.x + one, run.right, width + one, &seen, &unseen);
            fd_narrow(run.y + one, run.down, height + one, &seen, &unseen);
        }
        int64_t from = seen, to = unseen;
        fd_narrow(run.x, run.right, width - one, &from, &to);
        fd_narrow(run.y, run.down, height - one, &from, &to);
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

/* Whether each pixel of the result is one of the source, so that interpolation changes nothing. */
static int moves_whole_pixels(const double m[6]) {
    return m[0] == 1.0 && m[1] == 0.0 && m[3] == 0.0 && m[4] == 1.0 && m[2] == rint(m[2]) &&
           m[5] == rint(m[5]);
}

/* Beyond it Pillow's own arithmetic changes. */
static int is_small(const fd_canvas *canvas) {
    enum { LARGEST_SIDE = 16384 };

    return canvas->width <= LARGEST_SIDE && canvas->height <= LARGEST_SIDE;
}

static int warp_by(fd_canvas *canvas, const double matrix[6], const fd_operation *how) {
    const uint8_t *fill = how->fill;
    double m[FD_VALUES] = {0.0};
    int grows = canvas->out_width != canvas->width || canvas->out_height != canvas->height;
    int status = FD_OK;

    if (!is_small(canvas))
        return FD_ARGUMENT;
    memcpy(m, matrix, 6 * sizeof *m);
    if (how->library == FD_TORCHVISION && !moves_whole_pixels(matrix)) {
        fd_tensor_warp(canvas, m, how);
        return FD_OK;
    }
    if (how->library == FD_OPENCV) {
        fd_opencv_warp(canvas, matrix, how);
        return FD_OK;
    }
    if (how->filter != FD_NEAREST && (grows || !moves_whole_pixels(matrix)))
        fd_kernels_now()->warp_smooth(canvas, m, how->filter == FD_BICUBIC, fill);
    else if (matrix[1] == 0.0 && matrix[3] == 0.0 && !grows && !moves_whole_pixels(matrix))
        status = warp_straight(canvas, matrix, fill);
    else
        warp_fixed(canvas, matrix, fill);
    if (status == FD_OK)
        fd_canvas_become(canvas);
    return status;
}

int fd_warp(fd_canvas *canvas, const fd_operation *how) {
    return warp_by(canvas, how->matrix, how);
}

/* ---- perspective ---- */

int fd_perspective(fd_canvas *canvas, const fd_operation *how) {
    const double *m = how->matrix;
    uint8_t *out = canvas->other;

    if (!is_small(canvas))
        return FD_ARGUMENT;
    if (how->library == FD_TORCHVISION) {
        fd_tensor_warp(canvas, m, how);
        return FD_OK;
    }
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

/* ---- rotation ---- */

/* Turn by a quarter to the left, `quarters` times; Pillow then moves pixels and ignores the filter. */
static void turn(fd_canvas *canvas, int quarters) {
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

/* Python's round(value, 15). */
static double rounded(double value) {
    char digits[40];

    snprintf(digits, sizeof digits, "%.15f", value);
    return strtod(digits, NULL);
}

/* An angle from 0 up to 360 degrees. */
static double angle_of(double degrees) {
    double angle = fmod(degrees, 360.0);

    return angle < 0.0 ? angle + 360.0 : angle;
}

/* Set the matrix that turns an image about a point. */
static void set_rotation(double m[6], double angle, double x, double y) {
    double radians = -(angle * (PI / 180.0));

    m[0] = m[4] = rounded(cos(radians));
    m[1] = rounded(sin(radians));
    m[3] = rounded(-sin(radians));
    m[2] = m[0] * -x + m[1] * -y + x;
    m[5] = m[3] * -x + m[4] * -y + y;
}

void fd_turned_size(const fd_operation *how, int32_t *width, int32_t *height) {
    double angle = angle_of(how->rotate.degrees), w = *width, h = *height, m[6];
    const double corners[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    double left = HUGE_VAL, right = -HUGE_VAL, top = HUGE_VAL, bottom = -HUGE_VAL;

    if (fmod(angle, 90.0) == 0.0 && how->rotate.grows != 2.0) {
        *width = (int32_t)(fmod(angle, 180.0) == 0.0 ? w : h);
        *height = (int32_t)(fmod(angle, 180.0) == 0.0 ? h : w);
        return;
    }
    set_rotation(m, angle, w / 2.0 + how->rotate.right, h / 2.0 + how->rotate.down);
    for (int i = 0; i < 4; i++) {
        double x = m[0] * corners[i][0] + m[1] * corners[i][1] + m[2];
        double y = m[3] * corners[i][0] + m[4] * corners[i][1] + m[5];
        left = fmin(left, x);
        right = fmax(right, x);
        top = fmin(top, y);
        bottom = fmax(bottom, y);
    }
    *width = (int32_t)(ceil(right) - floor(left));
    *height = (int32_t)(ceil(bottom) - floor(top));
}

int fd_rotate(fd_canvas *canvas, const fd_operation *how) {
    int turns = canvas->width == canvas->height || how->rotate.grows != 0.0;
    double angle = angle_of(how->rotate.degrees), m[6];
    double right_by = how->rotate.right, down_by = how->rotate.down;

    if (angle == 0.0 && how->rotate.grows != 2.0)
        return FD_OK;
    if (right_by == 0.0 && down_by == 0.0 && how->rotate.grows != 2.0 &&
        (angle == 180.0 || (turns && (angle == 90.0 || angle == 270.0)))) {
        turn(canvas, (int)(angle / 90.0));
        return FD_OK;
    }
    set_rotation(m, angle, canvas->width / 2.0 + right_by, canvas->height / 2.0 + down_by);
    double x = -(canvas->out_width - canvas->width) / 2.0;
    double y = -(canvas->out_height - canvas->height) / 2.0, right = m[2], below = m[5];
    m[2] = m[0] * x + m[1] * y + right;
    m[5] = m[3] * x + m[4] * y + below;
    return warp_by(canvas, m, how);
}

/* ---- turning, moving, scaling and shearing ---- */

/* albumentations': about the centre, first scale, then turn counter-clockwise, shear, and move. */
static int set_opencv_affine(double m[6], const fd_operation *how, double x, double y) {
    const double degree = PI / 180.0, wider = how->opencv_affine.scale_across;
    const double higher = how->opencv_affine.scale_down;
    double turn = how->opencv_affine.degrees * degree, c = cos(turn), s = sin(turn);
    double shear_x = tan(how->opencv_affine.shear_across * degree);
    double shear_y = tan(how->opencv_affine.shear_down * degree);
    double a = (c - shear_x * s) * wider, b = (s + shear_x * c) * higher;
    double d = (shear_y * c - s) * wider, e = (shear_y * s + c) * higher, whole = a * e - b * d;
    double right = -x - how->opencv_affine.right, below = -y - how->opencv_affine.down;

    m[0] = e / whole;
    m[1] = -b / whole;
    m[3] = -d / whole;
    m[4] = a / whole;
    m[2] = m[0] * right + m[1] * below + x;
    m[5] = m[3] * right + m[4] * below + y;
    return fabs(whole) > 1e-9;
}

/* torchvision's: the matrix of its documentation, inverted, in the order of operations of its v2. */
static int set_affine(double m[6], const fd_operation *how, double x, double y) {
    const double degree = PI / 180.0, scale = how->affine.scale;
    double turn = how->affine.degrees * degree, shear_y = how->affine.shear_down * degree;
    double shear_x = tan(how->affine.shear_across * degree);
    x += how->affine.centre_right;
    y += how->affine.centre_down;
    double right = x + how->affine.right, below = y + how->affine.down;
    double a = cos(turn - shear_y) / cos(shear_y), c = sin(turn - shear_y) / cos(shear_y);

    m[0] = (cos(turn) - c * shear_x) / scale;
    m[1] = (a * shear_x + sin(turn)) / scale;
    m[3] = -c / scale;
    m[4] = a / scale;
    m[2] = x - m[0] * right - m[1] * below;
    m[5] = y - m[3] * right - m[4] * below;
    return scale > 0.0;
}

int fd_affine(fd_canvas *canvas, const fd_operation *how) {
    double m[6], x = canvas->width * 0.5, y = canvas->height * 0.5;
    int is_good = how->library == FD_OPENCV ? set_opencv_affine(m, how, x, y)
                                            : set_affine(m, how, x, y);

    for (int i = 0; i < 6; i++)
        is_good &= fabs(m[i]) < FD_LARGEST_NUMBER;
    return is_good ? warp_by(canvas, m, how) : FD_ARGUMENT;
}
