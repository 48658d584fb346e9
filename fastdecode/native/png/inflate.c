/* inflate.c: deflate, for the long runs of literals of photographs.
 *
 * One lookup of FD_LITERAL_BITS bits gives up to three literals, because those of a photograph have
 * codes of few bits. Bits are read and results are written without a check for each symbol: the input
 * has padding, the output has room to spare, and the loop checks both once a round. */
#include "inflate.h"

#include "kernels.h"

#include <assert.h>
#include <string.h>

#define RARELY(condition) __builtin_expect(!!(condition), 0)

/* Entries of both tables: bits 0 to 5, how many bits to drop. Of `literals`, if bits 6 and 7 are not 0:
 * they count the literals in bits 8 to 31. Otherwise, as in `distances`: bits 8 to 11, the bits of the
 * code, which come before the extra ones; 12 to 15, how many extra ones; from 16 on, the base. */
enum {
    COUNT_SHIFT = 6,
    COUNT_MASK = 3 << COUNT_SHIFT,
    DROP_MASK = 63,
    CODE_SHIFT = 8,
    EXTRA_SHIFT = 12,
    NIBBLE = 15,
    BASE_SHIFT = 16,
    END_OF_BLOCK = 256,
    FIRST_LENGTH = 257,
    LENGTHS = 29,
    DISTANCES = 30
};
static const uint32_t EXCEPTION =
    1u << 31; /* no literal and no length: one of the next, or a long code */
static const uint32_t IS_END = 1u << 30, IS_INVALID = 1u << 29;
#define NO_DISTANCE 0u /* no code is so short: a long one, or none */

