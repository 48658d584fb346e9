/* pillow.c: operations on levels and colours with the results of Pillow.
 *
 * The arithmetic is Pillow's (ImageEnhance, ImageOps): floats are float32 and truncated where Pillow's are.
 */
#include "operations.h"

#include <math.h>
#include <stdlib.h>

/* ---- blending ---- */

/* ImagingBlend: in float32, truncated. */
INLINE uint32_t mix(int32_t from, int32_t to, float factor) {
    return fd_level((int32_t)((float)from + factor * (float)(to - from)));
}

/* Blend two pixels, channel by channel. Pixels as numbers of 32 bits let the compiler vectorise. */
INLINE void save_mix(uint8_t *pixels, size_t i, uint32_t from, uint32_t to, float factor) {
    fd_save_pixel(pixels, i, mix((int32_t)(from & 255), (int32_t)(to & 255), factor),
                  mix((int32_t)(from >> 8 & 255), (int32_t)(to >> 8 & 255), factor),
                  mix((int32_t)(from >> 16 & 255), (int32_t)(to >> 16 & 255), factor));
}

VARIANTS(mix_level, (uint8_t *restrict pixels, size_t count, uint32_t level, float factor),
         (pixels, count, level, factor)) {
    for (size_t i = 0; i < count; i++)
        save_mix(pixels, i, level * 0x010101, fd_load_pixel(pixels, i), factor);
}

int fd_brighten(fd_canvas *canvas, const fd_operation *how) {
    mix_level(canvas->pixels, fd_count_pixels(canvas), 0, (float)how->amount);
    return FD_OK;
}

VARIANTS(mix_rows,
         (uint8_t *restrict out, const uint8_t *restrict from, const uint8_t *restrict to,
          size_t count, float factor),
         (out, from, to, count, factor)) {
    for (size_t i = 0; i < count; i++)
        save_mix(out, i, fd_load_pixel(from, i), fd_load_pixel(to, i), factor);
}

/* ---- luminance ---- */

/* Pillow's convert("L"). */
INLINE uint32_t luminance(uint32_t pixel) {
    return ((pixel & 255) * 19595 + (pixel >> 8 & 255) * 38470 + (pixel >> 16 & 255) * 7471 +
            0x8000) >>
           16;
}

/* The caller clears `sum`. Blocks keep the 32-bit sums of a block from overflowing. */
VARIANTS(add_luminance, (const uint8_t *restrict pixels, size_t count, uint64_t *sum),
         (pixels, count, sum)) {
    enum { BLOCK = 1 << 16 };

    for (size_t from = 0; from < count; from += BLOCK) {
        size_t end = count - from < BLOCK ? count : from + BLOCK;
        uint32_t part = 0;
        for (size_t i = from; i < end; i++)
            part += luminance(fd_load_pixel(pixels, i));
        *sum += part;
    }
}

VARIANTS(saturate_by, (uint8_t *restrict pixels, size_t count, float factor),
         (pixels, count, factor)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        save_mix(pixels, i, luminance(pixel) * 0x010101, pixel, factor);
    }
}

int fd_pillow_saturate(fd_canvas *canvas, const fd_operation *how) {
    saturate_by(canvas->pixels, fd_count_pixels(canvas), (float)how->amount);
    return FD_OK;
}

VARIANTS(make_grey, (uint8_t *restrict pixels, size_t count), (pixels, count)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t grey = luminance(fd_load_pixel(pixels, i));
        fd_save_pixel(pixels, i, grey, grey, grey);
    }
}

int fd_pillow_grey(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    make_grey(canvas->pixels, fd_count_pixels(canvas));
    return FD_OK;
}

int fd_pillow_contrast(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint64_t sum = 0;

    add_luminance(canvas->pixels, count, &sum);
    uint32_t mean = (uint32_t)((double)sum / (double)count + 0.5);
    mix_level(canvas->pixels, count, mean, (float)how->amount);
    return FD_OK;
}

/* ---- sharpness ---- */

/* Apply ImageFilter.SMOOTH to a row: the weights are 1, that of the centre is 5, and their sum is 13.
 * 5042 / 2^16 divides exactly by 13 up to 255 * 13 + 6. `sums` has room for a row. */
VARIANTS(smooth_row,
         (uint8_t *restrict out, const uint8_t *restrict row, size_t stride,
          uint16_t *restrict sums),
         (out, row, stride, sums)) {
    const uint8_t *above = row - stride, *below = row + stride;

    for (size_t i = 0; i < stride; i++)
        sums[i] = (uint16_t)(above[i] + row[i] + below[i]);
    for (size_t i = 4; i < stride - 4; i++) {
        uint16_t sum = (uint16_t)(sums[i - 4] + sums[i] + sums[i + 4] + 4 * row[i] + 6);
        out[i] = (uint8_t)(sum * 5042U >> 16);
    }
    memcpy(out, row, 4);
    memcpy(out + stride - 4, row + stride - 4, 4);
}

