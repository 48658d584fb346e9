/* floats.c: colours with the results of torchvision's functions for tensors of floats, of which the image
 * holds the nearest levels. Operations that follow each other run on floats, which are rounded once.
 */
#include "operations.h"

#include <math.h>
#include <string.h>

INLINE float clamped(float value) { return value < 0.0F ? 0.0F : value > 1.0F ? 1.0F : value; }

INLINE float grey_of(float red, float green, float blue) {
    return 0.2989F * red + 0.587F * green + 0.114F * blue;
}

/* How levels become floats, for each channel. */
typedef struct {
    float scale[3], bias[3];
} form;

VARIANTS(load,
         (float *restrict values, const uint8_t *restrict pixels, size_t count, const form *by),
         (values, pixels, count, by)) {
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < count; i++)
            values[c * count + i] = (float)pixels[4 * i + c] * by->scale[c] + by->bias[c];
}

VARIANTS(save,
         (uint8_t *restrict pixels, const float *restrict values, size_t count, const form *by),
         (pixels, values, count, by)) {
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < count; i++) {
            float level = (values[c * count + i] - by->bias[c]) / by->scale[c];
            level = level < 255.0F ? level : 255.0F;
            /* NaN, too, which a tiny scale makes */
            pixels[4 * i + c] = (uint8_t)(int32_t)rintf(level > 0.0F ? level : 0.0F);
        }
}

/* Blend with a level, and with the luminance. */
VARIANTS(blend,
         (float *restrict red, float *restrict green, float *restrict blue, size_t count,
          float factor, float level, float grey),
         (red, green, blue, count, factor, level, grey)) {
    for (size_t i = 0; i < count; i++) {
        float more = level + grey * grey_of(red[i], green[i], blue[i]);
        red[i] = clamped(factor * red[i] + more);
        green[i] = clamped(factor * green[i] + more);
        blue[i] = clamped(factor * blue[i] + more);
    }
}

static float mean_of(const float *values, size_t count) {
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += (double)grey_of(values[i], values[count + i], values[2 * count + i]);
    return (float)(sum / (double)count);
}

/* One pixel by way of hue, saturation and value. The largest of the three need not be from 0 to 1. */
static void turn_hue(float *red, float *green, float *blue, float shift) {
    float most = fmaxf(fmaxf(*red, *green), *blue), least = fminf(fminf(*red, *green), *blue);
    float range = most - least, over = most == least ? 1.0F : range;
    float r = (most - *red) / over, g = (most - *green) / over, b = (most - *blue) / over;
    float sixths = most == *red ? b - g : most == *green ? 2.0F + r - b : 4.0F + g - r;
    float hue = fmodf(sixths / 6.0F + 1.0F, 1.0F) + shift;
    float share = range / (most == least ? 1.0F : most), place = (hue - floorf(hue)) * 6.0F;
    int32_t sixth = place > 0.0F ? (int32_t)place : 0; /* of NaN, which a `most` of 0 leaves */
    float part = share * (place - (float)sixth);
    float p = clamped(most * (1.0F - share)), q = clamped(most * (1.0F - part));
    float t = clamped(most * (1.0F - share + part));
    const float reds[6] = {most, q, p, p, t, most}, greens[6] = {t, most, most, q, p, p};
    const float blues[6] = {p, p, t, most, most, q};

    *red = reds[sixth % 6];
    *green = greens[sixth % 6];
    *blue = blues[sixth % 6];
}

static void run(float *values, size_t count, const fd_operation *how) {
    float factor = (float)how->colour.amount, *green = values + count, *blue = green + count;

    if (how->kind == FD_BRIGHTNESS)
        blend(values, green, blue, count, factor, 0.0F, 0.0F);
    if (how->kind == FD_CONTRAST)
        blend(values, green, blue, count, factor, (1.0F - factor) * mean_of(values, count), 0.0F);
    if (how->kind == FD_SATURATION)
        blend(values, green, blue, count, factor, 0.0F, 1.0F - factor);
    for (size_t i = 0; i < count && how->kind == FD_HUE; i++)
        turn_hue(&values[i], &green[i], &blue[i], factor);
    for (size_t i = 0; i < count && how->kind == FD_GREY; i++)
        values[i] = green[i] = blue[i] = grey_of(values[i], green[i], blue[i]);
    for (size_t i = 0; i < 3 * count && how->kind == FD_INVERT; i++)
        values[i] = 1.0F - values[i];
}

int fd_run_floats(fd_canvas *canvas, const fd_operation *operations, size_t count, size_t *done) {
    const fd_operation *first = operations;
    const size_t form_size = sizeof first->colour.factor + sizeof first->colour.summand;
    size_t pixels = fd_count_pixels(canvas);
    float *values = fd_room_for(&canvas->scratch, 3 * pixels * sizeof *values);
    form by;

    if (values == NULL)
        return FD_NO_MEMORY;
    for (int c = 0; c < 3; c++) {
        by.scale[c] = (float)first->colour.factor[c];
        by.bias[c] = (float)first->colour.summand[c];
    }
    load(values, canvas->pixels, pixels, &by);
    for (*done = 0; *done < count; ++*done) {
        const fd_operation *next = &operations[*done];
        if (next->library != FD_FLOATS || !fd_is_good(next) ||
            memcmp(next->colour.factor, first->colour.factor, form_size) != 0)
            break;
        run(values, pixels, next);
    }
    save(canvas->pixels, values, pixels, &by);
    return FD_OK;
}
