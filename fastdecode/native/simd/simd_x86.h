/* simd_x86.h: the operations of simd.h for SSE2 and for AVX2, whose intrinsics differ by name. */
#include <immintrin.h>

#if SIMD_BYTES == 32
typedef __m256i native;
#define MM(operation) _mm256_##operation
#define MM_BITS(operation) _mm256_##operation##_si256
#else
typedef __m128i native;
#define MM(operation) _mm_##operation
#define MM_BITS(operation) _mm_##operation##_si128
#endif

#define IN_TURN(name, intrinsic)                                                                   \
    SIMD shorts name(shorts a, shorts b) { return (shorts)MM(intrinsic)((native)a, (native)b); }
IN_TURN(low_8, unpacklo_epi8)
IN_TURN(low_16, unpacklo_epi16)
IN_TURN(low_32, unpacklo_epi32)
IN_TURN(low_64, unpacklo_epi64)
IN_TURN(high_8, unpackhi_epi8)
IN_TURN(high_16, unpackhi_epi16)
IN_TURN(high_32, unpackhi_epi32)
IN_TURN(high_64, unpackhi_epi64)

#if defined(SIMD_AVX2) && defined(__x86_64__)
#define FD_PDEP(bits, mask) _pdep_u64(bits, mask)
#endif

typedef const int16_t *factors;

SIMD factors factors_of(const int16_t *table) { return table; }

SIMD wide plus_pairs(wide sum, shorts a, shorts b, int p, int q) {
    native factors = MM(set1_epi32)((int)((uint16_t)p | (uint32_t)(uint16_t)q << 16));
    sum.low += (ints)MM(madd_epi16)((native)low_16(a, b), factors);
    sum.high += (ints)MM(madd_epi16)((native)high_16(a, b), factors);
    return sum;
}

SIMD wide plus_products(wide sum, factors k, shorts a, shorts b, int i, int j) {
    return plus_pairs(sum, a, b, k[i], k[j]);
}

SIMD wide plus_scaled_sum(wide sum, shorts a, shorts b, int bits) {
    return plus_pairs(sum, a, b, 1 << bits, 1 << bits);
}

SIMD wide plus_scaled_difference(wide sum, shorts a, shorts b, int bits) {
    return plus_pairs(sum, a, b, 1 << bits, -(1 << bits));
}

SIMD wide rounding(int shift) {
    ints half = all_ints(1 << (shift - 1));
    return (wide){half, half};
}

SIMD shorts narrow(wide a, int shift) {
    return (shorts)MM(packs_epi32)((native)(a.low >> shift), (native)(a.high >> shift));
}

SIMD shorts narrow_sum(wide a, wide b, int shift) { return narrow(plus(a, b), shift); }

SIMD shorts narrow_difference(wide a, wide b, int shift) { return narrow(minus(a, b), shift); }

SIMD shorts unsigned_bytes(shorts a, shorts b, int shift) {
    (void)shift;
    return (shorts)MM(packus_epi16)((native)a, (native)b);
}

SIMD shorts times(shorts a, int factor) {
#if SIMD_BYTES == 32
    return (shorts)_mm256_mulhrs_epi16((native)a, (native)all(factor));
#else
    return ((shorts)_mm_mulhi_epi16((native)(a << 2), (native)all(factor)) + 1) >> 1;
#endif
}

/* Without a sign, as the magnitude of -32768 is 32768. */
SIMD int magnitudes_exceed(const shorts *row, int limit) {
    native sums = MM_BITS(setzero)(), zero = sums;
    for (int i = 0; i < 8; i++) {
#if SIMD_BYTES == 32
        native magnitude = _mm256_abs_epi16((native)row[i]);
#else
        native magnitude = _mm_max_epi16((native)row[i], _mm_sub_epi16(zero, (native)row[i]));
#endif
        sums = MM(adds_epu16)(sums, magnitude);
    }
    native excess = MM(subs_epu16)(sums, (native)all(limit));
    uint32_t fits = (uint32_t)MM(movemask_epi8)(MM(cmpeq_epi16)(excess, zero));
    return fits != UINT32_MAX >> (32 - SIMD_BYTES);
}

