/* idct_avx2.c: the inverse DCTs of idct.c for AVX2, with one block in each half of a register.
 *
 * Values have 16 bits; products and sums of two products have 32. Blocks whose values could exceed
 * 16 bits go to idct.c. Samples are clamped, as in libjpeg-turbo with SSE2 or AVX2. Shortcuts for
 * blocks with few coefficients were measured: mispredicted branches cost more than they save. */
#include "baseline.h"

#ifdef FD_AVX2

#include "idct.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum {
    CONSTANT_BITS = 13,
    COLUMN_BITS = 2,
    /* Limit of the sum of a column's magnitudes: results are at most 4 * 1.39 times as large, and
     * the row pass adds two of them in 16 bits. */
    LARGEST_SUM = 32767 / 12
};

/* The lower and upper halves of a row, four values of 32 bits each. */
typedef struct {
    __m256i low, high;
} wide;

/* a * p + b * q, for the pairs of two rows. */
INLINE wide products(__m256i a, __m256i b, int p, int q) {
    const __m256i factors = _mm256_set1_epi32((int)((uint32_t)(p & 0xFFFF) | (uint32_t)q << 16));
    wide sum = {_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), factors),
                _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), factors)};
    return sum;
}

INLINE wide plus(wide a, wide b) {
    wide sum = {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
    return sum;
}

INLINE wide minus(wide a, wide b) {
    wide difference = {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
    return difference;
}

/* Drop the fraction bits; the sum was already offset by half for rounding. */
INLINE __m256i narrow(wide sum, int shift) {
    return _mm256_packs_epi32(_mm256_srai_epi32(sum.low, shift),
                              _mm256_srai_epi32(sum.high, shift));
}

INLINE void transform(__m256i *row, const int shift) {
    const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    wide even0 = products(row[0], row[4], 1 << CONSTANT_BITS, 1 << CONSTANT_BITS);
    wide even1 = products(row[0], row[4], 1 << CONSTANT_BITS, -(1 << CONSTANT_BITS));
    wide even2 = products(row[2], row[6], F_0_541, F_0_541 - F_1_847);
    wide even3 = products(row[2], row[6], F_0_541 + F_0_765, F_0_541);
    wide rounding = {half, half};
    even0 = plus(even0, rounding);
    even1 = plus(even1, rounding);
    wide a0 = plus(even0, even3), a3 = minus(even0, even3);
    wide a1 = plus(even1, even2), a2 = minus(even1, even2);

    __m256i sum73 = _mm256_add_epi16(row[7], row[3]), sum51 = _mm256_add_epi16(row[5], row[1]);
    wide z3 = products(sum73, sum51, F_1_175 - F_1_961, F_1_175);
    wide z4 = products(sum73, sum51, F_1_175, F_1_175 - F_0_390);
    wide b0 = plus(products(row[7], row[1], F_0_298 - F_0_899, -F_0_899), z3);
    wide b3 = plus(products(row[7], row[1], -F_0_899, F_1_501 - F_0_899), z4);
    wide b1 = plus(products(row[5], row[3], F_2_053 - F_2_562, -F_2_562), z4);
    wide b2 = plus(products(row[5], row[3], -F_2_562, F_3_072 - F_2_562), z3);

    row[0] = narrow(plus(a0, b3), shift);
    row[7] = narrow(minus(a0, b3), shift);
    row[1] = narrow(plus(a1, b2), shift);
    row[6] = narrow(minus(a1, b2), shift);
    row[2] = narrow(plus(a2, b1), shift);
    row[5] = narrow(minus(a2, b1), shift);
    row[3] = narrow(plus(a3, b0), shift);
    row[4] = narrow(minus(a3, b0), shift);
}

INLINE void transpose(__m256i *row) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = _mm256_unpacklo_epi32(a[4 * i + j], a[4 * i + j + 2]);
            b[4 * i + 2 * j + 1] = _mm256_unpackhi_epi32(a[4 * i + j], a[4 * i + j + 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        row[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
        row[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
    }
}

/* Transpose the columns of both blocks, and store them as rows of samples. */
INLINE void store(const __m256i *column, uint8_t *out, size_t stride) {
    const __m256i centre = _mm256_set1_epi8((char)0x80);
    __m256i p[4], q[4], rows[4];
    for (int i = 0; i < 4; i++) /* column i of 8 rows, and column i + 4 */
        p[i] = _mm256_xor_si256(_mm256_packs_epi16(column[i], column[i + 4]), centre);
    q[0] = _mm256_unpacklo_epi8(p[0], p[2]); /* columns 0 and 2, row by row */
    q[1] = _mm256_unpacklo_epi8(p[1], p[3]);
    q[2] = _mm256_unpackhi_epi8(p[0], p[2]); /* 4 and 6 */
    q[3] = _mm256_unpackhi_epi8(p[1], p[3]);
    p[0] = _mm256_unpacklo_epi8(q[0], q[1]); /* columns 0 to 3 of rows 0 to 3 */
    p[1] = _mm256_unpackhi_epi8(q[0], q[1]); /* of rows 4 to 7 */
    p[2] = _mm256_unpacklo_epi8(q[2], q[3]);
    p[3] = _mm256_unpackhi_epi8(q[2], q[3]);
    rows[0] = _mm256_unpacklo_epi32(p[0], p[2]);
    rows[1] = _mm256_unpackhi_epi32(p[0], p[2]);
    rows[2] = _mm256_unpacklo_epi32(p[1], p[3]);
    rows[3] = _mm256_unpackhi_epi32(p[1], p[3]);
    for (int i = 0; i < 4; i++) {
        __m256i both = _mm256_permute4x64_epi64(rows[i], 0xD8); /* two rows of the two blocks */
        _mm_storeu_si128((__m128i *)(void *)(out + (size_t)(2 * i) * stride),
                         _mm256_castsi256_si128(both));
        _mm_storeu_si128((__m128i *)(void *)(out + (size_t)(2 * i + 1) * stride),
                         _mm256_extracti128_si256(both, 1));
    }
}

/* Dequantise both blocks. Returns 0 if their values might exceed 16 bits. */
INLINE int dequantise(__m256i *row, const int16_t *first, const int16_t *second,
                      const uint16_t *quantiser) {
    __m256i sums = _mm256_setzero_si256();
    for (int i = 0; i < FD_SIDE; i++) {
        const __m128i *low = (const __m128i *)(const void *)(first + FD_SIDE * i);
        const __m128i *high = (const __m128i *)(const void *)(second + FD_SIDE * i);
        __m256i steps = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)(quantiser + FD_SIDE * i)));
        __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                               _mm_loadu_si128(high), 1);
        row[i] = _mm256_mullo_epi16(both, steps);
        sums = _mm256_adds_epi16(sums, _mm256_abs_epi16(row[i]));
    }
    __m256i large = _mm256_cmpgt_epi16(sums, _mm256_set1_epi16(LARGEST_SUM));
    return __builtin_expect(_mm256_testz_si256(large, large), 1);
}

