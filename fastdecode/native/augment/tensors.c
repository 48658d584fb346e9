/* tensors.c: augmentations with the results of torchvision's functions for tensors of bytes, where these
 * are not within 1 level of Pillow's.
 *
 * All arithmetic is in float32, as there; only places in a source image are computed in doubles.
 */
#include "warp.h"

#include <math.h>
#include <string.h>

INLINE uint32_t limited(float value) { return fd_level((int32_t)value); }

INLINE float as_float(uint32_t number) { return (float)(int32_t)number; }

/* The luminance, rounded down. */
INLINE int32_t luminance(uint32_t pixel) {
    return (int32_t)(0.2989f * as_float(pixel & 255) + 0.587f * as_float(pixel >> 8 & 255) +
                     0.114f * as_float(pixel >> 16 & 255));
}

INLINE void save_mix(uint8_t *pixels, size_t i, uint32_t pixel, float factor, float level) {
    fd_save_pixel(pixels, i, limited(factor * as_float(pixel & 255) + level),
                  limited(factor * as_float(pixel >> 8 & 255) + level),
                  limited(factor * as_float(pixel >> 16 & 255) + level));
}

VARIANTS(mix_with_grey, (uint8_t *restrict pixels, size_t count, float factor, float rest),
         (pixels, count, factor, rest)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        save_mix(pixels, i, pixel, factor, rest * (float)luminance(pixel));
    }
}

int fd_tensor_saturate(fd_canvas *canvas, const fd_operation *how) {
    mix_with_grey(canvas->pixels, fd_count_pixels(canvas), (float)how->amount,
                  (float)(1.0 - how->amount));
    return FD_OK;
}

int fd_tensor_grey(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    mix_with_grey(canvas->pixels, fd_count_pixels(canvas), 0.0f, 1.0f);
    return FD_OK;
}

VARIANTS(sum_luminance, (const uint8_t *restrict pixels, size_t count, uint64_t *total),
         (pixels, count, total)) {
    for (size_t i = 0; i < count; i++)
        *total += (uint64_t)luminance(fd_load_pixel(pixels, i));
}

VARIANTS(mix_with_level, (uint8_t *restrict pixels, size_t count, float factor, float level),
         (pixels, count, factor, level)) {
    for (size_t i = 0; i < count; i++)
        save_mix(pixels, i, fd_load_pixel(pixels, i), factor, level);
}

int fd_tensor_contrast(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint64_t total = 0;

    sum_luminance(canvas->pixels, count, &total);
    float mean = (float)((double)total / (double)count);
    mix_with_level(canvas->pixels, count, (float)how->amount, (float)(1.0 - how->amount) * mean);
    return FD_OK;
}

/* ---- hue ---- */

/* The hue of a pixel, from 0 to 1, by its largest value and the differences from it. */
INLINE float hue_of(const float *rgb, float most, float range) {
    float scale = 1.0f / (range > 0.0f ? range : 1.0f);
    float red = (most - rgb[0]) * scale, green = (most - rgb[1]) * scale;
    float blue = (most - rgb[2]) * scale;
    int is_red = most == rgb[0], is_green = most == rgb[1];
    float last = is_red ? blue : is_green ? red : green;
    float next = is_red ? green : is_green ? blue : red;
    float sixth = last + (is_red ? 0.0f : is_green ? 2.0f : 4.0f) - next;
    float hue = sixth * (1.0f / 6.0f) + 1.0f;

    return hue - (float)(int32_t)hue;
}

/* Without a branch, which the compiler would not vectorise. */
INLINE int32_t one_of(int32_t number, int32_t a, int32_t b, int32_t then, int32_t otherwise) {
    int32_t mask = -((number == a) | (number == b));

    return (then & mask) | (otherwise & ~mask);
}

VARIANTS(shift_hue, (uint8_t *restrict pixels, size_t count, float shift), (pixels, count, shift)) {
    const float scale = 255.999f; /* torchvision's, from floats to bytes */

    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        float rgb[3] = {(float)(int32_t)(pixel & 255) / 255.0f,
                        (float)(int32_t)(pixel >> 8 & 255) / 255.0f,
                        (float)(int32_t)(pixel >> 16 & 255) / 255.0f};
        float most = rgb[0] > rgb[1] ? rgb[0] : rgb[1], least = rgb[0] < rgb[1] ? rgb[0] : rgb[1];
        most = most > rgb[2] ? most : rgb[2];
        least = least < rgb[2] ? least : rgb[2];
        float range = most - least, share = range / (most > 0.0f ? most : 1.0f);
        float hue = hue_of(rgb, most, range) + shift + 1.0f;
        float place = (hue - (float)(int32_t)hue) * 6.0f;
        int32_t sixth = (int32_t)place, odd = -(sixth & 1);
        float part = share * (place - (float)sixth);
        int32_t v = (int32_t)limited(most * scale),
                p = (int32_t)limited((1.0f - share) * most * scale);
        int32_t falling = (int32_t)limited((1.0f - part) * most * scale);
        int32_t rising = (int32_t)limited((1.0f - share + part) * most * scale);
        int32_t m = (falling & odd) | (rising & ~odd);
        int32_t red = one_of(sixth, 0, 5, v, one_of(sixth, 1, 4, m, p));
        int32_t green = one_of(sixth, 1, 2, v, one_of(sixth, 0, 3, m, p));
        int32_t blue = one_of(sixth, 3, 4, v, one_of(sixth, 2, 5, m, p));
        fd_save_pixel(pixels, i, (uint32_t)red, (uint32_t)green, (uint32_t)blue);
    }
}

