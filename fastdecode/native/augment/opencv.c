/* opencv.c: operations with the results of OpenCV's functions for bytes, as albumentations calls them.
 *
 * Rounding is OpenCV's, to the nearest integer, where its arithmetic is in floats.
 */
#include "operations.h"
#include "random.h"

#include <math.h>
#include <string.h>

INLINE uint32_t rounded(float value) { return fd_level((int32_t)rintf(value)); }

INLINE uint32_t truncated(float value) { return fd_level((int32_t)value); }

/* ---- levels ---- */

INLINE float as_float(uint32_t number) { return (float)(int32_t)number; }

/* COLOR_RGB2GRAY */
INLINE uint32_t grey_of(uint32_t pixel) {
    return ((pixel & 255) * 9798 + (pixel >> 8 & 255) * 19235 + (pixel >> 16 & 255) * 3735 +
            (1 << 14)) >>
           15;
}

/* Each channel times its factor plus its summand, truncated. */
VARIANTS(scale_channels, (uint8_t *restrict pixels, size_t count, const float *by),
         (pixels, count, by)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        fd_save_pixel(pixels, i, truncated(as_float(pixel & 255) * by[0] + by[3]),
                      truncated(as_float(pixel >> 8 & 255) * by[1] + by[4]),
                      truncated(as_float(pixel >> 16 & 255) * by[2] + by[5]));
    }
}

/* The caller clears `sums`: of all levels, and of the grey ones. */
VARIANTS(add_up, (const uint8_t *restrict pixels, size_t count, uint64_t *sums),
         (pixels, count, sums)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        sums[0] += (pixel & 255) + (pixel >> 8 & 255) + (pixel >> 16 & 255);
        sums[1] += grey_of(pixel);
    }
}

int fd_levels(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint64_t sums[2] = {0};
    double summand = how->levels.summand;

    if (how->levels.of_mean != 0.0 || how->levels.of_grey_mean != 0.0) {
        add_up(canvas->pixels, count, sums);
        summand += how->levels.of_mean * (double)sums[0] / (3.0 * (double)count);
        summand += how->levels.of_grey_mean * (double)sums[1] / (double)count;
    }
    const float factor = (float)how->levels.factor, more = (float)summand;
    const float by[6] = {factor, factor, factor, more, more, more};
    scale_channels(canvas->pixels, count, by);
    return FD_OK;
}

int fd_opencv_contrast(fd_canvas *canvas, const fd_operation *how) {
    const double factor = how->amount;

    return fd_levels(canvas, &(fd_operation){.levels = {factor, 0.0, 0.0, 1.0 - factor}});
}

int fd_scale_channels(fd_canvas *canvas, const fd_operation *how) {
    float by[6];

    for (int c = 0; c < 3; c++) {
        by[c] = (float)how->scaling.factor[c];
        by[3 + c] = (float)how->scaling.summand[c];
    }
    scale_channels(canvas->pixels, fd_count_pixels(canvas), by);
    return FD_OK;
}

int fd_gamma(fd_canvas *canvas, const fd_operation *how) {
    uint8_t tables[3][256];

    for (int v = 0; v < 256; v++) {
        double level = 255.0 * pow(v / 255.0, how->exponent);
        tables[0][v] = tables[1][v] = tables[2][v] = (uint8_t)level;
    }
    fd_look_up(canvas->pixels, fd_count_pixels(canvas), tables);
    return FD_OK;
}

/* equalizeHist: the lowest level becomes 0; one level alone stays. So does albumentations' AutoContrast,
 * which leaves white out of its histogram. */
int fd_opencv_equalize(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint32_t counts[3][256];
    uint8_t tables[3][256];

    fd_count_levels(canvas->pixels, count, counts);
    for (int c = 0; c < 3; c++) {
        uint32_t white = how->without_white != 0.0 ? counts[c][255] : 0, sum = 0;
        int least = 0;
        counts[c][255] -= white;
        while (least < 255 && counts[c][least] == 0)
            least++;
        uint32_t others = (uint32_t)count - white - counts[c][least];
        float scale = 255.0F / (float)(others > 0 ? others : 1);
        for (int v = 0; v < 256; v++) {
            sum += v > least ? counts[c][v] : 0;
            tables[c][v] = (uint8_t)(others > 0 ? rounded((float)sum * scale) : (uint32_t)v);
        }
    }
    fd_look_up(canvas->pixels, count, tables);
    return FD_OK;
}

VARIANTS(saturate, (uint8_t *restrict pixels, size_t count, float factor, float rest),
         (pixels, count, factor, rest)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        float grey = rest * as_float(grey_of(pixel));
        fd_save_pixel(pixels, i, rounded(factor * as_float(pixel & 255) + grey),
                      rounded(factor * as_float(pixel >> 8 & 255) + grey),
                      rounded(factor * as_float(pixel >> 16 & 255) + grey));
    }
}

int fd_opencv_saturate(fd_canvas *canvas, const fd_operation *how) {
    saturate(canvas->pixels, fd_count_pixels(canvas), (float)how->amount,
             (float)(1.0 - how->amount));
    return FD_OK;
}

int fd_opencv_grey(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    saturate(canvas->pixels, fd_count_pixels(canvas), 0.0F, 1.0F);
    return FD_OK;
}

/* ---- hue, saturation and value ---- */

enum { CIRCLE = 180, SHARE_BITS = 12 };

