/* colours.c: converts rows of samples to rows of pixels, as libjpeg's jdsample.c and jdcolor.c do.
 *
 * There is one version in plain C for every processor, and one with AVX2 intrinsics. */
#include "baseline.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- between samples ---- */

/* Each result is three quarters of the nearer sample and a quarter of the other one. As in libjpeg,
 * results are rounded up and down in turn, so that there is no bias. */
INLINE void widen(uint8_t *restrict out, const uint8_t *restrict in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = in + i;
        out[2 * i] = (uint8_t)((3 * at[0] + at[-1] + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((3 * at[0] + at[1] + 2) >> 2);
    }
}

INLINE void widen_between(uint8_t *restrict out, const uint8_t *restrict near,
                          const uint8_t *restrict far, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *n = near + i, *f = far + i;
        int before = 3 * n[-1] + f[-1], here = 3 * n[0] + f[0], after = 3 * n[1] + f[1];
        out[2 * i] = (uint8_t)((3 * here + before + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * here + after + 7) >> 4);
    }
}

INLINE void between(uint8_t *restrict out, const uint8_t *restrict near,
                    const uint8_t *restrict far, int is_lower, size_t count) {
    int rounding = is_lower ? 2 : 1;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)((3 * near[i] + far[i] + rounding) >> 2);
}

static void widen_plain(uint8_t *out, const uint8_t *in, size_t count) { widen(out, in, count); }

static void widen_between_plain(uint8_t *out, const uint8_t *near, const uint8_t *far,
                                size_t count) {
    widen_between(out, near, far, count);
}

static void between_plain(uint8_t *out, const uint8_t *near, const uint8_t *far, int is_lower,
                          size_t count) {
    between(out, near, far, is_lower, count);
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

static void rgb_plain(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                      size_t count) {
    colours(out, y, cb, cr, count, 3);
}

static void rgbx_plain(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                       size_t count) {
    colours(out, y, cb, cr, count, 4);
}

const fd_steps fd_steps_plain = {fd_idct_8x8, fd_idct_4x4,         fd_idct_2x2,   /* idct.c */
                                 widen_plain, widen_between_plain, between_plain,
                                 rgb_plain,   rgbx_plain};

/* ---- AVX2 ---- */

#ifdef FD_AVX2

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

AVX2_INLINE __m256i load(const uint8_t *at) {
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

AVX2_INLINE void store(uint8_t *at, __m256i bytes) {
    _mm256_storeu_si256((__m256i *)(void *)at, bytes);
}

/* 16 samples, 16 bits each. */
AVX2_INLINE __m256i samples(const uint8_t *at) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)at));
}

AVX2_INLINE __m256i times_3(__m256i value) {
    return _mm256_add_epi16(value, _mm256_add_epi16(value, value));
}

/* Interleave results of even and odd positions, 16 bits each, and store them as bytes. */
AVX2_INLINE void store_in_turn(uint8_t *out, __m256i even, __m256i odd) {
    store(out, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
}

AVX2 static void widen_avx2(uint8_t *out, const uint8_t *in, size_t count) {
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);
    for (size_t i = 0; i < count; i += 16) {
        __m256i here = times_3(samples(in + i));
        __m256i even = _mm256_add_epi16(here, _mm256_add_epi16(samples(in + i - 1), one));
        __m256i odd = _mm256_add_epi16(here, _mm256_add_epi16(samples(in + i + 1), two));
        store_in_turn(out + 2 * i, _mm256_srli_epi16(even, 2), _mm256_srli_epi16(odd, 2));
    }
}

AVX2_INLINE __m256i blended(const uint8_t *near, const uint8_t *far) {
    return _mm256_add_epi16(times_3(samples(near)), samples(far));
}

AVX2 static void widen_between_avx2(uint8_t *out, const uint8_t *near, const uint8_t *far,
                                    size_t count) {
    const __m256i seven = _mm256_set1_epi16(7), eight = _mm256_set1_epi16(8);
    for (size_t i = 0; i < count; i += 16) {
        __m256i here = times_3(blended(near + i, far + i));
        __m256i even = _mm256_add_epi16(blended(near + i - 1, far + i - 1), eight);
        __m256i odd = _mm256_add_epi16(blended(near + i + 1, far + i + 1), seven);
        store_in_turn(out + 2 * i, _mm256_srli_epi16(_mm256_add_epi16(here, even), 4),
                      _mm256_srli_epi16(_mm256_add_epi16(here, odd), 4));
    }
}

AVX2 static void between_avx2(uint8_t *out, const uint8_t *near, const uint8_t *far, int is_lower,
                              size_t count) {
    between(out, near, far, is_lower, count);
}

/* 32 pixels as planes of red, green and blue. Factors above 1 would need 17 bits, so only a fraction
 * is multiplied, and a whole multiple added: 1.402 = 1 + 0.402, 1.772 = 2 - 0.228,
 * 0.714 = 1 - 0.286. */
