/* erase.c: replaces a box of a finished image by constants or noise, as RandomErasing does. */
#include "internal.h"
#include "random.h"

#include <math.h>

/* Normal numbers, two at a time (Marsaglia's polar method). */
typedef struct {
    uint64_t state;
    double spare;
    int has_spare;
} normal;

static float next_normal(normal *numbers) {
    double x, y, square;

    if (numbers->has_spare) {
        numbers->has_spare = 0;
        return (float)numbers->spare;
    }
    do {
        x = 2.0 * fd_draw_share(&numbers->state) - 1.0;
        y = 2.0 * fd_draw_share(&numbers->state) - 1.0;
        square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    double scale = sqrt(-2.0 * log(square) / square);
    numbers->spare = y * scale;
    numbers->has_spare = 1;
    return (float)(x * scale);
}

void fd_erase(float *out, int32_t width, int32_t height, const fd_pixels *form,
              const fd_operation *operation) {
    int channels = form->channels;
    const double *value = operation->value;
    int32_t left = (int32_t)value[0], top = (int32_t)value[1];
    int32_t right = left + (int32_t)value[2], bottom = top + (int32_t)value[3];
    size_t plane = (size_t)width * (size_t)height;
    normal numbers = {.state = operation->seed};
    float levels[3];

    for (int c = 0; c < 3; c++)
        levels[c] = operation->noise == FD_NOISE_CHANNEL ? next_normal(&numbers)
                                                         : operation->level[c];
    for (int c = 0; c < channels; c++)
        for (int32_t y = top; y < bottom; y++) {
            size_t at = (size_t)y * (size_t)width + (size_t)left;
            size_t step = form->channels_first ? 1 : (size_t)channels;
            float *to = out + step * at + (size_t)c * (form->channels_first ? plane : 1);
            for (int32_t x = left; x < right; x++, to += step)
                *to = operation->noise == FD_NOISE_PIXEL ? next_normal(&numbers) : levels[c];
        }
}