/* What to add to the hue (from 0 up to the circle), saturation and value. */
typedef struct {
    int32_t hue, share, most;
} colours;

/* The rounded reciprocal by which OpenCV multiplies where others divide. No quotient is near a tie. */
INLINE int32_t over(float whole, int32_t by) {
    return (int32_t)(whole / (float)(by > 0 ? by : 1) + 0.5f);
}

/* COLOR_RGB2HSV. `sixths` is the hue in sixths of the circle times the range of the levels. */
INLINE int32_t hue_of(int32_t sixths, int32_t range) {
    int32_t product = sixths * over(CIRCLE / 6 << SHARE_BITS, range);
    int32_t hue = (product + (1 << (SHARE_BITS - 1))) >> SHARE_BITS;

    return hue + (hue < 0 ? CIRCLE : 0);
}

INLINE int32_t share_of(int32_t range, int32_t most) {
    return (range * over(255 << SHARE_BITS, most) + (1 << (SHARE_BITS - 1))) >> SHARE_BITS;
}

/* COLOR_HSV2RGB: a channel; `less` (0 to 1) is its distance from the largest one. OpenCV rounds the pixels at
 * the end of a row that do not fill a vector, and truncates the others, as this does. */
INLINE uint32_t channel(float less, float part, float most) {
    less = less < 0.0f ? 0.0f : less > 1.0f ? 1.0f : less;

    return (uint32_t)(int32_t)(most * (1.0f - part * less));
}

/* Hue in 180ths of the circle, saturation and value up to 255. */
VARIANTS(change_colours, (uint8_t *restrict pixels, size_t count, const colours *by),
         (pixels, count, by)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        int32_t r = pixel & 255, g = pixel >> 8 & 255, b = pixel >> 16 & 255;
        int32_t most = r > g ? r : g, least = r < g ? r : g;
        most = most > b ? most : b;
        least = least < b ? least : b;
        int32_t range = most - least, is_red = -(r == most), is_green = ~is_red & -(g == most);
        int32_t is_blue = ~(is_red | is_green);
        int32_t sixths = ((g - b) & is_red) + ((b - r + 2 * range) & is_green) +
                         ((r - g + 4 * range) & is_blue);
        int32_t hue = hue_of(sixths, range) + by->hue, share = share_of(range, most);
        hue -= hue < CIRCLE ? 0 : CIRCLE;
        share = (int32_t)fd_level(share + by->share) & -(share > 0);

        float place = (float)hue * (6.0f / CIRCLE), part = (float)share * (1.0f / 255.0f);
        float value = (float)(int32_t)fd_level(most + by->most);
        fd_save_pixel(pixels, i, channel(2.0f - fabsf(place - 3.0f), part, value),
                      channel(fabsf(place - 2.0f) - 1.0f, part, value),
                      channel(fabsf(place - 4.0f) - 1.0f, part, value));
    }
}

int fd_shift_colours(fd_canvas *canvas, const fd_operation *how) {
    double turn = fmod(floor(how->shift.hue), CIRCLE);
    const colours by = {(int32_t)(turn < 0.0 ? turn + CIRCLE : turn),
                        (int32_t)how->shift.saturation, (int32_t)how->shift.value};

    if (how->shift.hue != 0.0 || how->shift.saturation != 0.0 || how->shift.value != 0.0)
        change_colours(canvas->pixels, fd_count_pixels(canvas), &by);
    return FD_OK;
}

/* ---- filling and noise ---- */

int fd_fill_box(fd_canvas *canvas, const fd_operation *how) {
    size_t left = (size_t)how->box.left, top = (size_t)how->box.top;
    size_t width = (size_t)how->box.width, height = (size_t)how->box.height;

    for (size_t y = top; y < top + height; y++)
        for (size_t x = left; x < left + width; x++)
            memcpy(canvas->pixels + 4 * (y * (size_t)canvas->width + x), how->fill, 3);
    return FD_OK;
}

/* albumentations adds whole numbers to levels, and truncates others. */
INLINE uint32_t added(uint32_t level, float more) {
    return truncated(as_float(level) + (float)(int32_t)more);
}

/* The noise of a channel is every `apart` numbers. */
VARIANTS(add_noise,
         (uint8_t *restrict pixels, size_t count, const float *restrict numbers, size_t apart,
          float sigma, float mean),
         (pixels, count, numbers, apart, sigma, mean)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        const float *of = numbers + i;
        fd_save_pixel(pixels, i, added(pixel & 255, mean + sigma * of[0]),
                      added(pixel >> 8 & 255, mean + sigma * of[apart]),
                      added(pixel >> 16 & 255, mean + sigma * of[2 * apart]));
    }
}

int fd_add_noise(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    size_t different = how->noise == FD_NOISE_PIXEL ? 3 : 1; /* numbers of a pixel */
    uint64_t state = how->seed;
    float numbers[3 * FD_NORMALS];

    for (size_t at = 0; at < count; at += FD_NORMALS) {
        for (size_t c = 0; c < different; c++)
            fd_draw_normals(&state, numbers + c * FD_NORMALS);
        add_noise(canvas->pixels + 4 * at, count - at < FD_NORMALS ? count - at : FD_NORMALS,
                  numbers, different == 3 ? FD_NORMALS : 0, (float)how->normal.deviation,
                  (float)how->normal.mean);
    }
    return FD_OK;
}