SIMD shorts least(shorts a, shorts b) { return (shorts)MM(min_epi16)((native)a, (native)b); }

/* PNG rounds down, `avg` up. */
SIMD shorts mean_of_bytes(shorts a, shorts b) {
    native odd = (native)((a ^ b) & all(0x0101));
    return (shorts)MM(sub_epi8)(MM(avg_epu8)((native)a, (native)b), odd);
}

#define BYTES_UP(a, count) (shorts) _mm_slli_si128((native)(a), count)

#ifdef SIMD_AVX2

#define SIMD_LOOKUP(a, places) (shorts) MM(shuffle_epi8)((native)(a), (native)(places))

SIMD shorts distance(shorts a, shorts b) { return (shorts)MM(abs_epi16)((native)(a - b)); }

SIMD shorts chosen(shorts mask, shorts a, shorts b) {
    return (shorts)MM(blendv_epi8)((native)b, (native)a, (native)mask);
}

#else

SIMD shorts distance(shorts a, shorts b) {
    return (shorts)_mm_max_epi16((native)(a - b), (native)(b - a));
}

SIMD shorts chosen(shorts mask, shorts a, shorts b) { return (a & mask) | (b & ~mask); }

#endif

SIMD shorts low_bytes(shorts a) { return low_8(a, (shorts){0}); }

SIMD shorts high_bytes(shorts a) { return high_8(a, (shorts){0}); }

/* The numbers of the lower half and of the upper one in turn. */
SIMD shorts pixels_in_turn(shorts a) {
#if SIMD_BYTES == 32
    const native order = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0,
                                          1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    return (shorts)_mm256_shuffle_epi8((native)a, order);
#else
    return low_16(a, high_64(a, a));
#endif
}

SIMD ints plus_weighted(ints sum, shorts pixels, shorts weights, const int i) {
    shorts pair = i == 0   ? (shorts)MM(shuffle_epi32)((native)weights, 0x00)
                  : i == 1 ? (shorts)MM(shuffle_epi32)((native)weights, 0x55)
                  : i == 2 ? (shorts)MM(shuffle_epi32)((native)weights, 0xAA)
                           : (shorts)MM(shuffle_epi32)((native)weights, 0xFF);
    return sum + (ints)MM(madd_epi16)((native)pixels_in_turn(pixels), (native)pair);
}

SIMD wide plus_two(wide sum, shorts a, shorts b, const int16_t *two) {
    int32_t both;
    memcpy(&both, two, sizeof both);
    native weights = MM(set1_epi32)(both);
    sum.low += (ints)MM(madd_epi16)((native)low_16(a, b), weights);
    sum.high += (ints)MM(madd_epi16)((native)high_16(a, b), weights);
    return sum;
}

#if SIMD_BYTES == 32

SIMD ints sums_of_lanes(ints a, ints b) {
    return (ints)_mm256_permute2x128_si256((native)a, (native)b, 0x20) +
           (ints)_mm256_permute2x128_si256((native)a, (native)b, 0x31);
}

SIMD shorts repeat(const void *at) {
    return (shorts)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at));
}

/* See simd.h: here a lane has two of the pixels. One of these shuffles is faster than those that cross lanes. */
SIMD void add_four_pixels(ints *high, ints *low, const uint8_t *pixels, const int16_t *parts) {
    const native in_turn = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                                            8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1,
                                            15, -1);
    const native upper = _mm256_setr_epi32(0x03020100, 0x03020100, 0x03020100, 0x03020100,
                                           0x07060504, 0x07060504, 0x07060504, 0x07060504);
    const native lower = MM(add_epi8)(upper, MM(set1_epi8)(8));
    native two = MM(shuffle_epi8)((native)repeat(pixels), in_turn);
    native weights = (native)repeat(parts);
    *high += (ints)MM(madd_epi16)(two, MM(shuffle_epi8)(weights, upper));
    *low += (ints)MM(madd_epi16)(two, MM(shuffle_epi8)(weights, lower));
}

