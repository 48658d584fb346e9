/* tensors.c: augmentations with the results of torchvision's functions for tensors of bytes, where these
 * are not within 1 level of Pillow's.
 *
 * All arithmetic is in float32, as there; only places in a source image are computed in doubles.
 */
#include "warp.h"

#include <math.h>
#include <string.h>

INLINE uint8_t limited(float value) {
    value = value > 0.0f ? value : 0.0f;
    return (uint8_t)(int32_t)(value < 255.0f ? value : 255.0f);
}

/* The luminance, rounded down. */
INLINE float luminance(const uint8_t *pixel) {
    float sum = 0.2989f * (float)pixel[0] + 0.587f * (float)pixel[1] + 0.114f * (float)pixel[2];

    return (float)(int32_t)sum;
}

INLINE void mix_with_grey_body(uint8_t *restrict pixels, size_t count, float factor, float rest) {
    for (size_t i = 0; i < count; i++) {
        float grey = rest * luminance(pixels + 4 * i);
        for (size_t c = 0; c < 4; c++)
            pixels[4 * i + c] = limited(factor * (float)pixels[4 * i + c] + grey);
    }
}

VARIANTS(mix_with_grey, mix_with_grey_body,
         (uint8_t *pixels, size_t count, float factor, float rest), (pixels, count, factor, rest))

void fd_tensor_saturate(uint8_t *pixels, size_t count, double factor) {
    mix_with_grey(pixels, count, (float)factor, (float)(1.0 - factor));
}

void fd_tensor_grey(uint8_t *pixels, size_t count) { mix_with_grey(pixels, count, 0.0f, 1.0f); }

INLINE void sum_luminance_body(const uint8_t *restrict pixels, size_t count, uint64_t *total) {
    for (size_t i = 0; i < count; i++)
        *total += (uint64_t)(int32_t)luminance(pixels + 4 * i);
}

VARIANTS(sum_luminance, sum_luminance_body, (const uint8_t *pixels, size_t count, uint64_t *total),
         (pixels, count, total))

INLINE void mix_with_level_body(uint8_t *restrict bytes, size_t count, float factor, float level) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = limited(factor * (float)bytes[i] + level);
}

VARIANTS(mix_with_level, mix_with_level_body,
         (uint8_t *bytes, size_t count, float factor, float level), (bytes, count, factor, level))

void fd_tensor_contrast(uint8_t *pixels, size_t count, double factor) {
    uint64_t total = 0;

    sum_luminance(pixels, count, &total);
    float mean = (float)((double)total / (double)count);
    mix_with_level(pixels, 4 * count, (float)factor, (float)(1.0 - factor) * mean);
}

/* ---- hue ---- */

/* The hue of a pixel, from 0 to 1, by its largest value and the differences from it. */
INLINE float hue_of(const float *rgb, float most, float range) {
    float scale = range > 0.0f ? 1.0f / range : 1.0f;
    float red = (most - rgb[0]) * scale, green = (most - rgb[1]) * scale;
    float blue = (most - rgb[2]) * scale;
    float sixth = most == rgb[0]   ? blue - green
                  : most == rgb[1] ? red + 2.0f - blue
                                   : green + 4.0f - red;
    float hue = sixth * (1.0f / 6.0f) + 1.0f;

    return hue - (float)(int32_t)hue;
}

INLINE void shift_body(uint8_t *restrict pixels, size_t count, float shift) {
    const float scale = 255.999f; /* torchvision's, from floats to bytes */

    for (size_t i = 0; i < count; i++) {
        uint8_t *pixel = pixels + 4 * i;
        float rgb[3] = {(float)pixel[0] / 255.0f, (float)pixel[1] / 255.0f,
                        (float)pixel[2] / 255.0f};
        float most = rgb[0] > rgb[1] ? rgb[0] : rgb[1], least = rgb[0] < rgb[1] ? rgb[0] : rgb[1];
        most = most > rgb[2] ? most : rgb[2];
        least = least < rgb[2] ? least : rgb[2];
        float range = most - least, share = most > least ? range / most : 0.0f;
        float hue = hue_of(rgb, most, range) + shift + 1.0f;
        float place = (hue - (float)(int32_t)hue) * 6.0f;
        int32_t sixth = (int32_t)place;
        float part = share * (place - (float)sixth);
        float p = (1.0f - share) * most, q = (1.0f - part) * most;
        float t = (1.0f - share + part) * most, v = most;
        float red = sixth == 0 || sixth >= 5 ? v : sixth == 1 ? q : sixth == 4 ? t : p;
        float green = sixth == 1 || sixth == 2 ? v : sixth == 3 ? q : sixth == 0 ? t : p;
        float blue = sixth == 3 || sixth == 4 ? v : sixth >= 5 ? q : sixth == 2 ? t : p;
        pixel[0] = limited(red * scale);
        pixel[1] = limited(green * scale);
        pixel[2] = limited(blue * scale);
    }
}

