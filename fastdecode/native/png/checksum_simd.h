/* checksum_simd.h: the checksums of checksum.c, by the instructions that there are for them. */

/* ---- CRC-32 ---- */

#ifdef SIMD_AVX2

/* Multiply both halves of a remainder, which moves it forward, and add the data found there. */
SIMD __m128i folded(__m128i rest, __m128i factors, __m128i data) {
    __m128i low = _mm_clmulepi64_si128(rest, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(rest, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/* V. Gopal et al.: Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel, 2009.
 * The factors are powers of x modulo the polynomial, reversed. */
SIMD_TARGET static uint32_t crc(uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i *at = (const __m128i *)(const void *)data;
    __m128i rest[4];
    uint8_t last[16]; /* has the same remainder as all of the data so far */
    if (size < sizeof rest)
        return fd_crc_plain(crc, data, size);
    for (int i = 0; i < 4; i++)
        rest[i] = _mm_loadu_si128(at + i);
    rest[0] = _mm_xor_si128(rest[0], _mm_cvtsi32_si128((int)crc));
    for (at += 4, size -= 64; size >= 64; at += 4, size -= 64)
        for (int i = 0; i < 4; i++)
            rest[i] = folded(rest[i], by_512, _mm_loadu_si128(at + i));
    for (int i = 1; i < 4; i++)
        rest[0] = folded(rest[0], by_128, rest[i]);
    for (; size >= 16; at++, size -= 16)
        rest[0] = folded(rest[0], by_128, _mm_loadu_si128(at));
    _mm_storeu_si128((__m128i *)(void *)last, rest[0]);
    return fd_crc_plain(fd_crc_plain(0, last, sizeof last), (const uint8_t *)at, size);
}

#elif defined(SIMD_NEON)

/* Eight bytes per instruction, which nearly all processors have; carry-less products would not need fewer.
 * The assembler is told of it here, because the compilers spell the attribute differently. */
SIMD_TARGET static uint32_t crc(uint32_t crc, const uint8_t *data, size_t size) {
    if (!has_crc())
        return fd_crc_plain(crc, data, size);
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    return fd_crc_plain(crc, data, size);
}

#else

SIMD_TARGET static uint32_t crc(uint32_t crc, const uint8_t *data, size_t size) {
    return fd_crc_plain(crc, data, size);
}

#endif

/* ---- Adler-32 ---- */

/* 32 bits for each number of two vectors, whatever their order. */
typedef struct {
    ints of[4];
} widened;

SIMD widened plus_unsigned(widened sum, const shorts *two) {
    for (int i = 0; i < 4; i++)
        sum.of[i] += ((ints)two[i / 2] >> (i % 2 * 16)) & 0xFFFF;
    return sum;
}

/* For each byte of a vector there is a sum of all bytes at its place, and one of these sums as they were
 * before each vector. They fit 16 bits for 16 vectors, then they are added to those of a block. At its end
 * each byte has been counted as often as it is far from the end. */
SIMD_TARGET static uint32_t adler(uint32_t sum, const uint8_t *data, size_t size) {
    enum { VECTORS = 16, STEP = VECTORS * SIMD_BYTES, STEPS = FD_ADLER_BYTES / STEP };
    uint32_t low = sum & 0xFFFF, high = sum >> 16;
    const widened zero = {{{0}, {0}, {0}, {0}}};
    uint8_t counts[SIMD_BYTES];
    for (int i = 0; i < SIMD_BYTES; i++)
        counts[i] = (uint8_t)(SIMD_BYTES - i);
    const shorts loaded = load(counts), counted[2] = {low_bytes(loaded), high_bytes(loaded)};
    const widened weights = plus_unsigned(zero, counted);
    while (size >= STEP) {
        const size_t steps = size / STEP < STEPS ? size / STEP : STEPS;
        widened all_bytes = zero, earlier = zero, steps_before = zero;
        for (size_t step = 0; step < steps; step++) {
            shorts sums[2] = {{0}, {0}}, before[2] = {{0}, {0}};
            for (int i = 0; i < VECTORS; i++, data += SIMD_BYTES) {
                shorts vector = load(data);
                before[0] += sums[0];
                before[1] += sums[1];
                sums[0] += low_bytes(vector);
                sums[1] += high_bytes(vector);
            }
            for (int i = 0; i < 4; i++)
                steps_before.of[i] += all_bytes.of[i];
            earlier = plus_unsigned(earlier, before);
            all_bytes = plus_unsigned(all_bytes, sums);
        }
        high += (uint32_t)(steps * STEP) * low;
        for (int i = 0; i < 4; i++) {
            ints far = STEP * steps_before.of[i] + SIMD_BYTES * earlier.of[i] +
                       weights.of[i] * all_bytes.of[i];
            for (int lane = 0; lane < SIMD_BYTES / 4; lane++) {
                low += (uint32_t)all_bytes.of[i][lane];
                high += (uint32_t)far[lane];
            }
        }
        low %= FD_ADLER_MODULUS;
        high %= FD_ADLER_MODULUS;
        size -= steps * STEP;
    }
    return fd_adler_plain(high << 16 | low, data, size);
}
