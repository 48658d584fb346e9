/* huffman.h: entropy decoding of a baseline scan, block by block.
 *
 * A table answers for the next 10 bits at once: which coefficients begin there, at most two with
 * their values, and how many bits they take. What does not fit (a long code, a large value) is an
 * escape: its code is looked up by length. The reader holds at least 56 bits after each refill, which
 * is enough for three lookups and an escape.
 *
 * Nothing here is checked against the end of the data: who calls does so after each MCU, and the
 * zeros behind the data are more than an MCU can read. What cannot be right is noted in `is_odd`.
 *
 * Everything is inline, because rows.c compiles it once for each set of instructions.
 */
#ifndef FASTDECODE_HUFFMAN_H
#define FASTDECODE_HUFFMAN_H

#include "baseline.h"

#include <string.h>

#define FD_INLINE static inline __attribute__((always_inline))
#define FD_RARELY(condition) __builtin_expect(!!(condition), 0)

enum {
    FD_ENTRIES = 1 << FD_LOOKUP_BITS,
    FD_ESCAPE = 0x80,   /* in an entry: the rest of it says how to go on */
    FD_LONG = 0xFFFF,   /* in place of a size: the code is longer than the lookup */
    FD_LAST = 63,       /* position of the last coefficient */
    /* Steps from one coefficient to the next that lead out of the block: from wherever they start,
     * past 127 and between 64 and 127. */
    FD_END_OF_BLOCK = 128,
    FD_NO_CODE = 64
};

/* One coefficient, in 32 bits: 0-5 how many bits to drop, 7 FD_ESCAPE, 8-15 the step from the last
 * coefficient to this one, 16-31 its value. In an escape: the bits of the code alone, and instead of
 * the value its size, or FD_LONG.
 *
 * Two coefficients, in 64 bits: the lower half is that of the first, but with the bits of both; 32-39
 * the steps of both, 40-47 the bits of the first alone, 48-63 the value of the second. Where there is
 * but one, it stands there twice. */
typedef struct {
    uint32_t one[FD_ENTRIES];
    uint64_t two[FD_ENTRIES];
    uint32_t
        limit[17]; /* the 16 bits that follow are below it: their code has at most this length */
    int32_t first[17]; /* what is to be added to a code of this length for its place in `symbols` */
    uint8_t symbols[256];
    int is_dc;
} fd_table;

/* Make the table of these codes. Returns 0 where libjpeg would refuse them, or they are none of a
 * image with 8 bits a sample. */
int fd_table_make(fd_table *table, const fd_codes *codes, int is_dc);

/* Bits to be read, from the top of `buffer`; the lowest 6 bits of `count` say how many there are. */
typedef struct {
    uint64_t buffer, count;
    const uint8_t *next;
    int32_t dc[3]; /* of the last block of each component */
    uint32_t is_odd;
} fd_bits;

