/* checksum.c: the checksums of PNG, at the speed of memory, because every byte is checked. */
#include "png_decoder.h"

#include <string.h>

/* ---- CRC-32 ---- */

enum { SLICES = 8 };
static const uint32_t POLYNOMIAL = 0xEDB88320u; /* of ISO 3309, reversed */

/* Eight bytes at a time ("slicing"). `crc` is inverted, here and below. */
static uint32_t crc_plain(uint32_t crc, const uint8_t *data, size_t size) {
    static uint32_t table[SLICES][256];
    static _Atomic(int) is_made;

    if (!is_made) { /* threads that come at the same time write the same numbers */
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t rest = i;
            for (int bit = 0; bit < 8; bit++)
                rest = rest >> 1 ^ (rest & 1 ? POLYNOMIAL : 0);
            ((volatile uint32_t *)table[0])[i] = rest;
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int slice = 1; slice < SLICES; slice++) {
                uint32_t before = table[slice - 1][i];
                ((volatile uint32_t *)table[slice])[i] = before >> 8 ^ table[0][before & 255];
            }
        is_made = 1;
    }
    for (; size >= SLICES; size -= SLICES, data += SLICES) {
        uint32_t next = 0;
        for (int i = 0; i < SLICES; i++) {
            uint8_t byte = (uint8_t)(data[i] ^ (i < 4 ? crc >> 8 * i : 0));
            next ^= table[SLICES - 1 - i][byte];
        }
        crc = next;
    }
    for (; size; size--, data++)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return crc;
}

#ifdef FD_AVX2

#include <immintrin.h>

#define CARRYLESS __attribute__((target("avx2,pclmul")))
#define INLINE_CARRYLESS static inline __attribute__((target("avx2,pclmul"), always_inline))

/* Multiply both halves of a remainder, which moves it forward, and add the data found there. */
INLINE_CARRYLESS __m128i folded(__m128i rest, __m128i factors, __m128i data) {
    __m128i low = _mm_clmulepi64_si128(rest, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(rest, factors, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/* V. Gopal et al.: Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel, 2009.
 * The factors are powers of x modulo the polynomial, reversed. Takes a multiple of 16 bytes, at least 64. */
CARRYLESS static uint32_t crc_carryless(uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
    const __m128i low_32 = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i *at = (const __m128i *)(const void *)data;
    __m128i rest[4];

    for (int i = 0; i < 4; i++)
        rest[i] = _mm_loadu_si128(at + i);
    rest[0] = _mm_xor_si128(rest[0], _mm_cvtsi32_si128((int)crc));
    for (at += 4, size -= 64; size >= 64; at += 4, size -= 64)
        for (int i = 0; i < 4; i++)
            rest[i] = folded(rest[i], by_512, _mm_loadu_si128(at + i));
    __m128i one = rest[0];
    for (int i = 1; i < 4; i++)
        one = folded(one, by_128, rest[i]);
    for (; size >= 16; at++, size -= 16)
        one = folded(one, by_128, _mm_loadu_si128(at));

    /* 128 bits to 64, and these to 32 by Barrett's reduction. */
    __m128i other = _mm_clmulepi64_si128(one, by_128, 0x10);
    one = _mm_xor_si128(_mm_srli_si128(one, 8), other);
    other = _mm_srli_si128(one, 4);
    one = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(one, low_32), by_64, 0x00), other);
    other = _mm_clmulepi64_si128(_mm_and_si128(one, low_32), barrett, 0x10);
    other = _mm_clmulepi64_si128(_mm_and_si128(other, low_32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(one, other), 1);
}

#endif

uint32_t fd_crc32(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;

#ifdef FD_AVX2
    size_t whole = size & ~(size_t)15;
    if (whole >= 64 && fd_kernels_now()->is_avx2 && __builtin_cpu_supports("pclmul")) {
        crc = crc_carryless(crc, data, whole);
        data += whole;
        size -= whole;
    }
#endif
    return ~crc_plain(crc, data, size);
}

/* ---- Adler-32 ---- */

enum { MODULUS = 65521, MOST_BYTES = 5536 /* before the sums exceed 32 bits; a multiple of 32 */ };

/* Blocks of 32 bytes, so that a compiler can use vectors. */
#define ADLER(set, target)                                                                         \
    target static uint32_t adler_##set(uint32_t sum, const uint8_t *data, size_t size) {           \
        uint32_t low = sum & 0xFFFF, high = sum >> 16;                                             \
        while (size) {                                                                             \
            size_t some = size < MOST_BYTES ? size : MOST_BYTES;                                   \
            size -= some;                                                                          \
            for (; some >= 32; some -= 32, data += 32) {                                           \
                uint32_t bytes = 0, weighted = 0;                                                  \
                for (uint32_t i = 0; i < 32; i++) {                                                \
                    bytes += data[i];                                                              \
                    weighted += (32 - i) * data[i];                                                \
                }                                                                                  \
                high += 32 * low + weighted;                                                       \
                low += bytes;                                                                      \
            }                                                                                      \
            for (; some; some--)                                                                   \
                high += low += *data++;                                                            \
            low %= MODULUS;                                                                        \
            high %= MODULUS;                                                                       \
        }                                                                                          \
        return high << 16 | low;                                                                   \
    }

ADLER(plain, )

#ifdef FD_AVX2
ADLER(avx2, __attribute__((target("avx2"))))
#endif

uint32_t fd_adler32(uint32_t sum, const uint8_t *data, size_t size) {
#ifdef FD_AVX2
    if (fd_kernels_now()->is_avx2)
        return adler_avx2(sum, data, size);
#endif
    return adler_plain(sum, data, size);
}
