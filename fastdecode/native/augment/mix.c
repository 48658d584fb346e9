/* mix.c: mixes an image with several changed versions of itself, as AugMix does: in float32. */
#include "operations.h"

#include <string.h>

VARIANTS(set_product,
         (float *restrict sums, const uint8_t *restrict bytes, size_t count, float share),
         (sums, bytes, count, share)) {
    for (size_t i = 0; i < count; i++)
        sums[i] = share * (float)bytes[i];
}

VARIANTS(add_product,
         (float *restrict sums, const uint8_t *restrict bytes, size_t count, float share),
         (sums, bytes, count, share)) {
    for (size_t i = 0; i < count; i++)
        sums[i] += share * (float)bytes[i];
}

/* Blend the bytes that were kept with the mix, whose values are truncated; so is the result. */
VARIANTS(finish,
         (uint8_t *restrict out, const uint8_t *restrict kept, const float *restrict sums,
          size_t count, float share),
         (out, kept, sums, count, share)) {
    for (size_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)sums[i], limited = whole < 255 ? whole : 255;
        float from = (float)kept[i], to = (float)limited;
        out[i] = (uint8_t)(int32_t)(from + share * (to - from));
    }
}

int fd_mix(fd_canvas *canvas, fd_mixing *mixing, const fd_operation *how) {
    size_t count = 4 * fd_count_pixels(canvas);
    float share = (float)how->share;
    int begins = how->kind == FD_MIX_BEGIN;

    if (!(share >= 0.0f && share <= 1.0f) || begins == mixing->is_begun)
        return FD_ARGUMENT;
    if (!begins && (canvas->width != mixing->width || canvas->height != mixing->height))
        return FD_ARGUMENT;
    mixing->width = canvas->width;
    mixing->height = canvas->height;
    mixing->is_begun = how->kind != FD_MIX_END;
    if (begins) {
        mixing->sums = fd_room_for(&mixing->sums_room, count * sizeof(float));
        mixing->kept = fd_room_for(&mixing->kept_room, count);
        if (mixing->sums == NULL || mixing->kept == NULL)
            return FD_NO_MEMORY;
        memcpy(mixing->kept, canvas->pixels, count);
        set_product(mixing->sums, canvas->pixels, count, share);
    } else if (how->kind == FD_MIX_ADD) {
        add_product(mixing->sums, canvas->pixels, count, share);
        memcpy(canvas->pixels, mixing->kept, count);
    } else
        finish(canvas->pixels, mixing->kept, mixing->sums, count, share);
    return FD_OK;
}