VARIANTS(shift_hue, shift_body, (uint8_t *pixels, size_t count, float shift),
         (pixels, count, shift))

void fd_tensor_hue(uint8_t *pixels, size_t count, double shift) {
    shift_hue(pixels, count, (float)shift);
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

INLINE void write_nearest(const fd_canvas *canvas, place at, const uint8_t *fill, uint8_t *out) {
    int32_t x = (int32_t)rint(at.x), y = (int32_t)rint(at.y);
    const uint8_t *from = is_inside(canvas, x, y) ? pixel_at(canvas, x, y) : fill;

    for (int c = 0; c < 3; c++)
        out[c] = from[c];
}

/* Pixels from outside are black; if there is a fill, the result is blended with it in proportion to
 * what lies outside. */
INLINE void write_bilinear(const fd_canvas *canvas, place at, const uint8_t *fill, uint8_t *out) {
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
        out[c] = limited(rintf(blended));
    }
}

/* The place whose pixel the result shows at (x, y), by perspective or not. */
INLINE place place_of(const double *m, double x, double y) {
    double over = m[6] * (x + 0.5) + m[7] * (y + 0.5) + 1.0;

    return (place){(m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2]) / over - 0.5,
                   (m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5]) / over - 0.5};
}

INLINE void warp_body(const fd_canvas *canvas, const double *m, int is_nearest,
                      const uint8_t *fill) {
    uint8_t *out = canvas->other;
    double width = canvas->width, height = canvas->height;

    for (int32_t y = 0; y < canvas->height; y++)
        for (int32_t x = 0; x < canvas->width; x++, out += 4) {
            place at = place_of(m, x, y);
            if (!(at.x > -1.0 && at.y > -1.0 && at.x < width && at.y < height))
                at = nowhere; /* others may not fit an integer */
            if (is_nearest)
                write_nearest(canvas, at, fill, out);
            else
                write_bilinear(canvas, at, fill, out);
        }
}

VARIANTS(warp, warp_body,
         (const fd_canvas *canvas, const double *m, int is_nearest, const uint8_t *fill),
         (canvas, m, is_nearest, fill))

/* ---- affine warps, in fixed point ---- */

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
static void warp_affine(const fd_canvas *canvas, const double *m, const uint8_t *fill) {
    const int64_t one = 1 << FD_PLACE_BITS;
    const int64_t width = canvas->width * one, height = canvas->height * one;
    fd_blend_run *blend_run = fd_kernels_now()->blend_run;
    uint8_t outside[4] = {0}, *out = canvas->other;
    int64_t fixed[6];

    write_bilinear(canvas, nowhere, fill, outside);
    for (int i = 0; i < 6; i++) {
        double value = i % 3 == 2 ? m[i] + (m[i - 2] + m[i - 1] - 1.0) * 0.5 : m[i];
        fixed[i] = (int64_t)floor(value * (double)one + 0.5);
    }
    for (int32_t y = 0; y < canvas->height; y++) {
        fd_run run = {fixed[2] + fixed[1] * y, fixed[5] + fixed[4] * y, fixed[0], fixed[3]};
        int64_t seen = 0, unseen = canvas->width;
        fd_narrow(run.x + one, run.right, width + one, &seen, &unseen);
        fd_narrow(run.y + one, run.down, height + one, &seen, &unseen);
        int64_t from = seen, to = unseen;
        fd_narrow(run.x, run.right, width - one, &from, &to);
        fd_narrow(run.y, run.down, height - one, &from, &to);
        for (int32_t x = 0; x < canvas->width; x++, out += 4)
            if (x == from && from < to) {
                run.x += run.right * x;
                run.y += run.down * x;
                blend_run(out, canvas, run, (int32_t)(to - from));
                out += 4 * (to - from - 1);
                x = (int32_t)to - 1;
            } else if (x >= seen && x < unseen)
                write_bilinear(canvas, place_of(m, x, y), fill, out);
            else
                memcpy(out, outside, sizeof outside);
    }
}

void fd_tensor_warp(fd_canvas *canvas, const double matrix[FD_VALUES], int is_nearest,
                    const uint8_t fill[4]) {
    if (is_nearest || matrix[6] != 0.0 || matrix[7] != 0.0)
        warp(canvas, matrix, is_nearest, fill);
    else
        warp_affine(canvas, matrix, fill);
    fd_canvas_swap(canvas);
}
