/* kernels_avx2.c: the one loop of kernels.c that the compiler does not vectorise well for AVX2.
 *
 * Each result starts at a different pixel. With intrinsics the loop takes an eighth of the time.
 */
#include "kernels.h"

#ifdef FD_AVX2

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

/* The next two pixels of two results, each as R R G G B B X X, so that one instruction multiplies
 * both pixels by their weights and adds the products. */
INLINE __m256i two_pixels(const int16_t *low, const int16_t *high) {
    const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0,
                                           1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)low);
    __m128i second = _mm_loadu_si128((const __m128i *)(const void *)high);

    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1),
                               order);
}

/* Results i and i + 4 of a group share a register, so that all are stored in order. `pairs` is a
 * compile-time constant if it is small. */
INLINE void squeeze(uint8_t *out, const int16_t *row, const fd_columns *columns, int32_t pairs) {
    const __m128i shift = _mm_cvtsi32_si128(columns->shift);
    const int16_t *weights = columns->weights;

    for (int32_t g = 0; g < columns->groups; g++) {
        const int32_t *first = columns->first + (ptrdiff_t)g * FD_GROUP;
        const int16_t *pixel[FD_GROUP];
        __m256i sum[4];

        for (int i = 0; i < FD_GROUP; i++) {
            pixel[i] = row + 4 * (ptrdiff_t)first[i];
        }
        for (int i = 0; i < 4; i++) {
            sum[i] = _mm256_setzero_si256();
        }
        for (int32_t k = 0; k < pairs; k++) {
            __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)weights);
            const __m256i weight[4] = {
                _mm256_shuffle_epi32(all, 0x00), _mm256_shuffle_epi32(all, 0x55),
                _mm256_shuffle_epi32(all, 0xaa), _mm256_shuffle_epi32(all, 0xff)};

            for (int i = 0; i < 4; i++) {
                __m256i both = two_pixels(pixel[i] + 8 * (ptrdiff_t)k,
                                          pixel[i + 4] + 8 * (ptrdiff_t)k);
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(both, weight[i]));
            }
            weights += 2 * FD_GROUP;
        }
        for (int i = 0; i < 4; i++) {
            sum[i] = _mm256_sra_epi32(sum[i], shift);
        }
        _mm256_storeu_si256((__m256i *)(void *)(out + (ptrdiff_t)g * FD_GROUP * 4),
                            _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]),
                                                _mm256_packs_epi32(sum[2], sum[3])));
    }
}

AVX2 void fd_squeeze_avx2(uint8_t *out, const int16_t *row, const fd_columns *columns) {
    switch (columns->pairs) {
    case 1:
        squeeze(out, row, columns, 1);
        break;
    case 2:
        squeeze(out, row, columns, 2);
        break;
    default:
        squeeze(out, row, columns, columns->pairs);
    }
}

#endif
