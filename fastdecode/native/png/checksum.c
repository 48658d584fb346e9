/* checksum.c: the checksums of PNG, at the speed of memory, because every byte is checked. */
#include "png_decoder.h"

#include <string.h>

/* ---- CRC-32 ---- */

enum { SLICES = 8 };
static const uint32_t POLYNOMIAL = 0xEDB88320u; /* of ISO 3309, reversed */

/* Eight bytes at a time ("slicing"). */
uint32_t fd_crc_plain(uint32_t crc, const uint8_t *data, size_t size) {
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

uint32_t fd_crc32(const uint8_t *data, size_t size) {
    return ~fd_kernels_now()->crc(~0u, data, size);
}

/* ---- Adler-32 ---- */

uint32_t fd_adler_plain(uint32_t sum, const uint8_t *data, size_t size) {
    uint32_t low = sum & 0xFFFF, high = sum >> 16;

    while (size) {
        size_t some = size < FD_ADLER_BYTES ? size : FD_ADLER_BYTES;
        size -= some;
        for (; some; some--)
            high += low += *data++;
        low %= FD_ADLER_MODULUS;
        high %= FD_ADLER_MODULUS;
    }
    return high << 16 | low;
}

uint32_t fd_adler32(uint32_t sum, const uint8_t *data, size_t size) {
    return fd_kernels_now()->adler(sum, data, size);
}
