/* warp_avx2.c: the interpolating loop of warp.c for AVX2: the channels of a pixel in one register. */
#include "warp.h"

#ifdef FD_AVX2

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE_AVX2 static inline __attribute__((target("avx2"), always_inline))

INLINE_AVX2 __m256d read_pixel(const uint8_t *at) {
    int32_t four;

    memcpy(&four, at, sizeof four);
    return _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
}

/* Truncate, as Pillow does; the packing limits the values to a byte. */
INLINE_AVX2 void write_pixel(uint8_t *to, __m256d value) {
    __m128i whole = _mm256_cvttpd_epi32(value);
    whole = _mm_packs_epi32(whole, whole);
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(whole, whole));

    memcpy(to, &four, sizeof four);
}

INLINE_AVX2 __m256d linear(__m256d left, __m256d right, __m256d place) {
    return _mm256_add_pd(left, _mm256_mul_pd(_mm256_sub_pd(right, left), place));
}

INLINE_AVX2 __m256d cubic(__m256d a, __m256d b, __m256d c, __m256d d, __m256d place) {
    __m256d p2 = _mm256_sub_pd(c, a), ba = _mm256_sub_pd(b, a);
    __m256d p3 = _mm256_sub_pd(_mm256_sub_pd(c, _mm256_add_pd(ba, ba)), d);
    __m256d p4 = _mm256_add_pd(_mm256_sub_pd(ba, c), d);

    p3 = _mm256_add_pd(p3, _mm256_mul_pd(place, p4));
    p2 = _mm256_add_pd(p2, _mm256_mul_pd(place, p3));
    return _mm256_add_pd(b, _mm256_mul_pd(place, p2));
}

/* Two neighbours in a row, interpolated. */
INLINE_AVX2 __m256d linear_pair(const uint8_t *at, __m256d place) {
    __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
    __m256d left = _mm256_cvtepi32_pd(_mm256_castsi256_si128(both));

    return linear(left, _mm256_cvtepi32_pd(_mm256_extracti128_si256(both, 1)), place);
}

INLINE_AVX2 __m256d bilinear(const fd_canvas *canvas, int32_t x, int32_t y, __m256d dx,
                             __m256d dy) {
    ptrdiff_t width = canvas->width;
    __m256d rows[2];

    if (x >= 0 && y >= 0 && x + 1 < width && y + 1 < canvas->height) {
        const uint8_t *from = canvas->pixels + 4 * (y * width + x);
        rows[0] = linear_pair(from, dx);
        rows[1] = linear_pair(from + 4 * width, dx);
    } else
        for (int i = 0; i < 2; i++)
            rows[i] = linear(read_pixel(fd_pixel(canvas, x, y + i)),
                             read_pixel(fd_pixel(canvas, x + 1, y + i)), dx);
    return linear(rows[0], rows[1], dy);
}

INLINE_AVX2 __m256d cubic_row(const uint8_t *at, __m256d place) {
    return cubic(read_pixel(at - 4), read_pixel(at), read_pixel(at + 4), read_pixel(at + 8), place);
}

INLINE_AVX2 __m256d bicubic(const fd_canvas *canvas, int32_t x, int32_t y, __m256d dx, __m256d dy) {
    ptrdiff_t width = canvas->width;
    __m256d rows[4];

    if (x >= 1 && y >= 1 && x + 2 < width && y + 2 < canvas->height) {
        const uint8_t *from = canvas->pixels + 4 * (y * width + x);
        for (int i = 0; i < 4; i++)
            rows[i] = cubic_row(from + 4 * (i - 1) * width, dx);
    } else
        for (int i = 0; i < 4; i++)
            rows[i] = cubic(read_pixel(fd_pixel(canvas, x - 1, y - 1 + i)),
                            read_pixel(fd_pixel(canvas, x, y - 1 + i)),
                            read_pixel(fd_pixel(canvas, x + 1, y - 1 + i)),
                            read_pixel(fd_pixel(canvas, x + 2, y - 1 + i)), dx);
    return cubic(rows[0], rows[1], rows[2], rows[3], dy);
}

INLINE_AVX2 void warp(const fd_canvas *canvas, const double *m, int is_cubic, const uint8_t *fill) {
    uint8_t *out = canvas->other;
    fd_places at;

    for (int32_t y = 0; y < canvas->height; y++)
        for (int32_t x = 0; x < canvas->width; x++, out += 4) {
            int32_t i = x % FD_PLACES;
            if (i == 0)
                fd_find_places(canvas, m, x, y, &at);
            if (!at.is_inside[i]) {
                memcpy(out, fill, 4);
                continue;
            }
            __m256d dx = _mm256_set1_pd(at.dx[i]), dy = _mm256_set1_pd(at.dy[i]);
            write_pixel(out, is_cubic ? bicubic(canvas, at.x[i], at.y[i], dx, dy)
                                      : bilinear(canvas, at.x[i], at.y[i], dx, dy));
        }
}

AVX2 void fd_warp_smooth_avx2(const fd_canvas *canvas, const double *m, int is_cubic,
                              const uint8_t *fill) {
    if (is_cubic)
        warp(canvas, m, 1, fill);
    else
        warp(canvas, m, 0, fill);
}

#endif