int fd_sharpen(fd_canvas *canvas, const fd_operation *how) {
    size_t width = (size_t)canvas->width, stride = 4 * width;
    uint16_t *sums = fd_room_for(&canvas->scratch, stride * sizeof *sums + stride);

    if (sums == NULL)
        return FD_NO_MEMORY;
    if (canvas->width < 3 || canvas->height < 3) /* Pillow smooths nothing */
        return FD_OK;
    uint8_t *smooth = (uint8_t *)(sums + stride);
    size_t last = (size_t)(canvas->height - 1) * stride;
    memcpy(canvas->other, canvas->pixels, stride);
    memcpy(canvas->other + last, canvas->pixels + last, stride);
    for (size_t at = stride; at < last; at += stride) {
        smooth_row(smooth, canvas->pixels + at, stride, sums);
        mix_rows(canvas->other + at, smooth, canvas->pixels + at, width, (float)how->amount);
    }
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- one value to another ---- */

VARIANTS(invert_from, (uint8_t *restrict bytes, size_t count, uint8_t threshold),
         (bytes, count, threshold)) {
    for (size_t i = 0; i < count; i++) {
        uint8_t turned = (uint8_t)~bytes[i];
        bytes[i] = bytes[i] >= threshold ? turned : bytes[i];
    }
}

int fd_invert(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    invert_from(canvas->pixels, 4 * fd_count_pixels(canvas), 0);
    return FD_OK;
}

/* Pillow compares with the threshold as a float: values below it stay. */
int fd_solarize(fd_canvas *canvas, const fd_operation *how) {
    if (how->threshold <= 255.0)
        invert_from(canvas->pixels, 4 * fd_count_pixels(canvas),
                    (uint8_t)(how->threshold > 0.0 ? ceil(how->threshold) : 0));
    return FD_OK;
}

/* timm's SolarizeAdd. */
VARIANTS(lift_by, (uint8_t *restrict bytes, size_t count, uint32_t more), (bytes, count, more)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t lifted = bytes[i] + more;
        bytes[i] = (uint8_t)(bytes[i] >= 128 ? bytes[i] : lifted > 255 ? 255 : lifted);
    }
}

int fd_solarize_add(fd_canvas *canvas, const fd_operation *how) {
    lift_by(canvas->pixels, 4 * fd_count_pixels(canvas), (uint32_t)how->lift);
    return FD_OK;
}

VARIANTS(keep_bits, (uint8_t *restrict bytes, size_t count, uint8_t mask), (bytes, count, mask)) {
    for (size_t i = 0; i < count; i++)
        bytes[i] &= mask;
}

int fd_posterize(fd_canvas *canvas, const fd_operation *how) {
    keep_bits(canvas->pixels, 4 * fd_count_pixels(canvas), (uint8_t)(0xff00 >> (int)how->bits));
    return FD_OK;
}

/* ---- autocontrast and equalize ---- */

VARIANTS(find_range, (const uint8_t *restrict pixels, size_t count, uint8_t *low, uint8_t *high),
         (pixels, count, low, high)) {
    enum { LANES = 64 };
    uint8_t least[LANES], most[LANES];
    size_t bytes = 4 * count, i = 0;

    memset(least, 255, sizeof least);
    memset(most, 0, sizeof most);
    for (; i + LANES <= bytes; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            least[k] = pixels[i + k] < least[k] ? pixels[i + k] : least[k];
            most[k] = pixels[i + k] > most[k] ? pixels[i + k] : most[k];
        }
    for (; i < bytes; i++) {
        least[i % 4] = pixels[i] < least[i % 4] ? pixels[i] : least[i % 4];
        most[i % 4] = pixels[i] > most[i % 4] ? pixels[i] : most[i % 4];
    }
    for (size_t k = 4; k < LANES; k++) {
        least[k % 4] = least[k] < least[k % 4] ? least[k] : least[k % 4];
        most[k % 4] = most[k] > most[k % 4] ? most[k] : most[k % 4];
    }
    memcpy(low, least, 4);
    memcpy(high, most, 4);
}