AVX2 int fd_idct_8x8_avx2(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                          uint8_t *out, size_t stride) {
    __m256i row[8];
    if (!dequantise(row, first, second, quantiser))
        return fd_idct_8x8(first, second, quantiser, out, stride);
    transform(row, CONSTANT_BITS - COLUMN_BITS);
    transpose(row);
    transform(row, CONSTANT_BITS + COLUMN_BITS + 3);
    store(row, out, stride);
    return 1;
}

/* ---- 4 by 4 ---- */

AVX2 int fd_idct_4x4_avx2(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                          uint8_t *out, size_t stride) {
    enum { COLUMNS = CONSTANT_BITS - COLUMN_BITS + 1, ROWS = CONSTANT_BITS + COLUMN_BITS + 3 + 1 };
    const __m256i zero = _mm256_setzero_si256();
    const __m256i half = _mm256_set1_epi32(1 << (COLUMNS - 1));
    const wide rounding = {half, half};
    __m256i row[8];
    if (!dequantise(row, first, second, quantiser))
        return fd_idct_4x4(first, second, quantiser, out, stride);

    wide even = plus(products(row[0], zero, 1 << (CONSTANT_BITS + 1), 0), rounding);
    wide more = products(row[2], row[6], F_1_847, -F_0_765);
    wide b0 = plus(products(row[1], row[3], F_2_562, F_0_899),
                   products(row[5], row[7], -F_0_601, -F_0_509));
    wide b1 = plus(products(row[1], row[3], F_1_061, -F_2_172),
                   products(row[5], row[7], F_1_451, -F_0_211));
    wide a0 = plus(even, more), a1 = minus(even, more);
    __m256i w0 = narrow(plus(a0, b0), COLUMNS), w3 = narrow(minus(a0, b0), COLUMNS);
    __m256i w1 = narrow(plus(a1, b1), COLUMNS), w2 = narrow(minus(a1, b1), COLUMNS);

    /* Columns of four values, two per half: 0 and 1, 2 and 3, 4 and 5, 6 and 7. */
    __m256i t0 = _mm256_unpacklo_epi16(w0, w1), t1 = _mm256_unpackhi_epi16(w0, w1);
    __m256i t2 = _mm256_unpacklo_epi16(w2, w3), t3 = _mm256_unpackhi_epi16(w2, w3);
    __m256i c01 = _mm256_unpacklo_epi32(t0, t2), c23 = _mm256_unpackhi_epi32(t0, t2);
    __m256i c45 = _mm256_unpacklo_epi32(t1, t3), c67 = _mm256_unpackhi_epi32(t1, t3);
    wide c0 = products(c01, zero, 1 << (CONSTANT_BITS + 1), 0); /* the lower halves count */
    wide c26 = products(c23, c67, F_1_847, -F_0_765);
    __m256i base = _mm256_add_epi32(c0.low, _mm256_set1_epi32(1 << (ROWS - 1)));
    __m256i e0 = _mm256_add_epi32(base, c26.low), e1 = _mm256_sub_epi32(base, c26.low);
    __m256i o0 = _mm256_add_epi32(products(c01, c23, F_2_562, F_0_899).high, /* the upper ones */
                                  products(c45, c67, -F_0_601, -F_0_509).high);
    __m256i o1 = _mm256_add_epi32(products(c01, c23, F_1_061, -F_2_172).high,
                                  products(c45, c67, F_1_451, -F_0_211).high);
    wide left = {_mm256_add_epi32(e0, o0), _mm256_add_epi32(e1, o1)};
    wide right = {_mm256_sub_epi32(e1, o1), _mm256_sub_epi32(e0, o0)};

    const __m256i centre = _mm256_set1_epi8((char)0x80);
    const __m256i by_row = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0,
                                            4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i bytes = _mm256_packs_epi16(narrow(left, ROWS), narrow(right, ROWS));
    bytes = _mm256_shuffle_epi8(_mm256_xor_si256(bytes, centre), by_row);
    __m128i one = _mm256_castsi256_si128(bytes), other = _mm256_extracti128_si256(bytes, 1);
    __m128i upper = _mm_unpacklo_epi32(one, other), lower = _mm_unpackhi_epi32(one, other);
    _mm_storel_epi64((__m128i *)(void *)out, upper);
    _mm_storel_epi64((__m128i *)(void *)(out + stride), _mm_unpackhi_epi64(upper, upper));
    _mm_storel_epi64((__m128i *)(void *)(out + 2 * stride), lower);
    _mm_storel_epi64((__m128i *)(void *)(out + 3 * stride), _mm_unpackhi_epi64(lower, lower));
    return 1;
}