SIMD void read_channels(doubles *out, const uint8_t *pixel) {
    int32_t four;
    memcpy(&four, pixel, sizeof four);
    out[0] = (doubles)_mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
}

SIMD void write_channels(uint8_t *pixel, const doubles *in) {
    __m128i whole = _mm256_cvttpd_epi32((__m256d)in[0]);
    whole = _mm_packs_epi32(whole, whole);
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(whole, whole));
    memcpy(pixel, &four, sizeof four);
}

/* Pairs of a near and a far byte, times 3 and 1. */
SIMD pair three_to_one(const uint8_t *near, const uint8_t *far) {
    const native weights = _mm256_set1_epi16(0x0103);
    shorts n = load(near), f = load(far);
    return (pair){(shorts)_mm256_maddubs_epi16((native)low_8(n, f), weights),
                  (shorts)_mm256_maddubs_epi16((native)high_8(n, f), weights)};
}

/* The lower halves are numbers 0 to 7 and 16 to 23, the upper ones 8 to 15 and 24 to 31. */
SIMD pair before(pair last, pair here) {
    native between = _mm256_permute2x128_si256((native)last.high, (native)here.high, 0x21);
    return (pair){(shorts)_mm256_alignr_epi8((native)here.low, between, 14),
                  (shorts)_mm256_alignr_epi8((native)here.high, (native)here.low, 14)};
}

SIMD pair after(pair here, pair next) {
    native between = _mm256_permute2x128_si256((native)here.low, (native)next.low, 0x21);
    return (pair){(shorts)_mm256_alignr_epi8((native)here.high, (native)here.low, 2),
                  (shorts)_mm256_alignr_epi8(between, (native)here.high, 2)};
}

SIMD void store_in_turn(uint8_t *out, pair even, pair odd) {
    native low = (native)(even.low | odd.low << 8), high = (native)(even.high | odd.high << 8);
    store(out, (shorts)_mm256_permute2x128_si256(low, high, 0x20));
    store(out + 32, (shorts)_mm256_permute2x128_si256(low, high, 0x31));
}

SIMD shorts load_blocks(const int16_t *first, const int16_t *second) {
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)first);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)second);
    return (shorts)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

SIMD shorts by_rows_4x4(shorts a) {
    const native order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0,
                                          4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return (shorts)_mm256_shuffle_epi8((native)a, order);
}

SIMD void store_two_rows(uint8_t *out, size_t stride, shorts a) {
    native both = _mm256_permute4x64_epi64((native)a, 0xD8);
    _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(both));
    _mm_storeu_si128((__m128i *)(void *)(out + stride), _mm256_extracti128_si256(both, 1));
}

SIMD void store_4x4(uint8_t *out, size_t stride, const shorts *a) {
    __m128i low = _mm256_castsi256_si128((native)a[0]);
    __m128i high = _mm256_extracti128_si256((native)a[0], 1);
    const __m128i two[2] = {_mm_unpacklo_epi32(low, high), _mm_unpackhi_epi32(low, high)};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *at = out + 2 * i * stride;
        _mm_storel_epi64((__m128i *)(void *)at, two[i]);
        _mm_storel_epi64((__m128i *)(void *)(at + stride), _mm_unpackhi_epi64(two[i], two[i]));
    }
}

#else

SIMD void read_channels(doubles *out, const uint8_t *pixel) {
    const native zero = _mm_setzero_si128();
    int32_t four;
    memcpy(&four, pixel, sizeof four);
    native whole = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
    out[0] = (doubles)_mm_cvtepi32_pd(whole);
    out[1] = (doubles)_mm_cvtepi32_pd(_mm_unpackhi_epi64(whole, whole));
}

