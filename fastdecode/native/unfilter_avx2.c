/* unfilter_avx2.c: the filters of PNG, a pixel or 16 bytes at a time. Rows are read and written up to
 * FD_ROW_PADDING bytes past their ends. */
#include "png_decoder.h"

#ifdef FD_AVX2

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE_AVX2 static inline __attribute__((target("avx2"), always_inline))

/* `step` is a constant in all of these. */
INLINE_AVX2 __m128i read_pixel(const uint8_t *at, size_t step) {
    int32_t four;

    if (step > 4)
        return _mm_loadl_epi64((const __m128i *)(const void *)at);
    memcpy(&four, at, sizeof four);
    return _mm_cvtsi32_si128(four);
}

INLINE_AVX2 void write_pixel(uint8_t *at, __m128i pixel, size_t step) {
    int32_t four = _mm_cvtsi128_si32(pixel);

    if (step > 4)
        _mm_storel_epi64((__m128i *)(void *)at, pixel);
    else
        memcpy(at, &four, step < 3 ? step : 4);
}

INLINE_AVX2 __m128i read16(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

INLINE_AVX2 void write16(uint8_t *at, __m128i value) {
    _mm_storeu_si128((__m128i *)(void *)at, value);
}

INLINE_AVX2 __m128i widened(__m128i pixel) { return _mm_unpacklo_epi8(pixel, _mm_setzero_si128()); }

/* One pixel in lanes of 16 bits. Only two of the distances depend on `left`, which is the result for the
 * pixel before: they decide how long a pixel takes. */
INLINE_AVX2 __m128i paeth_pixel(__m128i data, __m128i left, __m128i above, __m128i corner) {
    __m128i rise = _mm_sub_epi16(above, corner), run = _mm_sub_epi16(left, corner);
    __m128i to_left = _mm_abs_epi16(rise), to_above = _mm_abs_epi16(run);
    __m128i to_corner = _mm_abs_epi16(_mm_add_epi16(run, rise));
    __m128i nearer = _mm_min_epi16(to_left, to_above);
    __m128i best = _mm_blendv_epi8(_mm_add_epi8(data, left), _mm_add_epi8(data, above),
                                   _mm_cmpgt_epi16(to_left, to_above));

    return _mm_blendv_epi8(best, _mm_add_epi8(data, corner), _mm_cmpgt_epi16(nearer, to_corner));
}

INLINE_AVX2 void paeth_row(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                           size_t step) {
    __m128i left = _mm_setzero_si128(), corner = left;

    for (size_t i = 0; i < size; i += step) {
        __m128i top = widened(read_pixel(above + i, step));
        left = paeth_pixel(widened(read_pixel(in + i, step)), left, top, corner);
        corner = top;
        write_pixel(out + i, _mm_packus_epi16(left, left), step);
    }
}

INLINE_AVX2 void average_row(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                             size_t step) {
    __m128i left = _mm_setzero_si128(), one = _mm_set1_epi8(1);

    for (size_t i = 0; i < size; i += step) {
        __m128i top = read_pixel(above + i, step);
        __m128i odd = _mm_and_si128(_mm_xor_si128(left, top), one); /* PNG rounds down, avg up */
        __m128i mean = _mm_sub_epi8(_mm_avg_epu8(left, top), odd);
        left = _mm_add_epi8(read_pixel(in + i, step), mean);
        write_pixel(out + i, left, step);
    }
}

/* Sums of all pixels before, within 16 bytes; then the last of the bytes before is added. */
INLINE_AVX2 void sub_row(uint8_t *out, const uint8_t *in, size_t size, size_t step) {
    const size_t whole = 16 / step * step;
    __m128i left = _mm_setzero_si128(), last;
    uint8_t order[16];

    for (size_t i = 0; i < 16; i++)
        order[i] = (uint8_t)(whole - step + i % step);
    last = read16(order);
    for (size_t i = 0; i < size; i += whole) {
        __m128i sums = read16(in + i);
        if (step == 1)
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 1));
        if (step <= 2)
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 2));
        if (step == 3) {
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 3));
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 6));
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 12));
        }
        if (step == 6)
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 6));
        if (step == 1 || step == 2 || step == 4)
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 4));
        if (step == 1 || step == 2 || step == 4 || step == 8)
            sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 8));
        sums = _mm_add_epi8(sums, left);
        write16(out + i, sums);
        left = _mm_shuffle_epi8(sums, last);
    }
}

