/* huffman.c: builds the tables of huffman.h, for each file that has other codes than the one before. */
#include "huffman.h"

/* Fill `count` entries. */
static uint32_t *fill(uint32_t *entry, uint32_t value, int count) {
    for (int i = 0; i < count; i++)
        *entry++ = value;
    return entry;
}

static uint32_t *add_escape(uint32_t *entry, int length, int step, int size) {
    uint32_t value = (uint32_t)size << 16 | (uint32_t)step << 8 | FD_ESCAPE | (uint32_t)length;
    return fill(entry, value, 1 << (FD_LOOKUP_BITS - length));
}

/* Add the entries of a code of `length` bits, in the order of the bits that may follow. */
static uint32_t *add_code(uint32_t *entry, int length, int step, int size, int low) {
    int spare = FD_LOOKUP_BITS - length - size;
    uint32_t common = (uint32_t)step << 8 | (uint32_t)(length + size);
    if (size == 0)
        return fill(entry, common, 1 << spare);
    if (spare < 0 || size + low > FD_MOST_SMALL_BITS)
        return add_escape(entry, length, step, size);
    int half = 1 << (size - 1);
    for (int value = 1 - 2 * half; value <= -half; value++)
        entry = fill(entry, common | (uint32_t)(value * (1 << low)) << 16, 1 << spare);
    for (int value = half; value < 2 * half; value++)
        entry = fill(entry, common | (uint32_t)(value * (1 << low)) << 16, 1 << spare);
    return entry;
}

/* The same for an end of block, of 2^bits blocks and as many more as the bits behind it say. */
static uint32_t *add_end(uint32_t *entry, int length, int bits) {
    int spare = FD_LOOKUP_BITS - length - bits;
    uint32_t common = FD_END_OF_BLOCK << 8 | (uint32_t)(length + bits);
    if (spare < 0)
        return add_escape(entry, length, FD_END_OF_BLOCK, bits);
    for (int more = 0; more < 1 << bits; more++)
        entry = fill(entry, common | (uint32_t)((1 << bits) - 1 + more) << 16, 1 << spare);
    return entry;
}

/* After the first code come the bits of the next: look them up, too. They fit the lookup together or not. */
static void make_pairs(fd_table *table) {
    for (uint32_t i = 0; i < FD_ENTRIES; i++) {
        uint32_t first = table->one[i], bits = first & 63, step = first >> 8 & 255;
        uint32_t second = table->one[(i << bits) & (FD_ENTRIES - 1)];
        int both = !((first | second) & FD_ESCAPE) && step < FD_NO_CODE &&
                   bits + (second & 63) <= FD_LOOKUP_BITS;
        uint32_t more = both ? second : 0;
        uint64_t low = (first & ~UINT32_C(63)) | (bits + (more & 63));
        uint64_t high = (step + (more >> 8 & 255)) | bits << 8 |
                        ((both ? second : first) & UINT32_C(0xFFFF0000));
        table->two[i] = low | high << 32;
    }
}

static int is_made_of(const fd_table *table, const fd_codes *codes, fd_table_kind kind, int low) {
    const fd_codes *of = &table->codes;
    return table->is_made && table->kind == kind && table->low == low &&
           memcmp(of->counts, codes->counts, sizeof of->counts) == 0 &&
           memcmp(of->symbols, codes->symbols, sizeof of->symbols) == 0;
}

/* T.81, C.2: the codes of a length count on from the last one of the length before, times two. So they come
 * in the order of the table's entries, each as often as there are bits that may follow it; and a code is that
 * of a length if it is below the limit (F.2.2.3, with MAXCODE). */
int fd_table_make(fd_table *table, const fd_codes *codes, fd_table_kind kind, int low) {
    static const int MOST_BITS[] = {[FD_DC] = FD_MOST_DC_BITS,
                                    [FD_AC] = FD_MOST_AC_BITS,
                                    [FD_AC_FIRST] = FD_MOST_AC_BITS,
                                    [FD_AC_REFINED] = 1};
    int is_dc = kind == FD_DC, is_baseline = kind == FD_AC;
    uint32_t *entry = table->one;
    int32_t code = 0, place = 0;
    if (is_made_of(table, codes, kind, low))
        return 1; /* making it takes longer than the rest of a small image */
    table->codes = *codes;
    table->kind = kind;
    table->low = low;
    table->is_made = 0; /* until the end */
    for (int length = 1; length <= 16; length++) {
        table->first[length] = place - code;
        for (int i = 0; i < codes->counts[length]; i++, place++, code++) {
            int symbol = codes->symbols[place];
            int run = is_dc ? 0 : symbol >> 4, size = is_dc ? symbol : symbol & 15;
            int is_end = !is_dc && size == 0 && run != 15;
            if (size > MOST_BITS[kind] || (is_baseline && is_end && run != 0))
                return 0;
            if (length > FD_LOOKUP_BITS || code >= 1 << length)
                continue;
            if (is_end)
                entry = add_end(entry, length, run);
            else if (size == 0 && !is_dc && !is_baseline)
                entry = add_escape(entry, length, 16, 0);
            else
                entry = add_code(entry, length, is_dc ? 0 : run + 1, size, low);
        }
        if (codes->counts[length] && code >= 1 << length) /* a code of only ones is not allowed */
            return 0;
        table->limit[length] = (uint32_t)code << (16 - length);
        code <<= 1;
    }
    fill(entry, (uint32_t)FD_LONG << 16 | FD_ESCAPE, (int)(table->one + FD_ENTRIES - entry));
    if (kind == FD_AC || kind == FD_AC_FIRST)
        make_pairs(table);
    table->is_made = 1;
    return 1;
}
