/* opencv.c: operations with the results of OpenCV's functions for bytes, as albumentations calls them.
 *
 * Rounding is OpenCV's, to the nearest integer, where its arithmetic is in floats.
 */
#include "augment.h"
#include "random.h"

#include <math.h>
#include <string.h>

INLINE uint8_t rounded(float value) {
    value = value > 0.0f ? value : 0.0f;
    return (uint8_t)(int32_t)rintf(value < 255.0f ? value : 255.0f);
}

INLINE uint8_t truncated(float value) {
    value = value > 0.0f ? value : 0.0f;
    return (uint8_t)(int32_t)(value < 255.0f ? value : 255.0f);
}

/* ---- levels ---- */

/* COLOR_RGB2GRAY */
INLINE uint32_t grey_of(const uint8_t *pixel) {
    return (pixel[0] * 9798U + pixel[1] * 19235U + pixel[2] * 3735U + (1U << 14)) >> 15;
}

INLINE void scale_levels_body(uint8_t *restrict bytes, size_t count, float factor, float summand) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = truncated((float)bytes[i] * factor + summand);
}

VARIANTS(scale_levels, scale_levels_body,
         (uint8_t *bytes, size_t count, float factor, float summand),
         (bytes, count, factor, summand))

/* The caller clears `sums`: of all levels, and of the grey ones. */
INLINE void add_up_body(const uint8_t *restrict pixels, size_t count, uint64_t *sums) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *pixel = pixels + 4 * i;
        sums[0] += (uint64_t)pixel[0] + pixel[1] + pixel[2];
        sums[1] += grey_of(pixel);
    }
}

VARIANTS(add_up, add_up_body, (const uint8_t *pixels, size_t count, uint64_t *sums),
         (pixels, count, sums))

void fd_levels(uint8_t *pixels, size_t count, const double *value) {
    uint64_t sums[2] = {0};
    double summand = value[1];

    if (value[2] != 0.0 || value[3] != 0.0) {
        add_up(pixels, count, sums);
        summand += value[2] * (double)sums[0] / (3.0 * (double)count);
        summand += value[3] * (double)sums[1] / (double)count;
    }
    scale_levels(pixels, 4 * count, (float)value[0], (float)summand);
}

INLINE void saturate_body(uint8_t *restrict pixels, size_t count, float factor, float rest) {
    for (size_t i = 0; i < count; i++) {
        uint8_t *pixel = pixels + 4 * i;
        float grey = rest * (float)grey_of(pixel);
        for (size_t c = 0; c < 3; c++)
            pixel[c] = rounded(factor * (float)pixel[c] + grey);
    }
}

VARIANTS(saturate, saturate_body, (uint8_t *pixels, size_t count, float factor, float rest),
         (pixels, count, factor, rest))

void fd_opencv_saturate(uint8_t *pixels, size_t count, double factor) {
    saturate(pixels, count, (float)factor, (float)(1.0 - factor));
}

/* ---- hue, saturation and value ---- */

enum { CIRCLE = 180, SHARE_BITS = 12 };

/* COLOR_HSV2RGB: hue in 180ths of the circle, saturation and value up to 255. OpenCV rounds the pixels at the
 * end of a row that do not fill a vector, and truncates the others, as this does. */
INLINE void write_colour(uint8_t *pixel, int32_t hue, int32_t share, int32_t most) {
    float place = (float)hue * (6.0f / CIRCLE), part = (float)share * (1.0f / 255.0f);
    int32_t sixth = (int32_t)place;
    float v = (float)most, f = place - (float)sixth;
    float p = v * (1.0f - part), q = v * (1.0f - part * f), t = v * (1.0f - part * (1.0f - f));
    float red = sixth == 0 || sixth >= 5 ? v : sixth == 1 ? q : sixth == 4 ? t : p;
    float green = sixth == 1 || sixth == 2 ? v : sixth == 3 ? q : sixth == 0 ? t : p;
    float blue = sixth == 3 || sixth == 4 ? v : sixth >= 5 ? q : sixth == 2 ? t : p;

    pixel[0] = truncated(red);
    pixel[1] = truncated(green);
    pixel[2] = truncated(blue);
}

/* What becomes of each hue, saturation and value; and the rounded reciprocals by which OpenCV multiplies
 * where others divide. */
typedef struct {
    uint8_t hues[256], shares[256], values[256];
    int32_t over_range[256], over_most[256];
} colours;

INLINE void change_colours_body(uint8_t *restrict pixels, size_t count, const colours *to) {
    for (size_t i = 0; i < count; i++) {
        uint8_t *pixel = pixels + 4 * i;
        int32_t r = pixel[0], g = pixel[1], b = pixel[2], most = r > g ? r : g;
        int32_t least = r < g ? r : g;
        most = most > b ? most : b;
        least = least < b ? least : b;
        int32_t range = most - least;
        int32_t sixth = most == r ? g - b : most == g ? b - r + 2 * range : r - g + 4 * range;
        int32_t half = 1 << (SHARE_BITS - 1);
        int32_t share = (range * to->over_most[most] + half) >> SHARE_BITS;
        int32_t hue = (sixth * to->over_range[range] + half) >> SHARE_BITS;
        hue += hue < 0 ? CIRCLE : 0;
        write_colour(pixel, to->hues[hue], to->shares[share], to->values[most]);
    }
}

VARIANTS(change_colours, change_colours_body, (uint8_t *pixels, size_t count, const colours *to),
         (pixels, count, to))