FD_INLINE uint64_t fd_eight_bytes(const uint8_t *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

/* The fewest instructions: whole bytes are taken, and those that do not fit are read again. */
#define FD_REFILL(buffer, count, next)                                                             \
    do {                                                                                           \
        (buffer) |= fd_eight_bytes(next) >> ((count) & 63);                                        \
        (next) += (((count) & 63) ^ 63) >> 3;                                                      \
        (count) |= 56;                                                                             \
    } while (0)

FD_INLINE void fd_bits_begin(fd_bits *bits, const uint8_t *from) {
    bits->buffer = bits->count = 0;
    bits->next = from;
    memset(bits->dc, 0, sizeof bits->dc);
}

/* How many bytes have been begun, from `from` on. */
FD_INLINE size_t fd_bytes_read(const fd_bits *bits, const uint8_t *from) {
    return ((size_t)(bits->next - from) * 8 - (size_t)(bits->count & 63) + 7) / 8;
}

/* What an escape leads to: its step and its value. */
#define FD_FOLLOW(table, entry, step, value)                                                       \
    do {                                                                                           \
        uint32_t length_, size_;                                                                   \
        if (__builtin_expect((uint32_t)(entry) >> 16 != FD_LONG, 1)) {                             \
            length_ = (entry) & 63;                                                                \
            size_ = (uint32_t)(entry) >> 16;                                                       \
            step = (entry) >> 8 & 255;                                                             \
        } else {                                                                                   \
            uint32_t code_ = (uint32_t)(buffer >> 48);                                             \
            length_ = FD_LOOKUP_BITS + 1;                                                          \
            for (int l_ = FD_LOOKUP_BITS + 1; l_ <= 16; l_++)                                      \
                length_ += code_ >= (table)->limit[l_];                                            \
            if (FD_RARELY(length_ > 16)) {                                                         \
                length_ = 16;                                                                      \
                size_ = 0;                                                                         \
                step = FD_NO_CODE;                                                                 \
            } else {                                                                               \
                int32_t place_ = (int32_t)(buffer >> (64 - length_)) + (table)->first[length_];    \
                uint32_t symbol_ = (table)->symbols[place_ & 255];                                 \
                size_ = (table)->is_dc ? symbol_ : symbol_ & 15;                                   \
                step = (table)->is_dc    ? 0                                                       \
                       : size_           ? (symbol_ >> 4) + 1                                      \
                       : symbol_ == 0xF0 ? 16                                                      \
                                         : FD_END_OF_BLOCK;                                        \
            }                                                                                      \
        }                                                                                          \
        buffer <<= length_;                                                                        \
        /* `size_` bits: those that begin with 0 are negative. */                                  \
        uint64_t negative_ = (uint64_t)((int64_t)~buffer >> 63);                                   \
        value = (int32_t)((buffer >> 1) >> (63 - size_)) +                                         \
                (int32_t)(negative_ & (uint64_t)(1 - (INT64_C(1) << size_)));                      \
        buffer <<= size_;                                                                          \
        count -= length_ + size_;                                                                  \
    } while (0)

/* Not by memset: gcc makes "rep stos" of it, which takes longer to begin than all of this. It was
 * 9 % of decoding. */
FD_INLINE void fd_clear(int16_t *block) {
    typedef int64_t four __attribute__((vector_size(32), aligned(2), may_alias));
    four *part = (four *)(void *)block;
    part[0] = part[1] = part[2] = part[3] = (four){0, 0, 0, 0};
}

/* Whether a coefficient, dequantised, has more than 16 bits. */
FD_INLINE uint32_t fd_is_large(int32_t value, int32_t quantiser) {
    return (uint32_t)(value * quantiser + INT16_MAX) > 2u * INT16_MAX;
}

/* Decode the next block of component `c`. With `stores` its coefficients go to `block`, in natural
 * order, and position 64, behind it, may be written, too; without, `block[0]` alone is written. */
FD_INLINE void fd_block(fd_bits *bits, const fd_table *dc, const fd_table *ac,
                        const uint16_t *quantiser, int16_t *block, int c, const int stores) {
    uint64_t buffer = bits->buffer, count = bits->count;
    const uint8_t *next = bits->next;
    const uint64_t *two = ac->two;

    FD_REFILL(buffer, count, next);
    if (stores)
        fd_clear(block);
    uint32_t start = dc->one[buffer >> (64 - FD_LOOKUP_BITS)];
    int32_t difference;
    if (FD_RARELY(start & FD_ESCAPE)) {
        uint32_t step;
        FD_FOLLOW(dc, start, step, difference);
        bits->is_odd |= step;
        FD_REFILL(buffer, count, next);
    } else {
        buffer <<= start & 63;
        count -= start;
        difference = (int16_t)(start >> 16);
    }
    int32_t level = bits->dc[c] + difference;
    bits->is_odd |= fd_is_large(level, quantiser[0] | 1);
    bits->dc[c] = (int16_t)level;
    block[0] = (int16_t)level;

    uint64_t entry, before;
    uint32_t k = 0, k1, odd = 0;
#define FD_STEP                                                                                    \
    entry = two[buffer >> (64 - FD_LOOKUP_BITS)];                                                  \
    before = buffer;                                                                               \
    if (FD_RARELY(entry & FD_ESCAPE)) {                                                            \
        uint32_t step;                                                                             \
        int32_t value;                                                                             \
        FD_FOLLOW(ac, (uint32_t)entry, step, value);                                               \
        k += step;                                                                                 \
        if (stores) {                                                                              \
            size_t place = fd_natural_order[k];                                                    \
            block[place] = (int16_t)value;                                                         \
            odd |= fd_is_large(value, quantiser[place]);                                           \
        }                                                                                          \
        FD_REFILL(buffer, count, next);                                                            \
        if (k >= FD_LAST)                                                                          \
            goto last;                                                                             \
    } else {                                                                                       \
        buffer <<= entry & 63;                                                                     \
        k1 = k + (uint32_t)(entry >> 8 & 255);                                                     \
        k += (uint32_t)(entry >> 32 & 255);                                                        \
        count -= entry;                                                                            \
        if (stores) {                                                                              \
            block[fd_natural_order[k1]] = (int16_t)(entry >> 16);                                  \
            block[fd_natural_order[k]] = (int16_t)(entry >> 48);                                   \
        }                                                                                          \
        if (k >= FD_LAST)                                                                          \
            break;                                                                                 \
    }
    goto second; /* what the DC coefficient took leaves bits for two lookups and an escape */
    for (;;) {
        FD_REFILL(buffer, count, next);
        FD_STEP
    second:
        FD_STEP
        FD_STEP
        FD_STEP
    }
#undef FD_STEP
    if (FD_RARELY(k1 >= FD_LAST && k1 < FD_END_OF_BLOCK)) {
        /* The first of the two was the block's last: the second belongs to the next block. */
        buffer = before << (entry >> 40 & 63);
        count += (entry & 63) - (entry >> 40 & 63);
        k = k1;
    }
last:
    bits->is_odd |= odd | (uint32_t)(k - FD_LAST - 1 < FD_NO_CODE); /* past the end of the block */
    bits->buffer = buffer;
    bits->count = count;
    bits->next = next;
}

#endif