/* ---- 2 by 2 ---- */

AVX2 int fd_idct_2x2_avx2(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                          uint8_t *out, size_t stride) {
    enum { COLUMNS = CONSTANT_BITS - COLUMN_BITS + 2, ROWS = CONSTANT_BITS + COLUMN_BITS + 3 + 2 };
    const __m256i zero = _mm256_setzero_si256();
    const __m256i half = _mm256_set1_epi32(1 << (COLUMNS - 1));
    const wide rounding = {half, half};
    __m256i row[8];
    if (!dequantise(row, first, second, quantiser))
        return fd_idct_2x2(first, second, quantiser, out, stride);

    wide a = plus(products(row[0], row[0], 1 << (CONSTANT_BITS + 1), 1 << (CONSTANT_BITS + 1)),
                  rounding);
    wide b = plus(products(row[1], row[3], F_3_624, -F_1_272),
                  products(row[5], row[7], F_0_850, -F_0_720));
    __m256i w0 = narrow(plus(a, b), COLUMNS), w1 = narrow(minus(a, b), COLUMNS);

    const __m256i factors = _mm256_broadcastsi128_si256(
        _mm_setr_epi16(0, F_3_624, 0, -F_1_272, 0, F_0_850, 0, -F_0_720));
    __m256i odd = _mm256_hadd_epi32(_mm256_madd_epi16(w0, factors), _mm256_madd_epi16(w1, factors));
    odd = _mm256_hadd_epi32(odd, odd); /* of both rows */
    __m256i even = _mm256_unpacklo_epi32(_mm256_unpacklo_epi16(zero, w0),
                                         _mm256_unpacklo_epi16(zero, w1));
    even = _mm256_add_epi32(_mm256_srai_epi32(even, 16 - (CONSTANT_BITS + 2)),
                            _mm256_set1_epi32(1 << (ROWS - 1)));
    __m256i left = _mm256_srai_epi32(_mm256_add_epi32(even, odd), ROWS);
    __m256i right = _mm256_srai_epi32(_mm256_sub_epi32(even, odd), ROWS);
    __m256i four = _mm256_unpacklo_epi32(left, right);
    four = _mm256_packs_epi32(four, four);
    four = _mm256_xor_si256(_mm256_packs_epi16(four, four), _mm256_set1_epi8((char)0x80));
    uint32_t one = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(four));
    uint32_t other = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(four, 1));
    uint32_t upper = (one & 0xFFFF) | other << 16, lower = one >> 16 | (other & 0xFFFF0000);
    memcpy(out, &upper, sizeof upper);
    memcpy(out + stride, &lower, sizeof lower);
    return 1;
}

#endif