SIMD void write_channels(uint8_t *pixel, const doubles *in) {
    native low = _mm_cvttpd_epi32((__m128d)in[0]), high = _mm_cvttpd_epi32((__m128d)in[1]);
    native whole = _mm_packs_epi32(_mm_unpacklo_epi64(low, high), low);
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(whole, whole));
    memcpy(pixel, &four, sizeof four);
}

SIMD pair three_to_one(const uint8_t *near, const uint8_t *far) {
    shorts n = load(near), f = load(far);
    return (pair){low_bytes(n) * 3 + low_bytes(f), high_bytes(n) * 3 + high_bytes(f)};
}

SIMD shorts one_before(shorts a, shorts b) {
    return (shorts)_mm_or_si128(_mm_srli_si128((native)a, 14), _mm_slli_si128((native)b, 2));
}

SIMD shorts one_after(shorts a, shorts b) {
    return (shorts)_mm_or_si128(_mm_srli_si128((native)a, 2), _mm_slli_si128((native)b, 14));
}

SIMD void store_in_turn(uint8_t *out, pair even, pair odd) {
    store(out, even.low | odd.low << 8);
    store(out + 16, even.high | odd.high << 8);
}

SIMD void store_two_rows(uint8_t *out, size_t stride, shorts a) {
    _mm_storel_epi64((__m128i *)(void *)out, (native)a);
    _mm_storel_epi64((__m128i *)(void *)(out + stride), (native)high_64(a, a));
}

#endif

/* Pixels of four bytes, in order. */
SIMD void interleave(shorts pixels[4], shorts r, shorts g, shorts b) {
    const shorts full = all(-1);
    shorts rg_low = low_8(r, g), rg_high = high_8(r, g);
    shorts bx_low = low_8(b, full), bx_high = high_8(b, full);
    pixels[0] = low_16(rg_low, bx_low);
    pixels[1] = high_16(rg_low, bx_low);
    pixels[2] = low_16(rg_high, bx_high);
    pixels[3] = high_16(rg_high, bx_high);
#if SIMD_BYTES == 32
    native p[4] = {(native)pixels[0], (native)pixels[1], (native)pixels[2], (native)pixels[3]};
    for (int i = 0; i < 2; i++) {
        pixels[i] = (shorts)_mm256_permute2x128_si256(p[2 * i], p[2 * i + 1], 0x20);
        pixels[2 + i] = (shorts)_mm256_permute2x128_si256(p[2 * i], p[2 * i + 1], 0x31);
    }
#endif
}

SIMD void store_rgbx(uint8_t *out, shorts r, shorts g, shorts b) {
    shorts pixels[4];
    interleave(pixels, r, g, b);
    for (int i = 0; i < 4; i++)
        store(out + SIMD_BYTES * i, pixels[i]);
}

/* Every store but the last overwrites what the one before it has written too much. */
SIMD void store_rgb(uint8_t *out, shorts r, shorts g, shorts b) {
    shorts pixels[4];
    interleave(pixels, r, g, b);
#if SIMD_BYTES == 32
    const native order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0,
                                          1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const native close = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    for (int i = 0; i < 4; i++) {
        native packed = _mm256_shuffle_epi8((native)pixels[i], order);
        store(out + 24 * i, (shorts)_mm256_permutevar8x32_epi32(packed, close));
    }
#else
    const native one = _mm_set1_epi64x(0xFFFFFF), other = _mm_set1_epi64x(0xFFFFFF000000);
    for (int i = 0; i < 4; i++) {
        native pair = (native)pixels[i];
        pair = _mm_or_si128(_mm_and_si128(pair, one),
                            _mm_and_si128(_mm_srli_epi64(pair, 8), other));
        _mm_storel_epi64((native *)(void *)(out + 12 * i), pair);
        _mm_storel_epi64((native *)(void *)(out + 12 * i + 6), _mm_unpackhi_epi64(pair, pair));
    }
#endif
}