/* albumentations adds whole numbers to levels, and truncates others. */
INLINE uint8_t added(uint8_t level, float more) { return truncated((float)level + truncf(more)); }

void fd_shift_colours(uint8_t *pixels, size_t count, const double *value) {
    colours to;

    if (value[0] == 0.0 && value[1] == 0.0 && value[2] == 0.0)
        return;
    for (int32_t v = 0; v < 256; v++) {
        double turned = fmod(v + value[0], CIRCLE);
        to.hues[v] = (uint8_t)(turned < 0.0 ? turned + CIRCLE : turned);
        to.shares[v] = v == 0 ? 0 : added((uint8_t)v, (float)value[1]);
        to.values[v] = added((uint8_t)v, (float)value[2]);
        to.over_range[v] = v ? (int32_t)rint((CIRCLE << SHARE_BITS) / (6.0 * v)) : 0;
        to.over_most[v] = v ? (int32_t)rint((255 << SHARE_BITS) / (double)v) : 0;
    }
    change_colours(pixels, count, &to);
}

/* ---- filling and noise ---- */

void fd_fill_box(fd_canvas *canvas, const fd_operation *how) {
    size_t left = (size_t)how->value[0], top = (size_t)how->value[1];
    size_t width = (size_t)how->value[2], height = (size_t)how->value[3];

    for (size_t y = top; y < top + height; y++)
        for (size_t x = left; x < left + width; x++)
            memcpy(canvas->pixels + 4 * (y * (size_t)canvas->width + x), how->fill, 3);
}

void fd_add_noise(uint8_t *pixels, size_t count, const fd_operation *how) {
    fd_normal numbers = {.state = how->seed};
    float sigma = (float)how->value[0], mean = (float)how->value[1];

    for (size_t i = 0; i < count; i++) {
        float noise = 0.0f;
        for (size_t c = 0; c < 3; c++) {
            if (c == 0 || how->noise == FD_NOISE_PIXEL)
                noise = mean + sigma * fd_next_normal(&numbers);
            pixels[4 * i + c] = added(pixels[4 * i + c], noise);
        }
    }
}

/* ---- warps ---- */

/* The pixel at a place, which may lie outside; NULL is the fill. */
INLINE const uint8_t *pixel_at(const fd_canvas *canvas, int32_t x, int32_t y, int32_t mode) {
    if (x < 0 || x >= canvas->width || y < 0 || y >= canvas->height) {
        x = fd_padded(x, canvas->width, mode);
        y = fd_padded(y, canvas->height, mode);
        if (x < 0 || y < 0)
            return NULL;
    }
    return canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + x);
}

INLINE void write_bilinear(const fd_canvas *canvas, double x, double y, const uint8_t *fill,
                           int32_t mode, uint8_t *out) {
    int32_t column = (int32_t)x, row = (int32_t)y;
    column -= x < column;
    row -= y < row;
    float dx = (float)(x - column), dy = (float)(y - row), sums[3] = {0};

    if (column >= 0 && row >= 0 && column + 1 < canvas->width && row + 1 < canvas->height) {
        size_t stride = 4 * (size_t)canvas->width;
        const uint8_t *above = canvas->pixels + stride * (size_t)row + 4 * (size_t)column;
        const uint8_t *below = above + stride;
        for (int c = 0; c < 4; c++) {
            float upper = (1.0f - dx) * (float)above[c] + dx * (float)above[4 + c];
            float lower = (1.0f - dx) * (float)below[c] + dx * (float)below[4 + c];
            out[c] = rounded((1.0f - dy) * upper + dy * lower);
        }
        return;
    }
    for (int32_t k = 0; k < 4; k++) {
        const uint8_t *from = pixel_at(canvas, column + (k & 1), row + (k >> 1), mode);
        float weight = (k & 1 ? dx : 1.0f - dx) * (k >> 1 ? dy : 1.0f - dy);
        from = from == NULL ? fill : from;
        for (int c = 0; c < 3; c++)
            sums[c] += weight * (float)from[c];
    }
    for (int c = 0; c < 3; c++)
        out[c] = rounded(sums[c]);
}

INLINE void warp_body(const fd_canvas *canvas, const double *m, const fd_operation *how) {
    const double farthest = 1e8; /* such places fit an integer */
    uint8_t *out = canvas->other;
    int32_t mode = (int32_t)how->value[7];

    for (int32_t row = 0; row < canvas->out_height; row++)
        for (int32_t column = 0; column < canvas->out_width; column++, out += 4) {
            double x = m[0] * (column + 0.5) + m[1] * (row + 0.5) + m[2] - 0.5;
            double y = m[3] * (column + 0.5) + m[4] * (row + 0.5) + m[5] - 0.5;
            x = x < -farthest ? -farthest : x > farthest ? farthest : x;
            y = y < -farthest ? -farthest : y > farthest ? farthest : y;
            if (how->filter != FD_NEAREST) {
                write_bilinear(canvas, x, y, how->fill, mode, out);
                continue;
            }
            const uint8_t *from = pixel_at(canvas, (int32_t)rint(x), (int32_t)rint(y), mode);
            memcpy(out, from == NULL ? how->fill : from, 3);
        }
}

VARIANTS(warp, warp_body, (const fd_canvas *canvas, const double *m, const fd_operation *how),
         (canvas, m, how))

void fd_opencv_warp(fd_canvas *canvas, const double matrix[6], const fd_operation *how) {
    warp(canvas, matrix, how);
    fd_canvas_become(canvas);
}