/* RFC 1951, 3.2.5. */
static const uint16_t length_base[LENGTHS] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                              15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                              67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[LENGTHS] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[DISTANCES] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t distance_extra[DISTANCES] = {0, 0, 0,  0,  1,  1,  2,  2,  3,  3,
                                                  4, 4, 5,  5,  6,  6,  7,  7,  8,  8,
                                                  9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

/* ---- bits ---- */

enum {
    MOST_OF_ROUND = 32,   /* bytes that a round of decode_symbols reads */
    MOST_OF_HEADER =
        640, /* the same of a block's header: up to 316 codes of 14 bits, and 10 bytes */
    BEYOND = 16           /* the end of the stream may be left behind until the next check */
};

/* Read on, if less than a header is left. */
static void read_on(fd_inflater *inflater) {
    uint8_t *const start = inflater->input + FD_INFLATE_BEHIND;

    assert(inflater->is_all || inflater->next <= inflater->end);
    if (inflater->is_all || inflater->end - inflater->next >= MOST_OF_HEADER)
        return;
    size_t left = (size_t)(inflater->end - inflater->next), room = FD_INPUT - left;
    inflater->passed += (size_t)(inflater->next - start);
    memmove(inflater->input, inflater->next - FD_INFLATE_BEHIND, FD_INFLATE_BEHIND + left);
    size_t got = inflater->read(inflater->read_state, start + left, room);
    assert(got <= room);
    inflater->is_all = got < room;
    inflater->next = start;
    inflater->end = start + left + got;
    if (inflater->is_all)
        memset(start + left + got, 0, FD_INFLATE_PADDING);
}

/* Where a loop must stop reading. */
INLINE const uint8_t *last_start(const fd_inflater *inflater) {
    return inflater->is_all ? inflater->end + BEYOND : inflater->end - MOST_OF_ROUND;
}

INLINE uint64_t load64(const uint8_t *at) { /* little-endian: png.c sees to that */
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

/* Fill up to at least 56 bits. */
#define REFILL()                                                                                   \
    (bits |= load64(next) << (count & 63), next += ((count & 63) ^ 63) >> 3, count |= 56)
#define LOW(n) (bits & ((UINT64_C(1) << (n)) - 1))
#define DROP(n) (bits >>= (n), count -= (n))
#define LOOKUP() (literals[LOW(FD_LITERAL_BITS)])

INLINE uint32_t reversed(uint32_t code, int length) {
    code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
    code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
    code = (code & 0x0F0F) << 4 | (code >> 4 & 0x0F0F);
    code = (code & 0x00FF) << 8 | (code >> 8 & 0x00FF);
    return code >> (16 - length);
}

/* ---- tables ---- */

/* The codes of a block, while its tables are made: by place in `symbols`. */
typedef struct {
    int first[FD_LONGEST_CODE + 2]; /* place of each length */
    uint16_t code[FD_MOST_SYMBOLS]; /* reversed */
} sorted_codes;

/* RFC 1951, 3.2.2: the codes of a length count on, as in JPEG, but their bits come in reverse.
 *
 * Sort the symbols by the lengths of their codes. Returns 0 if they are too many or too few; one code of
 * one bit, or none, is enough if `few_are_enough`. */
static int sort_codes(fd_symbol_code *to, const uint8_t *lengths, int symbols, int few_are_enough,
                      sorted_codes *sorted) {
    int of_length[FD_LONGEST_CODE + 1] = {0}, next[FD_LONGEST_CODE + 1];
    uint32_t codes[FD_LONGEST_CODE + 1], code = 0;
    int place = 0, unused = 1;

    for (int i = 0; i < symbols; i++)
        of_length[lengths[i]]++;
    for (int length = 1; length <= FD_LONGEST_CODE; length++) {
        int count = of_length[length];
        sorted->first[length] = next[length] = place;
        to->offset[length] = place - (int32_t)code;
        codes[length] = code;
        code += (uint32_t)count;
        place += count;
        unused = 2 * unused - count;
        if (unused < 0)
            return 0;
        to->limit[length] = code << (16 - length);
        code <<= 1;
    }
    sorted->first[FD_LONGEST_CODE + 1] = place;
    if (unused > 0 && !(few_are_enough && place == of_length[1]))
        return 0;
    for (int i = 0; i < symbols; i++)
        if (lengths[i]) {
            int at = next[lengths[i]]++;
            to->symbols[at] = (uint16_t)i;
            sorted->code[at] = (uint16_t)reversed(codes[lengths[i]]++, lengths[i]);
        }
    return 1;
}

static uint32_t literal_entry(int symbol, int length) {
    uint32_t drop = (uint32_t)length;

    if (symbol < END_OF_BLOCK)
        return (uint32_t)symbol << CODE_SHIFT | 1u << COUNT_SHIFT | drop;
    if (symbol == END_OF_BLOCK)
        return EXCEPTION | IS_END | drop;
    if (symbol >= FIRST_LENGTH + LENGTHS)
        return EXCEPTION | IS_INVALID;
    uint32_t extra = length_extra[symbol - FIRST_LENGTH];
    return (uint32_t)length_base[symbol - FIRST_LENGTH] << BASE_SHIFT | extra << EXTRA_SHIFT |
           drop << CODE_SHIFT | (drop + extra);
}

static uint32_t distance_entry(int symbol, int length) {
    if (symbol >= DISTANCES)
        return NO_DISTANCE;
    uint32_t drop = (uint32_t)length, extra = distance_extra[symbol];
    return (uint32_t)distance_base[symbol] << BASE_SHIFT | extra << EXTRA_SHIFT |
           drop << CODE_SHIFT | (drop + extra);
}

/* Grow the table bit by bit: a table of n bits is two copies of that of n - 1 bits, and the codes, or
 * pairs or triples of literals, that have n bits together. */
static int make_literals(fd_inflater *inflater, const uint8_t *lengths, int symbols) {
    const fd_symbol_code *code = &inflater->literal_code;
    uint32_t *table = inflater->literals;
    sorted_codes sorted;
    int behind[FD_LONGEST_CODE + 1]; /* the place after the last literal of each length */
    struct {
        uint32_t index, entry;
    } pairs[1 << FD_LITERAL_BITS];
    int first_pair[FD_LITERAL_BITS + 2], count = 0;

    if (!sort_codes(&inflater->literal_code, lengths, symbols, 0, &sorted))
        return 0;
    for (int length = 1; length <= FD_LONGEST_CODE; length++) {
        int at = sorted.first[length];
        while (at < sorted.first[length + 1] && code->symbols[at] < END_OF_BLOCK)
            at++;
        behind[length] = at;
    }
    table[0] = table[1] = EXCEPTION;
    for (int length = 1; length <= FD_LITERAL_BITS; length++) {
        if (length > 1)
            memcpy(table + (1u << (length - 1)), table, sizeof *table << (length - 1));
        for (int at = sorted.first[length]; at < sorted.first[length + 1]; at++)
            table[sorted.code[at]] = literal_entry(code->symbols[at], length);
        first_pair[length] = count;
        for (int one = 1; one < length; one++)
            for (int at = sorted.first[one]; at < behind[one]; at++) {
                uint32_t both = (uint32_t)code->symbols[at] << 8 | 2u << COUNT_SHIFT |
                                (uint32_t)length;
                int other = length - one;
                for (int to = sorted.first[other]; to < behind[other]; to++) {
                    uint32_t index = sorted.code[at] | (uint32_t)sorted.code[to] << one;
                    pairs[count].index = index;
                    pairs[count].entry = table[index] = both | (uint32_t)code->symbols[to] << 16;
                    count++;
                }
            }
        first_pair[length + 1] = count;
        for (int two = 2; two < length; two++)
            for (int at = sorted.first[length - two]; at < behind[length - two]; at++)
                for (int pair = first_pair[two]; pair < first_pair[two + 1]; pair++)
                    table[pairs[pair].index | (uint32_t)sorted.code[at] << two] =
                        (pairs[pair].entry & 0x00FFFF00u) | (uint32_t)code->symbols[at] << 24 |
                        3u << COUNT_SHIFT | (uint32_t)length;
    }
    return 1;
}

static int make_distances(fd_inflater *inflater, const uint8_t *lengths, int symbols) {
    uint32_t *table = inflater->distances;
    sorted_codes sorted;

    if (!sort_codes(&inflater->distance_code, lengths, symbols, 1, &sorted))
        return 0;
    table[0] = table[1] = NO_DISTANCE;
    for (int length = 1; length <= FD_DISTANCE_BITS; length++) {
        if (length > 1)
            memcpy(table + (1u << (length - 1)), table, sizeof *table << (length - 1));
        for (int at = sorted.first[length]; at < sorted.first[length + 1]; at++)
            table[sorted.code[at]] = distance_entry(inflater->distance_code.symbols[at], length);
    }
    return 1;
}

/* Find a code bit by bit. Returns its symbol, and its length; -1 if there is no such code. */
static int find_symbol(const fd_symbol_code *code, uint64_t bits, int *length) {
    uint32_t first = reversed((uint32_t)bits & 0xFFFF, 16);

    for (int n = 1; n <= FD_LONGEST_CODE; n++)
        if (first < code->limit[n]) {
            *length = n;
            return code->symbols[(int32_t)(first >> (16 - n)) + code->offset[n]];
        }
    return -1;
}

/* ---- blocks ---- */

static int begin_fixed(fd_inflater *inflater) {
    uint8_t lengths[FD_MOST_SYMBOLS + 32];

    if (inflater->has_fixed)
        return 1;
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    memset(lengths + 280, 8, 8);
    memset(lengths + FD_MOST_SYMBOLS, 5, 32);
    inflater->has_fixed = make_literals(inflater, lengths, FD_MOST_SYMBOLS) &&
                          make_distances(inflater, lengths + FD_MOST_SYMBOLS, 32);
    return inflater->has_fixed;
}

/* Read the header of a block. Returns 0 if it is damaged. */
static int begin_block(fd_inflater *inflater) {
    enum { STORED, FIXED, DYNAMIC, LENGTH_CODES = 19, LENGTH_BITS = 7 };
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                11, 4,  12, 3, 13, 2, 14, 1, 15};
    const uint8_t *next = inflater->next, *past = last_start(inflater);
    uint64_t bits = inflater->bits, count = inflater->count;

    if (next > past)
        return 0;
    REFILL();
    inflater->is_last = (int)LOW(1);
    DROP(1);
    int kind = (int)LOW(2);
    DROP(2);
    if (kind == STORED) {
        DROP(count & 7); /* to the next whole byte */
        REFILL();
        uint32_t length = (uint32_t)LOW(16), inverse = (uint32_t)(bits >> 16 & 0xFFFF);
        DROP(32);
        next -= (count & 63) >> 3; /* bytes that were read too early */
        bits = count = 0;
        if ((length ^ inverse) != 0xFFFF || next > inflater->end)
            return 0;
        inflater->stored = length;
        inflater->state = FD_IN_STORED;
    } else if (kind == FIXED) {
        if (!begin_fixed(inflater))
            return 0;
        inflater->state = FD_IN_CODES;
    } else if (kind == DYNAMIC) {
        uint8_t of_lengths[LENGTH_CODES] = {0}, table[1 << LENGTH_BITS];
        uint8_t lengths[FD_MOST_SYMBOLS + 32 + 138]; /* a run may end too late */
        fd_symbol_code code;
        sorted_codes sorted;
        int literals = (int)LOW(5) + 257, distances, codes, have = 0;
        DROP(5);
        distances = (int)LOW(5) + 1;
        DROP(5);
        codes = (int)LOW(4) + 4;
        DROP(4);
        if (literals > 286 || distances > DISTANCES)
            return 0;
        for (int i = 0; i < codes; i++) {
            if (i % 16 == 0)
                REFILL();
            of_lengths[order[i]] = (uint8_t)LOW(3);
            DROP(3);
        }
        if (!sort_codes(&code, of_lengths, LENGTH_CODES, 0, &sorted))
            return 0;
        for (int length = 1; length <= LENGTH_BITS; length++)
            for (int at = sorted.first[length]; at < sorted.first[length + 1]; at++)
                for (int i = sorted.code[at]; i < 1 << LENGTH_BITS; i += 1 << length)
                    table[i] = (uint8_t)(code.symbols[at] | length << 5);
        while (have < literals + distances) {
            REFILL();
            if (next > past)
                return 0;
            uint32_t entry = table[LOW(LENGTH_BITS)];
            int symbol = (int)(entry & 31), times = 1;
            uint8_t length = (uint8_t)symbol;
            DROP(entry >> 5);
            if (symbol == 16) { /* the one before, 3 to 6 times */
                if (have == 0)
                    return 0;
                length = lengths[have - 1];
                times = 3 + (int)LOW(2);
                DROP(2);
            } else if (symbol > 16) { /* none, 3 to 10 or 11 to 138 times */
                int is_long = symbol == 18;
                length = 0;
                times = is_long ? 11 + (int)LOW(7) : 3 + (int)LOW(3);
                DROP(is_long ? 7 : 3);
            }
            memset(lengths + have, length, (size_t)times);
            have += times;
        }
        inflater->has_fixed = 0;
        if (have != literals + distances || lengths[END_OF_BLOCK] == 0 ||
            !make_literals(inflater, lengths, literals) ||
            !make_distances(inflater, lengths + literals, distances))
            return 0;
        inflater->state = FD_IN_CODES;
    } else {
        return 0;
    }
    inflater->next = next;
    inflater->bits = bits;
    inflater->count = count;
    return 1;
}

/* Copy a match that does not overlap within 16 bytes. Writes up to 31 bytes too many. */
INLINE void copy_far(uint8_t *to, const uint8_t *from, const uint8_t *end, size_t distance) {
    memcpy(to, from, 16);
    memcpy(to + 16, from + 16, 16);
    if (distance >= 32)
        while ((to += 32) < end) {
            from += 32;
            memcpy(to, from, 32);
        }
    else
        for (to += 32, from += 32; to < end; to += 16, from += 16)
            memcpy(to, from, 16);
}

/* Repeat the last `distance` bytes, fewer than 16. Writes up to 63 bytes too many. */
INLINE void copy_near(uint8_t *to, const uint8_t *end, size_t distance) {
    /* For each distance, the smallest multiple of it from 32 on. */
    static const uint8_t period[16] = {0,  32, 32, 33, 32, 35, 36, 35,
                                       32, 36, 40, 33, 36, 39, 42, 45};
    /* Multiplied by as many bytes as the distance, copies of them fill a word. */
    static const uint64_t copies[8] = {0,
                                       UINT64_C(0x0101010101010101),
                                       UINT64_C(0x0001000100010001),
                                       UINT64_C(0x0001000001000001),
                                       UINT64_C(0x0000000100000001),
                                       UINT64_C(0x0000010000000001),
                                       UINT64_C(0x0001000000000001),
                                       UINT64_C(0x0100000000000001)};
    const uint8_t *filled = to + period[distance];

    if (distance < 8) {
        uint64_t word = load64(to - distance) & ((UINT64_C(1) << 8 * distance) - 1);
        size_t step = 8 - 8 % distance;
        word *= copies[distance];
        for (uint8_t *at = to; at < filled; at += step)
            memcpy(at, &word, sizeof word);
    } else {
        for (uint8_t *at = to; at < filled; at += 8)
            memcpy(at, at - distance, 8);
    }
    for (uint8_t *at = to + 32; at < end; at += 32)
        memcpy(at, at - period[distance], 32);
}

/* With 64 bits in hand:
 *
 *   look up 12 bits; while they are literals: write three bytes, of which one to three count, up to 4 times
 *   else a length: its extra bits, look up the distance and its extra bits, copy
 *
 * The next lookup is made before the copy, which then does not delay it.
 *
 * Decode symbols until the output reaches its limit, the block ends, or there is little input left.
 * Returns the new end of the output; NULL if the data is damaged. */
static FD_VARIANTS(uint8_t *, decode_symbols,
                   (fd_inflater * inflater, const uint8_t *base, uint8_t *out,
                    const uint8_t *limit),
                   (inflater, base, out, limit)) {
    const uint32_t *literals = inflater->literals, *distances = inflater->distances;
    const uint8_t *next = inflater->next, *const past = last_start(inflater);
    uint64_t bits = inflater->bits, count = inflater->count;

    REFILL();
    uint32_t entry = LOOKUP();
    while (out < limit && next <= past) {
        int lookups = 0;
        REFILL(); /* the lookups do not wait for it: their bits have been there since the last time */
        while (entry & COUNT_MASK) {
            uint32_t three = entry >> CODE_SHIFT;
            memcpy(out, &three, sizeof three);
            bits >>= entry & DROP_MASK;
            count -= entry; /* the bits above the sixth do not matter */
            out += entry >> COUNT_SHIFT & 3;
            entry = LOOKUP();
            if (++lookups == 4) /* 5 lookups of 12 bits fit into 64 */
                break;
        }
        if (lookups == 4)
            continue;
        REFILL(); /* a length and a distance have up to 48 bits */
        if (RARELY(entry & EXCEPTION)) {
            if (!(entry & (IS_END | IS_INVALID))) {
                int length, symbol = find_symbol(&inflater->literal_code, bits, &length);
                if (symbol < 0)
                    return NULL;
                entry = literal_entry(symbol, length);
            }
            if (entry & COUNT_MASK && !(entry & EXCEPTION)) {
                *out++ = (uint8_t)(entry >> CODE_SHIFT);
                DROP(entry & DROP_MASK);
                entry = LOOKUP();
                continue;
            }
            if (entry & EXCEPTION) {
                if (entry & IS_INVALID)
                    return NULL;
                DROP(entry & DROP_MASK);
                inflater->state = inflater->is_last ? FD_AT_END : FD_AT_HEADER;
                break;
            }
        }
        uint64_t before = bits;
        DROP(entry & DROP_MASK);
        size_t length = (entry >> BASE_SHIFT) +
                        (size_t)(before >> (entry >> CODE_SHIFT & NIBBLE) &
                                 ((UINT64_C(1) << (entry >> EXTRA_SHIFT & NIBBLE)) - 1));
        uint32_t other = distances[LOW(FD_DISTANCE_BITS)];
        if (RARELY(other == NO_DISTANCE)) {
            int bits_of, symbol = find_symbol(&inflater->distance_code, bits, &bits_of);
            if (symbol < 0 || symbol >= DISTANCES)
                return NULL;
            other = distance_entry(symbol, bits_of);
        }
        before = bits;
        DROP(other & DROP_MASK);
        size_t distance = (other >> BASE_SHIFT) +
                          (size_t)(before >> (other >> CODE_SHIFT & NIBBLE) &
                                   ((UINT64_C(1) << (other >> EXTRA_SHIFT & NIBBLE)) - 1));
        if (RARELY(distance > (size_t)(out - base)))
            return NULL;
        entry = LOOKUP();
        if (distance >= 16)
            copy_far(out, out - distance, out + length, distance);
        else
            copy_near(out, out + length, distance);
        out += length;
    }
    inflater->next = next;
    inflater->bits = bits;
    inflater->count = count;
    return next > past && inflater->is_all ? NULL : out;
}

/* ---- the stream ---- */

void fd_inflate_begin(fd_inflater *inflater, fd_inflate_read *read, void *read_state) {
    inflater->read = read;
    inflater->read_state = read_state;
    inflater->passed = 0;
    inflater->next = inflater->end = inflater->input + FD_INFLATE_BEHIND;
    inflater->bits = inflater->count = 0;
    inflater->state = FD_AT_HEADER;
    inflater->is_all = inflater->is_last = inflater->has_fixed = 0;
}

/* Copy some of a stored block. Returns the new end of the output; NULL if there is no input left. */
static uint8_t *copy_stored(fd_inflater *inflater, uint8_t *out, const uint8_t *limit) {
    size_t some = (size_t)(limit - out), there = (size_t)(inflater->end - inflater->next);

    some = some < inflater->stored ? some : inflater->stored;
    some = some < there ? some : there;
    if (some == 0 && inflater->stored > 0)
        return NULL;
    memcpy(out, inflater->next, some);
    inflater->next += some;
    inflater->stored -= (uint32_t)some;
    if (inflater->stored == 0)
        inflater->state = inflater->is_last ? FD_AT_END : FD_AT_HEADER;
    return out + some;
}

/* Whether bits were used that are not of the stream, but of the padding behind it. */
static int has_read_padding(const fd_inflater *inflater) {
    size_t in_buffer = (size_t)(inflater->end - (inflater->input + FD_INFLATE_BEHIND));
    return inflater->is_all && fd_inflate_used(inflater) > inflater->passed + in_buffer;
}

uint8_t *fd_inflate(fd_inflater *inflater, const uint8_t *base, uint8_t *out, uint8_t *limit) {
    while (out != NULL && out < limit && inflater->state != FD_AT_END) {
        read_on(inflater);
        if (inflater->state == FD_AT_HEADER && !begin_block(inflater))
            return NULL;
        if (inflater->state == FD_IN_STORED) {
            out = copy_stored(inflater, out, limit);
        } else if (inflater->state == FD_IN_CODES) {
            out = decode_symbols(inflater, base, out, limit);
            assert(out == NULL || out <= limit + FD_INFLATE_SPARE);
        }
        if (has_read_padding(inflater))
            return NULL;
    }
    return out;
}

size_t fd_inflate_used(const fd_inflater *inflater) {
    size_t in_buffer = (size_t)(inflater->next - (inflater->input + FD_INFLATE_BEHIND));
    return inflater->passed + in_buffer - ((inflater->count & 63) >> 3);
}
