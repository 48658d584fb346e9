/* twopass_avx2.c: the two passes of twopass.c for AVX2.
 *
 * A weight has 23 bits. Its two parts have 16 bits each, so that one instruction multiplies two pixels
 * by a part of their weights and adds the products; the sums of the parts are joined at the end.
 */
#include "twopass.h"

#ifdef FD_AVX2

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 void fd_resize_row_avx2(uint8_t *out, const uint8_t *row, const fd_pillow_axis *axis,
                             int32_t width) {
    /* Two pixels in each half: R R G G B B X X. */
    const __m256i pairs = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0,
                                           1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    const __m256i first = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256i second = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i half = _mm_set1_epi32(1 << (FD_WEIGHT_BITS - 1));

    for (int32_t x = 0; x < width; x++) {
        const int16_t *parts = axis->parts + 2 * (size_t)x * (size_t)axis->stride;
        const uint8_t *from = row + 4 * (size_t)axis->first[x];
        __m256i high = _mm256_setzero_si256(), low = high;
        for (int32_t k = 0; k < axis->count[x]; k += FD_TAPS) {
            __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(from + 4 * k));
            __m256i pixels = _mm256_shuffle_epi8(_mm256_cvtepu8_epi16(four), pairs);
            __m256i weights = _mm256_castsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)(parts + 2 * k)));
            __m256i upper = _mm256_permutevar8x32_epi32(weights, first);
            __m256i lower = _mm256_permutevar8x32_epi32(weights, second);
            high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, upper));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, lower));
        }
        __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high, FD_LOW_BITS), low);
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both),
                                    _mm256_extracti128_si256(both, 1));
        sum = _mm_srai_epi32(_mm_add_epi32(sum, half), FD_WEIGHT_BITS);
        sum = _mm_packs_epi32(sum, sum);
        int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out + 4 * (ptrdiff_t)x, &pixel, sizeof pixel);
    }
}

/* Two neighbouring parts of weights, in each 32 bits. */
AVX2 static inline __m256i two_parts(const int16_t *parts) {
    int32_t both;

    memcpy(&both, parts, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Join the sums of both parts, and round them to whole values. */
AVX2 static inline __m256i joined(__m256i high, __m256i low) {
    const __m256i half = _mm256_set1_epi32(1 << (FD_WEIGHT_BITS - 1));
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, FD_LOW_BITS), low);

    return _mm256_srai_epi32(_mm256_add_epi32(sum, half), FD_WEIGHT_BITS);
}

AVX2 void fd_blend_rows_avx2(uint8_t *out, const uint8_t *const *rows, size_t stride,
                             const int16_t *parts, int32_t taps) {
    for (size_t from = 0; from < stride; from += 16) {
        __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int32_t k = 0; k < taps; k += 2) {
            const int16_t *at = parts + k / FD_TAPS * 2 * FD_TAPS + k % FD_TAPS;
            const uint8_t *next = rows[k + 1 < taps ? k + 1 : k]; /* after the last: weight 0 */
            __m128i one = _mm_loadu_si128((const __m128i *)(const void *)(rows[k] + from));
            __m128i two = _mm_loadu_si128((const __m128i *)(const void *)(next + from));
            __m256i upper = two_parts(at), lower = two_parts(at + FD_TAPS);
            __m256i first = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(one, two));
            __m256i second = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(one, two));
            high[0] = _mm256_add_epi32(high[0], _mm256_madd_epi16(first, upper));
            low[0] = _mm256_add_epi32(low[0], _mm256_madd_epi16(first, lower));
            high[1] = _mm256_add_epi32(high[1], _mm256_madd_epi16(second, upper));
            low[1] = _mm256_add_epi32(low[1], _mm256_madd_epi16(second, lower));
        }
        __m256i words = _mm256_packs_epi32(joined(high[0], low[0]), joined(high[1], low[1]));
        words = _mm256_permute4x64_epi64(words, 0xd8); /* in order */
        __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words),
                                         _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + from), bytes);
    }
}

#endif