int fd_tensor_hue(fd_canvas *canvas, const fd_operation *how) {
    shift_hue(canvas->pixels, fd_count_pixels(canvas), (float)how->amount);
    return FD_OK;
}

/* ---- warps ---- */

/* A place in the source, in pixels from the centre of the first one. */
typedef struct {
    double x, y;
} place;

static const place nowhere = {-1.0, -1.0};

INLINE int is_inside(const fd_canvas *canvas, int32_t x, int32_t y) {
    return x >= 0 && y >= 0 && x < canvas->width && y < canvas->height;
}

INLINE const uint8_t *pixel_at(const fd_canvas *canvas, int32_t x, int32_t y) {
    return canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + x);
}

/* The place whose pixel the result shows at (x, y), by perspective or not. */
INLINE place place_of(const double *m, double x, double y) {
    double over = m[6] * (x + 0.5) + m[7] * (y + 0.5) + 1.0;

    return (place){(m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2]) / over - 0.5,
                   (m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5]) / over - 0.5};
}

INLINE void write_nearest(uint8_t *out, const fd_canvas *canvas, place at, const uint8_t *fill) {
    int32_t x = (int32_t)rint(at.x), y = (int32_t)rint(at.y);
    const uint8_t *from = is_inside(canvas, x, y) ? pixel_at(canvas, x, y) : fill;

    for (int c = 0; c < 3; c++)
        out[c] = from[c];
}

/* Pixels from outside are black; if there is a fill, the result is blended with it in proportion to
 * what lies outside. */
INLINE void write_bilinear(uint8_t *out, const fd_canvas *canvas, place at, const uint8_t *fill) {
    int32_t x = (int32_t)floor(at.x), y = (int32_t)floor(at.y);
    float dx = (float)(at.x - x), dy = (float)(at.y - y), sums[3] = {0}, covered = 0.0f;

    for (int32_t k = 0; k < 4; k++) {
        int32_t column = x + (k & 1), row = y + (k >> 1);
        float weight = (k & 1 ? dx : 1.0f - dx) * (k >> 1 ? dy : 1.0f - dy);
        if (!is_inside(canvas, column, row))
            continue;
        const uint8_t *from = pixel_at(canvas, column, row);
        covered += weight;
        for (int c = 0; c < 3; c++)
            sums[c] += weight * (float)from[c];
    }
    for (int c = 0; c < 3; c++) {
        float level = fill[c], blended = fill[3] ? (sums[c] - level) * covered + level : sums[c];
        out[c] = (uint8_t)limited(rintf(blended));
    }
}

VARIANTS(warp, (const fd_canvas *canvas, const double *m, int is_nearest, const uint8_t *fill),
         (canvas, m, is_nearest, fill)) {
    uint8_t *out = canvas->other;
    double width = canvas->width, height = canvas->height;

    for (int32_t y = 0; y < canvas->height; y++)
        for (int32_t x = 0; x < canvas->width; x++, out += 4) {
            place at = place_of(m, x, y);
            if (!(at.x > -1.0 && at.y > -1.0 && at.x < width && at.y < height))
                at = nowhere; /* others may not fit an integer */
            if (is_nearest)
                write_nearest(out, canvas, at, fill);
            else
                write_bilinear(out, canvas, at, fill);
        }
}

static void write_at_border(uint8_t *out, const fd_canvas *canvas, const double *m, int32_t x,
                            int32_t y, const fd_operation *how) {
    write_bilinear(out, canvas, place_of(m, x, y), how->fill);
}

int fd_tensor_warp(fd_canvas *canvas, const fd_operation *how) {
    const double *matrix = how->matrix;
    int is_nearest = how->filter == FD_NEAREST;
    uint8_t outside[4] = {0};

    write_bilinear(outside, canvas, nowhere, how->fill);
    if (is_nearest || matrix[6] != 0.0 || matrix[7] != 0.0)
        warp(canvas, matrix, is_nearest, how->fill);
    else
        fd_warp_in_runs(canvas, matrix, outside, write_at_border, how);
    fd_canvas_swap(canvas);
    return FD_OK;
}
