/* simd.h: one source of vector code for all instruction sets.
 *
 * A kernel is written once, with this file's types, C's operators on them, and the few operations
 * below that C has no operator for. It is compiled once per instruction set: with vectors of
 * SIMD_BYTES = 16 for what every processor of an architecture has (SSE2, NEON, or whatever the
 * compiler makes of vectors), and with SIMD_BYTES = 32 for AVX2. A vector of 32 bytes has two lanes
 * of 16 bytes, as AVX2 has: what is said of the lower and the upper half holds for each lane.
 *
 * Include it with SIMD_BYTES and SIMD_TARGET (an attribute, or nothing) defined; for AVX2, with
 * SIMD_AVX2 too. */
#pragma once

#include <stdint.h>
#include <string.h>

#define SIMD static inline __attribute__((always_inline)) SIMD_TARGET
#define LANES (SIMD_BYTES / 16)

typedef int16_t shorts __attribute__((vector_size(SIMD_BYTES)));
typedef uint16_t ushorts __attribute__((vector_size(SIMD_BYTES)));
typedef int32_t ints __attribute__((vector_size(SIMD_BYTES)));
typedef int64_t longs __attribute__((vector_size(SIMD_BYTES)));
typedef double doubles __attribute__((vector_size(SIMD_BYTES)));
typedef uint8_t bytes __attribute__((vector_size(SIMD_BYTES)));

/* 32 bits for each number of `shorts`: those of the lower half, and those of the upper one. */
typedef struct {
    ints low, high;
} wide;

/* 16 bits for each byte of a vector. */
typedef struct {
    shorts low, high;
} pair;

SIMD shorts load(const void *at) {
    shorts out;
    memcpy(&out, at, sizeof out);
    return out;
}

SIMD void store(void *at, shorts value) { memcpy(at, &value, sizeof value); }

SIMD shorts all(int value) { return (shorts){0} + (int16_t)value; }

SIMD ints all_ints(int32_t value) { return (ints){0} + value; }

SIMD shorts logical_right(shorts value, int bits) { return (shorts)((ushorts)value >> bits); }

SIMD wide plus(wide a, wide b) { return (wide){a.low + b.low, a.high + b.high}; }

SIMD wide minus(wide a, wide b) { return (wide){a.low - b.low, a.high - b.high}; }

#if defined(SIMD_ANY) && SIMD_BYTES == 16 /* to test it where there is something better */
#include "simd_any.h"
#elif defined(__SSE2__) || SIMD_BYTES == 32
#include "simd_x86.h"
#elif defined(__aarch64__) && defined(__ARM_NEON) && FIRST_IS_LOW
#include "simd_neon.h"
#else
#include "simd_any.h"
#endif

/* What is the same wherever there is one lane; simd_x86.h has it for two. */
#if LANES == 1

SIMD shorts load_blocks(const int16_t *first, const int16_t *second) {
    (void)second;
    return load(first);
}

SIMD shorts repeat(const void *at) { return load(at); }

SIMD ints sums_of_lanes(ints a, ints b) {
    (void)b;
    return a;
}

SIMD pair before(pair last, pair here) {
    return (pair){one_before(last.high, here.low), one_before(here.low, here.high)};
}

SIMD pair after(pair here, pair next) {
    return (pair){one_after(here.low, here.high), one_after(here.high, next.low)};
}

SIMD shorts by_rows_4x4(shorts a) {
    a = low_8(a, high_64(a, a));
    return low_8(a, high_64(a, a));
}

SIMD void store_4x4(uint8_t *out, size_t stride, const shorts *a) {
    store_two_rows(out, stride, low_32(a[0], a[1]));
    store_two_rows(out + 2 * stride, stride, high_32(a[0], a[1]));
}

