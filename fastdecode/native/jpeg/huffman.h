/* huffman.h: entropy decoding of a baseline scan, block by block; and tables and readers of bits for
 * all scans.
 *
 * One table lookup decodes the next 10 bits: up to two coefficients with their values, and how many
 * bits they take. Longer codes and large values are escapes, whose code is looked up by length. The
 * reader holds 64 bits after each refill, of which at least 56 are counted: enough for three lookups and
 * an escape, or for five lookups. So the lookup after a refill is made before it, and need not wait.
 *
 * Nothing here checks for the end of the data. The caller checks after each MCU, and the data is
 * followed by more zeros than one MCU can read. `is_odd` records invalid codes and values.
 *
 * Everything is inline, because rows.c compiles it once per instruction set.
 */
#pragma once

#include "baseline.h"

#include <string.h>

#define FD_RARELY(condition) __builtin_expect(!!(condition), 0)

enum {
    FD_ENTRIES = 1 << FD_LOOKUP_BITS,
    FD_ESCAPE = 0x80, /* flag of an entry that is an escape */
    FD_LONG = 0xFFFF, /* in place of a size: the code is longer than the lookup */
    FD_LAST = 63, /* position of the last coefficient */
    /* Steps from one coefficient to the next that leave the block from any position: one leads past
     * 127, the other to between 64 and 127. */
    FD_END_OF_BLOCK = 128,
    FD_NO_CODE = 64
};

/* What a table is for: the last two for AC coefficients in scans of a progressive file. */
typedef enum { FD_DC, FD_AC, FD_AC_FIRST, FD_AC_REFINED } fd_table_kind;

/* An entry for one coefficient has 32 bits. 0-5: how many bits to drop; 7: FD_ESCAPE; 8-15: the step
 * from the last coefficient to this one; 16-31: its value. In an escape, 0-5 count only the bits of
 * the code, and 16-31 hold the size of the value, or FD_LONG.
 *
 * An entry for two coefficients has 64 bits. 0-31: as above for the first one, but 0-5 count the bits
 * of both; 32-39: the steps of both; 40-47: the bits of the first alone; 48-63: the value of the
 * second. If there is only one coefficient, both halves describe it.
 *
 * In scans of a progressive file, values are shifted to their place, except in escapes. The value of
 * FD_END_OF_BLOCK is how many further blocks end; in an escape, 16-31 hold how many bits of that
 * number follow. 16 zeros are always an escape, with a size of 0. FD_AC_REFINED has no pairs. */
typedef struct {
    uint32_t one[FD_ENTRIES];
    uint64_t two[FD_ENTRIES];
    uint32_t limit[17]; /* if the next 16 bits are below it, their code has at most this length */
    int32_t first[17]; /* add it to a code of this length to get its index in `symbols` */
    fd_codes codes;
    fd_table_kind kind;
    int low, is_made;
} fd_table;

/* Build the table of these codes, unless the last image had the same; `low` is the lowest bit of the
 * values. Returns 0 if libjpeg would refuse them, or if they are not codes of an image with 8 bits per
 * sample. */
int fd_table_make(fd_table *table, const fd_codes *codes, fd_table_kind kind, int low);

/* The bits to read next are at the top of `buffer`; the lowest 6 bits of `count` are their number. Between
 * blocks there are enough for a lookup. */
typedef struct {
    uint64_t buffer, count;
    const uint8_t *next;
    int32_t dc[3]; /* of the last block of each component */
    uint32_t is_odd;
} fd_bits;