/* One function for each distance between pixels, so that it is a constant. */
#define FOR_EACH_STEP(call)                                                                        \
    switch (step) {                                                                                \
    case 1:                                                                                        \
        call(1);                                                                                   \
        break;                                                                                     \
    case 2:                                                                                        \
        call(2);                                                                                   \
        break;                                                                                     \
    case 3:                                                                                        \
        call(3);                                                                                   \
        break;                                                                                     \
    case 4:                                                                                        \
        call(4);                                                                                   \
        break;                                                                                     \
    case 6:                                                                                        \
        call(6);                                                                                   \
        break;                                                                                     \
    default:                                                                                       \
        call(8);                                                                                   \
    }

AVX2 static void none(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                      size_t step) {
    (void)above, (void)step;
    memcpy(out, in, size);
}

AVX2 static void sub(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                     size_t step) {
    (void)above;
#define SUB(n) sub_row(out, in, size, n)
    FOR_EACH_STEP(SUB)
}

AVX2 static void up(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                    size_t step) {
    (void)step;
    for (size_t i = 0; i < size; i += 16)
        write16(out + i, _mm_add_epi8(read16(in + i), read16(above + i)));
}

AVX2 static void average(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                         size_t step){
#define AVERAGE(n) average_row(out, in, above, size, n)
    FOR_EACH_STEP(AVERAGE)}

AVX2 static void paeth(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                       size_t step){
#define PAETH(n) paeth_row(out, in, above, size, n)
    FOR_EACH_STEP(PAETH)}

/* The lower row follows one pixel behind the upper one, in the other half of the same registers. */
INLINE_AVX2 void two_rows(uint8_t *upper, uint8_t *lower, const uint8_t *in,
                          const uint8_t *in_lower, const uint8_t *above, size_t size, size_t step) {
    const __m128i zero = _mm_setzero_si128();
    __m128i top = widened(read_pixel(above, step));
    __m128i left = paeth_pixel(widened(read_pixel(in, step)), zero, top, zero), corner = top;

    write_pixel(upper, _mm_packus_epi16(left, left), step);
    for (size_t i = step; i < size; i += step) {
        int32_t one, other;
        memcpy(&one, in + i, sizeof one);
        memcpy(&other, in_lower + i - step, sizeof other);
        __m128i data = widened(_mm_insert_epi32(_mm_cvtsi32_si128(one), other, 1));
        top = _mm_unpacklo_epi64(widened(read_pixel(above + i, step)), left);
        left = paeth_pixel(data, left, top, corner);
        corner = top;
        __m128i both = _mm_packus_epi16(left, left);
        write_pixel(upper + i, both, step);
        write_pixel(lower + i - step, _mm_srli_si128(both, 4), step);
    }
    __m128i data = widened(_mm_slli_si128(read_pixel(in_lower + size - step, step), 4));
    left = paeth_pixel(data, left, _mm_unpacklo_epi64(zero, left), corner);
    write_pixel(lower + size - step, _mm_srli_si128(_mm_packus_epi16(left, left), 4), step);
}

AVX2 static void two_paeth(uint8_t *out, size_t out_stride, const uint8_t *in, size_t in_stride,
                           const uint8_t *above, size_t size, size_t step) {
    if (step == 3)
        two_rows(out, out + out_stride, in, in + in_stride, above, size, 3);
    else
        two_rows(out, out + out_stride, in, in + in_stride, above, size, 4);
}

const fd_unfilters fd_unfilters_avx2 = {{none, sub, up, average, paeth}, two_paeth};

#else

typedef int fd_no_avx2; /* ISO C wants a declaration in every file */

#endif