/* Add four pixels times the upper and lower parts of their weights, four of each, to `high` and `low`. */
SIMD void add_four_pixels(ints *high, ints *low, const uint8_t *pixels, const int16_t *parts) {
    shorts four = load(pixels), weights = load(parts);
    shorts first = low_bytes(four), last = high_bytes(four);
    *high = plus_weighted(plus_weighted(*high, first, weights, 0), last, weights, 1);
    *low = plus_weighted(plus_weighted(*low, first, weights, 2), last, weights, 3);
}

#endif

/* a * k[i] + b * k[j] */
SIMD wide products(factors k, shorts a, shorts b, int i, int j) {
    return plus_products((wide){{0}, {0}}, k, a, b, i, j);
}

/* The shared operations: what each of simd_x86.h, simd_neon.h and simd_any.h defines, or what is above.
 *
 *   low_8, low_16, low_32, low_64(a, b)  numbers of the lower halves in turn: a0 b0 a1 b1 ...
 *   high_8, high_16, high_32, high_64    of the upper halves
 *   factors_of(const int16_t table[16])  constants; plus_products uses them by their index
 *   plus_products(sum, k, a, b, i, j)    sum + a * k[i] + b * k[j], in 32 bits
 *   plus_scaled_sum(sum, a, b, bits)     sum + ((a + b) << bits), where a + b fits 16 bits; bits is
 *   plus_scaled_difference(...)            13 or 14
 *   rounding(shift)                      what must have been added before narrowing by `shift`
 *   narrow_sum(a, b, shift)              (a + b) >> shift, to 16 bits; if shift > 16, it may drop
 *   narrow_difference(a, b, shift)         only 16 bits, as `unsigned_bytes` drops the others
 *   narrow(a, shift)
 *   unsigned_bytes(a, b, shift)          such numbers clamped to 0 ... 255: a low, b high
 *   times(a, factor)                     (a * factor + 2^14) >> 15, for abs(a) < 2^13
 *   magnitudes_exceed(row, limit)        whether a column of 8 rows has a larger sum of magnitudes
 *   plus_weighted(sum, pixels, w, i)     sum + the lower half * w[2 i] + the upper one * w[2 i + 1]
 *   plus_two(sum, a, b, factors)         sum + a * factors[0] + b * factors[1], in 32 bits
 *   least(a, b), distance(a, b)          the smaller one; abs(a - b)
 *   mean_of_bytes(a, b)                  rounded down
 *   BYTES_UP(a, n)                       a shifted by n bytes, with zeros before it; of 16 bytes
 *   SIMD_LOOKUP(a, places)               the bytes of `a` at these places, where there is such an
 *                                          instruction
 *   chosen(mask, a, b)                   a where the mask is -1, b where it is 0
 *   sums_of_lanes(a, b)                  with two lanes: the sum of those of a, and of those of b
 *   low_bytes(a), high_bytes(a)          the bytes of a half, 16 bits each
 *   three_to_one(near, far)              3 * near + far of SIMD_BYTES bytes, as a `pair`
 *   before(last, here)                   here[-1], here[0] ... here[n - 2], where here[-1] is the
 *   after(here, next)                      last number of `last`; here[1] ... here[n - 1], next[0]
 *   one_before(a, b), one_after(a, b)    the same of two vectors of 16 bytes, for these
 *   store_in_turn(out, even, odd)        numbers up to 255 of two pairs in turn, as bytes
 *   load_blocks(first, second), repeat(at)  16 bytes for each lane, two different ones or the same
 *   by_rows_4x4(a)                       the transposed matrix of 4 by 4 bytes
 *   store_two_rows(out, stride, a)       half a lane each; with two lanes, next to each other
 *   store_4x4(out, stride, a)            two blocks of 4 by 4, in both lanes, or in a[0] and a[1]
 *   read_channels(out, pixel)            four bytes as doubles
 *   write_channels(pixel, in)            doubles truncated and clamped to bytes
 *   store_rgb, store_rgbx(out, r, g, b)  SIMD_BYTES pixels
 */