INLINE uint64_t fd_eight_bytes(const uint8_t *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

/* This takes the fewest instructions: eight bytes are read, and those that do not fit are read again
 * next time. */
#define FD_REFILL(buffer, count, next)                                                             \
    do {                                                                                           \
        (buffer) |= fd_eight_bytes(next) >> ((count) & 63);                                        \
        (next) += (((count) & 63) ^ 63) >> 3;                                                      \
        (count) |= 56;                                                                             \
    } while (0)

INLINE void fd_bits_begin(fd_bits *bits, const uint8_t *from) {
    bits->buffer = bits->count = 0;
    bits->next = from;
    FD_REFILL(bits->buffer, bits->count, bits->next);
    memset(bits->dc, 0, sizeof bits->dc);
}

#define FD_LOOKUP(table) ((table)[buffer >> (64 - FD_LOOKUP_BITS)])

/* How many bytes after `from` have been read, at least in part. */
INLINE size_t fd_bytes_read(const fd_bits *bits, const uint8_t *from) {
    return ((size_t)(bits->next - from) * 8 - (size_t)(bits->count & 63) + 7) / 8;
}

/* Decode the code of an escape: set its step, and the size of what follows. */
#define FD_FIND(table, entry, step, size)                                                          \
    do {                                                                                           \
        uint32_t length_;                                                                          \
        if (__builtin_expect((uint32_t)(entry) >> 16 != FD_LONG, 1)) {                             \
            length_ = (entry) & 63;                                                                \
            size = (uint32_t)(entry) >> 16;                                                        \
            step = (entry) >> 8 & 255;                                                             \
        } else {                                                                                   \
            uint32_t code_ = (uint32_t)(buffer >> 48);                                             \
            length_ = FD_LOOKUP_BITS + 1;                                                          \
            for (int l_ = FD_LOOKUP_BITS + 1; l_ <= 16; l_++)                                      \
                length_ += code_ >= (table)->limit[l_];                                            \
            if (FD_RARELY(length_ > 16)) {                                                         \
                length_ = 16;                                                                      \
                size = 0;                                                                          \
                step = FD_NO_CODE;                                                                 \
            } else {                                                                               \
                int32_t place_ = (int32_t)(buffer >> (64 - length_)) + (table)->first[length_];    \
                uint32_t symbol_ = (table)->codes.symbols[place_ & 255];                           \
                size = (table)->kind == FD_DC ? symbol_ : symbol_ & 15;                            \
                step = (table)->kind == FD_DC ? 0                                                  \
                       : size                 ? (symbol_ >> 4) + 1                                 \
                       : symbol_ == 0xF0      ? 16                                                 \
                                              : FD_END_OF_BLOCK;                                   \
                if (step == FD_END_OF_BLOCK)                                                       \
                    size = symbol_ >> 4; /* 0 in baseline scans */                                 \
            }                                                                                      \
        }                                                                                          \
        buffer <<= length_;                                                                        \
        count -= length_;                                                                          \
    } while (0)

/* The next `size` bits as a value: those that begin with 0 are negative. */
#define FD_VALUE(size, value)                                                                      \
    do {                                                                                           \
        uint64_t negative_ = (uint64_t)((int64_t)~buffer >> 63);                                   \
        value = (int32_t)((buffer >> 1) >> (63 - (size))) +                                        \
                (int32_t)(negative_ & (uint64_t)(1 - (INT64_C(1) << (size))));                     \
        buffer <<= (size);                                                                         \
        count -= (size);                                                                           \
    } while (0)

/* Decode an escape: set its step and value. */
#define FD_FOLLOW(table, entry, step, value)                                                       \
    do {                                                                                           \
        uint32_t size_;                                                                            \
        FD_FIND(table, entry, step, size_);                                                        \
        FD_VALUE(size_, value);                                                                    \
    } while (0)

/* gcc turns memset into "rep stos" here, whose start-up alone takes longer than this loop: it was 9 %
 * of decoding. */
INLINE void fd_clear(int16_t *block) {
    typedef int64_t four __attribute__((vector_size(32), aligned(2), may_alias));
    four *part = (four *)(void *)block;
    part[0] = part[1] = part[2] = part[3] = (four){0, 0, 0, 0};
}

/* Whether a dequantised coefficient has more than 16 bits. */
INLINE uint32_t fd_is_large(int32_t value, int32_t quantiser) {
    return (uint32_t)(value * quantiser + INT16_MAX) > 2u * INT16_MAX;
}

/* T.81, F.2.2 (libjpeg: decode_mcu_fast in jdhuff.c). Four steps of
 *
 *   entry = two[next 10 bits]; drop its bits; write its two coefficients, or one twice, at k + its steps
 *
 * fit a refill. An end of block is a step beyond position 63, to where writing does no harm, so a step has one
 * branch for the end and one for escapes. If the block ended between the two, the second is given back.
 *
 * Decode the next block of component `c`. With `stores`, write its coefficients to `block` in natural
 * order, and possibly a value to position 64 after it; without, write only `block[0]`. */
INLINE void fd_block(fd_bits *bits, const fd_table *dc, const fd_table *ac,
                     const uint16_t *quantiser, int16_t *block, int c, const int stores) {
    uint64_t buffer = bits->buffer, count = bits->count;
    const uint8_t *next = bits->next;
    const uint64_t *two = ac->two;

    uint32_t start = FD_LOOKUP(dc->one);
    FD_REFILL(buffer, count, next);
    if (stores)
        fd_clear(block);
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

    uint64_t entry = FD_LOOKUP(two), here, before;
    uint32_t k = 0, k1, odd = 0;
#define FD_STEP                                                                                    \
    here = entry;                                                                                  \
    before = buffer;                                                                               \
    if (FD_RARELY(here & FD_ESCAPE)) {                                                             \
        uint32_t step;                                                                             \
        int32_t value;                                                                             \
        FD_FOLLOW(ac, (uint32_t)here, step, value);                                                \
        k += step;                                                                                 \
        if (stores) {                                                                              \
            size_t place = fd_natural_order[k];                                                    \
            block[place] = (int16_t)value;                                                         \
            odd |= fd_is_large(value, quantiser[place]);                                           \
        }                                                                                          \
        FD_REFILL(buffer, count, next);                                                            \
        if (k >= FD_LAST)                                                                          \
            goto last;                                                                             \
        entry = FD_LOOKUP(two);                                                                    \
    } else {                                                                                       \
        buffer <<= here & 63;                                                                      \
        entry = FD_LOOKUP(two);                                                                    \
        k1 = k + (uint32_t)(here >> 8 & 255);                                                      \
        k += (uint32_t)(here >> 32 & 255);                                                         \
        count -= here;                                                                             \
        if (stores) {                                                                              \
            block[fd_natural_order[k1]] = (int16_t)(here >> 16);                                   \
            block[fd_natural_order[k]] = (int16_t)(here >> 48);                                    \
        }                                                                                          \
        if (k >= FD_LAST)                                                                          \
            break;                                                                                 \
    }
    goto second; /* after the DC coefficient there are bits for two lookups and an escape */
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
        /* The first coefficient ended the block: the second belongs to the next one. */
        buffer = before << (here >> 40 & 63);
        count += (here & 63) - (here >> 40 & 63);
        k = k1;
    }
last:
    bits->is_odd |= odd | (uint32_t)(k - FD_LAST - 1 < FD_NO_CODE); /* past the end of the block */
    bits->buffer = buffer;
    bits->count = count;
    bits->next = next;
}