typedef struct {
    __m256i red, green, blue;
} planes;

AVX2_INLINE planes half_of_them(__m256i y, __m256i cb, __m256i cr) {
    const __m256i centre = _mm256_set1_epi16(128), one = _mm256_set1_epi16(1);
    const __m256i half = _mm256_set1_epi32(HALF);
    const __m256i green_factors = _mm256_set1_epi32(
        (int)((uint32_t)(-G_CB & 0xFFFF) | (uint32_t)(65536 - G_CR) << 16));
    planes out;
    cb = _mm256_sub_epi16(cb, centre);
    cr = _mm256_sub_epi16(cr, centre);
    __m256i cb2 = _mm256_add_epi16(cb, cb), cr2 = _mm256_add_epi16(cr, cr);
    __m256i red = _mm256_mulhi_epi16(cr2, _mm256_set1_epi16(R_CR - 65536));
    __m256i blue = _mm256_mulhi_epi16(cb2, _mm256_set1_epi16((short)(B_CB - 2 * 65536)));
    red = _mm256_add_epi16(cr, _mm256_srai_epi16(_mm256_add_epi16(red, one), 1));
    blue = _mm256_add_epi16(cb2, _mm256_srai_epi16(_mm256_add_epi16(blue, one), 1));
    __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), green_factors);
    __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), green_factors);
    low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
    high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
    out.red = _mm256_add_epi16(y, red);
    out.green = _mm256_add_epi16(y, _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr));
    out.blue = _mm256_add_epi16(y, blue);
    return out;
}

AVX2_INLINE planes of_32(const uint8_t *y, const uint8_t *cb, const uint8_t *cr) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i ys = load(y), cbs = load(cb), crs = load(cr);
    planes low = half_of_them(_mm256_unpacklo_epi8(ys, zero), _mm256_unpacklo_epi8(cbs, zero),
                              _mm256_unpacklo_epi8(crs, zero));
    planes high = half_of_them(_mm256_unpackhi_epi8(ys, zero), _mm256_unpackhi_epi8(cbs, zero),
                               _mm256_unpackhi_epi8(crs, zero));
    planes out = {_mm256_packus_epi16(low.red, high.red),
                  _mm256_packus_epi16(low.green, high.green),
                  _mm256_packus_epi16(low.blue, high.blue)};
    return out;
}

/* 32 pixels of four bytes, in order. */
AVX2_INLINE void interleave(const planes *from, __m256i pixels[4]) {
    const __m256i full = _mm256_set1_epi8((char)0xFF);
    __m256i rg_low = _mm256_unpacklo_epi8(from->red, from->green);
    __m256i rg_high = _mm256_unpackhi_epi8(from->red, from->green);
    __m256i bx_low = _mm256_unpacklo_epi8(from->blue, full);
    __m256i bx_high = _mm256_unpackhi_epi8(from->blue, full);
    __m256i a = _mm256_unpacklo_epi16(rg_low, bx_low), b = _mm256_unpackhi_epi16(rg_low, bx_low);
    __m256i c = _mm256_unpacklo_epi16(rg_high, bx_high);
    __m256i d = _mm256_unpackhi_epi16(rg_high, bx_high);
    pixels[0] = _mm256_permute2x128_si256(a, b, 0x20);
    pixels[1] = _mm256_permute2x128_si256(c, d, 0x20);
    pixels[2] = _mm256_permute2x128_si256(a, b, 0x31);
    pixels[3] = _mm256_permute2x128_si256(c, d, 0x31);
}

AVX2 static void rgbx_avx2(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                           size_t count) {
    for (size_t i = 0; i < count; i += FD_COLOUR_STEP) {
        __m256i pixels[4];
        planes made = of_32(y + i, cb + i, cr + i);
        interleave(&made, pixels);
        for (size_t k = 0; k < 4; k++)
            store(out + 4 * i + 32 * k, pixels[k]);
    }
}

AVX2 static void rgb_avx2(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                          size_t count) {
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i close = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    for (size_t i = 0; i < count; i += FD_COLOUR_STEP) {
        __m256i pixels[4];
        planes made = of_32(y + i, cb + i, cr + i);
        interleave(&made, pixels);
        for (size_t k = 0; k < 4; k++) { /* 24 bytes each; the next store overwrites the rest */
            __m256i packed = _mm256_shuffle_epi8(pixels[k], order);
            store(out + 3 * i + 24 * k, _mm256_permutevar8x32_epi32(packed, close));
        }
    }
}

const fd_steps fd_steps_avx2 = {
    fd_idct_8x8_avx2, fd_idct_4x4_avx2,   fd_idct_2x2_avx2, /* idct_avx2.c */
    widen_avx2,       widen_between_avx2, between_avx2,     rgb_avx2, rgbx_avx2};

#endif
