/* colours.c: converts rows of samples to rows of pixels, as libjpeg's jdsample.c and jdcolor.c do.
 *
 * colours_simd.h has the same in vectors. */
#include "baseline.h"

/* ---- between samples ---- */

/* Each result is three quarters of the nearer sample and a quarter of the other one. As in libjpeg,
 * results are rounded up and down in turn, so that there is no bias. */
static void widen(uint8_t *restrict out, const uint8_t *restrict in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = in + i;
        out[2 * i] = (uint8_t)((3 * at[0] + at[-1] + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((3 * at[0] + at[1] + 2) >> 2);
    }
}

static void widen_between(uint8_t *restrict out, const uint8_t *restrict near,
                          const uint8_t *restrict far, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *n = near + i, *f = far + i;
        int before = 3 * n[-1] + f[-1], here = 3 * n[0] + f[0], after = 3 * n[1] + f[1];
        out[2 * i] = (uint8_t)((3 * here + before + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * here + after + 7) >> 4);
    }
}

static void between(uint8_t *restrict out, const uint8_t *restrict near,
                    const uint8_t *restrict far, int is_lower, size_t count) {
    int rounding = is_lower ? 2 : 1;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)((3 * near[i] + far[i] + rounding) >> 2);
}

/* ---- colours ---- */

enum { /* in 1 / 65536, as jdcolor.c rounds them */
       R_CR = 91881,
       B_CB = 116130,
       G_CB = 22554,
       G_CR = 46802,
       HALF = 32768
};

INLINE uint8_t clamped(int32_t value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

INLINE void colours(uint8_t *restrict out, const uint8_t *restrict y, const uint8_t *restrict cb,
                    const uint8_t *restrict cr, size_t count, const size_t bytes) {
    for (size_t i = 0; i < count; i++) {
        int32_t b = cb[i] - 128, r = cr[i] - 128;
        out[bytes * i] = clamped(y[i] + ((R_CR * r + HALF) >> 16));
        out[bytes * i + 1] = clamped(y[i] + ((-G_CB * b - G_CR * r + HALF) >> 16));
        out[bytes * i + 2] = clamped(y[i] + ((B_CB * b + HALF) >> 16));
        if (bytes == 4)
            out[bytes * i + 3] = 255;
    }
}

static void rgb(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                size_t count) {
    colours(out, y, cb, cr, count, 3);
}

static void rgbx(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                 size_t count) {
    colours(out, y, cb, cr, count, 4);
}

const fd_steps fd_steps_plain = {fd_idct_8x8,   fd_idct_4x4, fd_idct_2x2, widen,
                                 widen_between, between,     rgb,         rgbx};