int fd_autocontrast(fd_canvas *canvas, const fd_operation *how) {
    uint8_t low[4], high[4], tables[3][256];
    size_t count = fd_count_pixels(canvas);

    find_range(canvas->pixels, count, low, high);
    for (int c = 0; c < 3; c++) {
        int is_flat = low[c] == high[c];
        double scale = is_flat ? 1.0 : 255.0 / (high[c] - low[c]);
        double offset = is_flat ? 0.0 : -low[c] * scale;
        float step = is_flat ? 1.0f : (float)(high[c] - low[c]) * (float)(1.0 / 255.0);
        for (int v = 0; v < 256; v++) {
            float part = (float)(is_flat ? v : v - low[c]) / step;
            int value = how->library == FD_TORCHVISION ? (int)part : (int)(v * scale + offset);
            tables[c][v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    fd_look_up(canvas->pixels, count, tables);
    return FD_OK;
}

int fd_pillow_equalize(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint32_t counts[3][256];
    uint8_t tables[3][256];

    (void)how;
    fd_count_levels(canvas->pixels, count, counts);
    for (int c = 0; c < 3; c++) {
        uint32_t levels = 0, last = 0;
        for (int v = 0; v < 256; v++)
            if (counts[c][v]) {
                last = counts[c][v];
                levels++;
            }
        uint32_t step = levels > 1 ? ((uint32_t)count - last) / 255 : 0, sum = step / 2;
        for (int v = 0; v < 256; v++) {
            uint32_t value = step ? sum / step : (uint32_t)v;
            tables[c][v] = (uint8_t)(value > 255 ? 255 : value);
            sum += counts[c][v];
        }
    }
    fd_look_up(canvas->pixels, count, tables);
    return FD_OK;
}

VARIANTS(permute_as, (uint8_t *restrict pixels, size_t count, const double *restrict from),
         (pixels, count, from)) {
    uint32_t shifts[3];

    for (int c = 0; c < 3; c++)
        shifts[c] = 8 * (uint32_t)(FIRST_IS_LOW ? (int32_t)from[c] : 3 - (int32_t)from[c]);
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel;
        memcpy(&pixel, pixels + 4 * i, sizeof pixel);
        for (int c = 0; c < 3; c++)
            pixels[4 * i + (size_t)c] = (uint8_t)(pixel >> shifts[c]);
    }
}

int fd_permute(fd_canvas *canvas, const fd_operation *how) {
    permute_as(canvas->pixels, fd_count_pixels(canvas), how->channels);
    return FD_OK;
}

/* ---- hue ---- */

/* By way of Pillow's convert("HSV") and back, which lose information: a shift of 0 also changes pixels.
 * Pillow computes some steps in doubles; of all colours, these steps have its results. */

/* The hue (0 to 255) of a pixel; of a grey one, which has none, any. */
INLINE int32_t hue_of(int32_t red, int32_t green, int32_t blue, int32_t most, int32_t least) {
    int32_t is_red = -(red == most), is_green = ~is_red & -(green == most);
    int32_t is_blue = ~(is_red | is_green), start = (2 & is_green) | (4 & is_blue);
    int32_t before = (blue & is_red) | (red & is_green) | (green & is_blue);
    int32_t sign = before == least ? 1 : -1, range = most - least;
    int32_t apart = 2 * most - (red + green + blue - least); /* from the middle one */
    float part = (float)(sign * apart) / (float)(range > 0 ? range : 1);
    float sixth = (float)(start + sign) - part;

    return (int32_t)((sixth / 6.0f + (sixth < 0.0f ? 1.0f : 0.0f)) * 255.0f);
}

/* A channel of a colour of so much saturation and value; `less` (0 to 255) is its distance from the
 * largest one. */
INLINE uint32_t channel(int32_t less, int32_t share, int32_t most) {
    const float whole = 255 * 255, half = 255 * 255 / 2; /* rounded down */
    less = less < 0 ? 0 : less > 255 ? 255 : less;
    float rest = whole - (float)(less * share);

    return (uint32_t)(int32_t)(((float)most * rest + half) * (1.0f / whole));
}

VARIANTS(shift_hue, (uint8_t *restrict pixels, size_t count, int32_t shift),
         (pixels, count, shift)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        int32_t red = pixel & 255, green = pixel >> 8 & 255, blue = pixel >> 16 & 255;
        int32_t most = red > green ? red : green, least = red < green ? red : green;
        most = most > blue ? most : blue;
        least = least < blue ? least : blue;
        int32_t share = (int32_t)((float)(255 * (most - least)) / (float)(most > 0 ? most : 1));
        int32_t hue = (hue_of(red, green, blue, most, least) + shift) & 255;
        int32_t turn = hue < 255 ? 6 * hue : 0; /* in 255ths of a sixth of the circle */
        fd_save_pixel(pixels, i, channel(510 - abs(turn - 765), share, most),
                      channel(abs(turn - 510) - 255, share, most),
                      channel(abs(turn - 1020) - 255, share, most));
    }
}

int fd_pillow_hue(fd_canvas *canvas, const fd_operation *how) {
    /* torchvision truncates the shift; Python's % 256 of a negative one is & 255. */
    shift_hue(canvas->pixels, fd_count_pixels(canvas), (int32_t)(how->amount * 255.0) & 255);
    return FD_OK;
}
