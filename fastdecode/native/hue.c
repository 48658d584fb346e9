/* hue.c: shifts the hue of pixels by way of Pillow's HSV, in uint8.
 *
 * The steps and their precisions are those of Pillow's convert("HSV") and back. They lose information:
 * a shift of 0 also changes pixels. A few pixels at a time go through arrays, one step after another,
 * so that the compiler vectorises each step.
 */
#include "augment.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { BLOCK = 64 }; /* pixels at a time */

/* For each hue the sixth of the circle and the place in it; for each saturation its share of 255. */
static int32_t sixths[256];
static float places[256], shares[256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (int v = 0; v < 256; v++) {
        double place = (double)(float)v * 6.0 / 255.0;
        int32_t sixth = (int32_t)floor(place);
        places[v] = (float)(place - (double)(float)sixth);
        sixths[v] = sixth % 6; /* 255 ends the circle, where 0 begins it */
        shares[v] = (float)((double)(float)v / 255.0);
    }
}

/* The hue (0 to 255) of a pixel that is not grey. */
INLINE int32_t hue_of(int32_t red, int32_t green, int32_t blue, int32_t most, int32_t range) {
    int is_red = red == most, is_green = green == most;
    int32_t before = is_red ? blue : is_green ? red : green;
    int32_t after = is_red ? green : is_green ? blue : red;
    float scale = (float)range;
    float p = (float)(most - before) / scale, q = (float)(most - after) / scale;
    double start = is_red ? 0.0 : is_green ? 2.0 : 4.0;
    float sixth = (float)(start + (double)p - (double)q);
    double turn = (double)sixth / 6.0 + 1.0;
    float hue = (float)(turn >= 1.0 ? turn - 1.0 : turn);

    return (int32_t)((double)hue * 255.0);
}

/* most * (1 - share), rounded. */
INLINE int32_t lower(int32_t most, double share) {
    return (int32_t)((double)most * (1.0 - share) + 0.5);
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
        float place = places[hue[i]], part = shares[share[i]];
        int32_t v = most[i];
        int32_t p = lower(v, part), q = lower(v, part * place);
        int32_t t = lower(v, (double)part * (1.0 - (double)place));
        int32_t sixth = sixths[hue[i]];
        int32_t red = sixth == 0 || sixth == 5 ? v : sixth == 1 ? q : sixth == 4 ? t : p;
        int32_t green = sixth == 1 || sixth == 2 ? v : sixth == 3 ? q : sixth == 0 ? t : p;
        int32_t blue = sixth == 3 || sixth == 4 ? v : sixth == 5 ? q : sixth == 2 ? t : p;
        pixels[4 * i] = (uint8_t)red;
        pixels[4 * i + 1] = (uint8_t)green;
        pixels[4 * i + 2] = (uint8_t)blue;
    }
}

VARIANTS(shift_hue, shift_hue_body, (uint8_t *pixels, size_t count, int32_t shift),
         (pixels, count, shift))

void fd_shift_hue(uint8_t *pixels, size_t count, int32_t shift) {
    pthread_once(&tables_made, make_tables);
    for (size_t from = 0; from < count; from += BLOCK)
        shift_hue(pixels + 4 * from, count - from < BLOCK ? count - from : BLOCK, shift);
}
