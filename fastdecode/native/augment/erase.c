/* erase.c: replaces a box of a finished image by constants or noise, as RandomErasing does. */
#include "internal.h"
#include "random.h"

void fd_erase(float *out, int32_t width, int32_t height, const fd_pixels *form,
              const fd_operation *operation) {
    int channels = form->channels;
    int32_t left = (int32_t)operation->box.left, right = left + (int32_t)operation->box.width;
    int32_t top = (int32_t)operation->box.top, bottom = top + (int32_t)operation->box.height;
    size_t plane = (size_t)width * (size_t)height;
    fd_normal numbers = {.state = operation->seed};
    float levels[3];

    for (int c = 0; c < 3; c++)
        levels[c] = operation->noise == FD_NOISE_CHANNEL ? fd_next_normal(&numbers)
                                                         : operation->level[c];
    for (int c = 0; c < channels; c++)
        for (int32_t y = top; y < bottom; y++) {
            size_t at = (size_t)y * (size_t)width + (size_t)left;
            size_t step = form->channels_first ? 1 : (size_t)channels;
            float *to = out + step * at + (size_t)c * (form->channels_first ? plane : 1);
            for (int32_t x = left; x < right; x++, to += step)
                *to = operation->noise == FD_NOISE_PIXEL ? fd_next_normal(&numbers) : levels[c];
        }
}
