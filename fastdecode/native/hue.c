/* hue.c: shifts the hue of pixels by way of Pillow's HSV, in uint8.
 *
 * The steps and their precisions are those of Pillow's convert("HSV") and back. They lose information:
 * a shift of 0 also changes pixels. A few pixels at a time go through arrays, one step after another,
 * so that the compiler vectorises each step.
 */
#include "augment.h"

enum { BLOCK = 64 }; /* pixels at a time */

/* The hue (0 to 255) of a pixel that is not grey. */
INLINE int32_t hue_of(int32_t red, int32_t green, int32_t blue, int32_t most, int32_t range) {
    int is_red = red == most, is_green = green == most;
    int32_t before = is_red ? blue : is_green ? red : green;
    int32_t after = is_red ? green : is_green ? blue : red;
    float scale = (float)range;
    float p = (float)(most - before) / scale, q = (float)(most - after) / scale;
    double start = is_red ? 0.0 : is_green ? 2.0 : 4.0;
    float sixth = (float)(start + (double)p - (double)q);
    double turn = (double)sixth * (1.0 / 6.0); /* for all pixels the same hue as by a division */
    float hue = (float)(sixth < 0.0f ? turn + 1.0 : turn);

    return (int32_t)((double)hue * 255.0);
}

/* most * (1 - share), rounded. */
INLINE int32_t lower(int32_t most, double share) {
    return (int32_t)((double)most * (1.0 - share) + 0.5);
}

/* Without a branch, which the compiler would not vectorise. */
INLINE int32_t one_of(int32_t number, int32_t a, int32_t b, int32_t then, int32_t otherwise) {
    int32_t mask = -((number == a) | (number == b));

    return (then & mask) | (otherwise & ~mask);
}

INLINE void shift_hue_body(uint8_t *restrict pixels, size_t count, int32_t shift) {
    int32_t most[BLOCK], hue[BLOCK], share[BLOCK];

    for (size_t i = 0; i < count; i++) {
        int32_t red = pixels[4 * i], green = pixels[4 * i + 1], blue = pixels[4 * i + 2];
        int32_t high = red > green ? red : green, low = red < green ? red : green;
        high = high > blue ? high : blue;
        low = low < blue ? low : blue;
        int32_t range = high - low;
        int32_t turned = range ? hue_of(red, green, blue, high, range) : 0;
        float part = range ? (float)range / (float)high : 0.0f;
        most[i] = high;
        share[i] = (int32_t)((double)part * 255.0);
        hue[i] = (turned + shift) & 255;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t turn = hue[i] < 255 ? 6 * hue[i] : 0, sixth = turn * 32897 >> 23; /* / 255 */
        float place = (float)(turn - 255 * sixth) / 255.0f, part = (float)share[i] / 255.0f;
        double falling = part * place, rising = (double)part * (1.0 - (double)place);
        int32_t v = most[i], p = lower(v, part), odd = -(sixth & 1);
        int32_t m = (lower(v, falling) & odd) | (lower(v, rising) & ~odd);
        int32_t red = one_of(sixth, 0, 5, v, one_of(sixth, 1, 4, m, p));
        int32_t green = one_of(sixth, 1, 2, v, one_of(sixth, 0, 3, m, p));
        int32_t blue = one_of(sixth, 3, 4, v, one_of(sixth, 2, 5, m, p));
        fd_save_pixel(pixels, i, (uint32_t)red, (uint32_t)green, (uint32_t)blue);
    }
}

VARIANTS(shift_hue, shift_hue_body, (uint8_t *pixels, size_t count, int32_t shift),
         (pixels, count, shift))

void fd_shift_hue(uint8_t *pixels, size_t count, int32_t shift) {
    for (size_t from = 0; from < count; from += BLOCK)
        shift_hue(pixels + 4 * from, count - from < BLOCK ? count - from : BLOCK, shift);
}
