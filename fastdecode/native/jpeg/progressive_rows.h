/* progressive_rows.h: how a row of MCUs of one scan is decoded.
 *
 * What takes the time are the scans that add one bit to AC coefficients. There every coefficient that
 * is not 0 has a bit in the data, between the codes of those that are new. A mask of 64 bits says which
 * they are: so the place behind a run of zeros, and the coefficients that it passes, are found without a
 * loop over the block, and the bits of all that are passed are read together.
 *
 * As in huffman.h, the end of the data is checked after each block or MCU, and `is_odd` records what
 * libjpeg would warn of, or what no encoder writes.
 *
 * simd_16.c and simd_avx2.c include it, each for other processors: FD_TARGET is an attribute
 * of all functions, FD_PDEP(bits, mask) the instruction that spreads bits, where there is one. */
#include <assert.h>

#define FD_ROWS static inline __attribute__((always_inline)) FD_TARGET

#define BIT(k) ((UINT64_C(1) << 63) >> ((k) & 63))

enum {
    /* Bits that are surely there after a refill, a code of 16 bits and a value of one. */
    READY = 36
};

/* Begin the next interval if this one has no MCU left. Returns 0 if it has data left. */
FD_ROWS int advance(const fd_progressive *progressive, fd_reader *reader) {
    if (FD_RARELY(reader->left == 0)) {
        if (!fd_reader_is_within(progressive, reader, 1))
            return 0;
        fd_reader_begin(progressive, reader, reader->interval + 1);
    }
    reader->left--;
    return 1;
}

/* ---- DC coefficients ---- */

/* The first bits of a block's DC coefficient, which is that of `dc[i]` for component `c`. */
FD_ROWS void first_dc(fd_reader *reader, int i, int32_t quantiser, int16_t *block) {
    fd_bits *bits = &reader->bits;
    const fd_table *table = reader->tables[i];
    uint64_t buffer = bits->buffer, count = bits->count;
    int32_t difference, unit = 1 << reader->pass->low;
    uint32_t entry = FD_LOOKUP(table->one);
    FD_REFILL(buffer, count, bits->next);
    if (FD_RARELY(entry & FD_ESCAPE)) {
        uint32_t step;
        FD_FOLLOW(table, entry, step, difference);
        bits->is_odd |= step;
    } else {
        buffer <<= entry & 63;
        count -= entry;
        difference = (int16_t)(entry >> 16);
    }
    int32_t level = bits->dc[i] + difference;
    /* Later scans add less than one unit. */
    bits->is_odd |= fd_is_large(level * unit, quantiser | 1);
    bits->is_odd |= fd_is_large((level + 1) * unit, quantiser | 1);
    bits->dc[i] = (int16_t)level;
    block[0] = (int16_t)(level * unit);
    bits->buffer = buffer;
    bits->count = count;
}

FD_ROWS void refine_dc(fd_reader *reader, int16_t *block) {
    fd_bits *bits = &reader->bits;
    FD_REFILL(bits->buffer, bits->count, bits->next);
    block[0] = (int16_t)(block[0] | (int16_t)((bits->buffer >> 63) << reader->pass->low));
    bits->buffer <<= 1;
    bits->count -= 1;
}

/* Decode `across` by `down` blocks of the scan's i-th component, from column `x` of row `row` on. */
FD_ROWS void dc_blocks(fd_progressive *progressive, fd_reader *reader, int i, int32_t x,
                       int32_t row, int32_t across, int32_t down, const int is_first) {
    int c = reader->pass->component[i];
    const fd_coefficients *to = &progressive->components[c];
    const fd_frame *frame = progressive->frame;
    int32_t quantiser = frame->quantisers[frame->component[c].quantiser][0];
    for (int32_t v = row; v < row + down; v++) {
        int16_t *block = to->blocks + (size_t)(v * to->across + x) * FD_STRIDE;
        for (int32_t h = 0; h < across; h++, block += FD_STRIDE) {
            if (is_first)
                first_dc(reader, i, quantiser, block);
            else
                refine_dc(reader, block);
        }
    }
}

FD_ROWS int is_fine(const fd_reader *reader) {
    return !FD_RARELY(reader->bits.next > reader->limit || reader->bits.is_odd);
}

/* A row of MCUs of several components. */
FD_ROWS int dc_mcus(fd_progressive *progressive, fd_reader *reader, const int is_first) {
    const fd_frame *frame = progressive->frame;
    const fd_pass *pass = reader->pass;
    for (int32_t x = 0; x < frame->mcus_across; x++) {
        if (!advance(progressive, reader))
            return 0;
        for (int i = 0; i < pass->components; i++) {
            const fd_component *of = &frame->component[pass->component[i]];
            dc_blocks(progressive, reader, i, x * of->across, 0, of->across, of->down, is_first);
        }
        if (!is_fine(reader))
            return 0;
    }
    return 1;
}

/* The rows of blocks in row `y` of MCUs; the last row of MCUs may have fewer. */
FD_ROWS int32_t rows_of(const fd_coefficients *of, int32_t y) {
    int32_t left = of->real_down - y * of->down;
    return left < of->down ? left : of->down;
}

/* The same row of one component. Without the blocks that fill up MCUs there may be none. */
FD_ROWS int dc_component(fd_progressive *progressive, fd_reader *reader, int32_t y,
                         const int is_first) {
    const fd_coefficients *of = &progressive->components[reader->pass->component[0]];
    for (int32_t row = 0; row < rows_of(of, y); row++)
        for (int32_t x = 0; x < of->real_across; x++) {
            if (!advance(progressive, reader))
                return 0;
            dc_blocks(progressive, reader, 0, x, row, 1, 1, is_first);
            if (!is_fine(reader))
                return 0;
        }
    return 1;
}

FD_ROWS int dc_row(fd_progressive *progressive, fd_reader *reader, int32_t y, const int is_first) {
    return reader->pass->components > 1 ? dc_mcus(progressive, reader, is_first)
                                        : dc_component(progressive, reader, y, is_first);
}

/* ---- the first bits of AC coefficients ---- */

FD_ROWS uint32_t top_bits(uint64_t buffer, uint32_t count) {
    return (uint32_t)((buffer >> 1) >> (63 - count));
}

/* T.81, G.1.2.2 (decode_mcu_AC_first): decode the coefficients of a band, two with one lookup, as fd_block
 * does; an end of band may be that of several blocks. `k` is the last place, `found` has a bit for each that is
 * not 0. Three steps take what a refill gives. */
FD_ROWS void first_ac(fd_reader *reader, const uint16_t *quantiser, int16_t *block,
                      uint64_t *mask) {
    fd_bits *bits = &reader->bits;
    const fd_table *table = reader->tables[0];
    const uint64_t *two = table->two;
    const uint8_t *order = reader->order, *next = bits->next;
    uint64_t buffer = bits->buffer, count = bits->count;
    uint32_t k = (uint32_t)reader->pass->first - 1, last = (uint32_t)reader->pass->last;
    uint64_t found = 0, found_before, entry = FD_LOOKUP(two), here, before;
    uint32_t k1, odd = 0;
#define STEP                                                                                       \
    here = entry;                                                                                  \
    before = buffer;                                                                               \
    if (FD_RARELY(here & FD_ESCAPE)) {                                                             \
        uint32_t step, size;                                                                       \
        FD_FIND(table, (uint32_t)here, step, size);                                                \
        if (step == FD_END_OF_BLOCK) {                                                             \
            reader->ends = (1u << size) - 1 + top_bits(buffer, size);                              \
            buffer <<= size;                                                                       \
            count -= size;                                                                         \
            goto done;                                                                             \
        }                                                                                          \
        k += step;                                                                                 \
        if (size) {                                                                                \
            int32_t value;                                                                         \
            FD_VALUE(size, value);                                                                 \
            size_t place = order[k];                                                               \
            value *= 1 << reader->pass->low;                                                       \
            block[place] = (int16_t)value;                                                         \
            found |= BIT(k);                                                                       \
            /* Later scans add less than one unit. */                                              \
            int32_t more = value + (value < 0 ? -1 : 1) * (1 << reader->pass->low);                \
            odd |= fd_is_large(more, quantiser[place]);                                            \
        }                                                                                          \
        FD_REFILL(buffer, count, next);                                                            \
        if (k >= last) {                                                                           \
            odd |= k > last;                                                                       \
            goto done;                                                                             \
        }                                                                                          \
        entry = FD_LOOKUP(two);                                                                    \
    } else {                                                                                       \
        buffer <<= here & 63;                                                                      \
        entry = FD_LOOKUP(two);                                                                    \
        k1 = k + (uint32_t)(here >> 8 & 255);                                                      \
        k += (uint32_t)(here >> 32 & 255);                                                         \
        count -= here;                                                                             \
        block[order[k1]] = (int16_t)(here >> 16);                                                  \
        block[order[k]] = (int16_t)(here >> 48);                                                   \
        found_before = found;                                                                      \
        found |= BIT(k1) | BIT(k);                                                                 \
        if (k >= last)                                                                             \
            break;                                                                                 \
    }
    for (;;) {
        FD_REFILL(buffer, count, next);
        STEP STEP STEP
    }
#undef STEP
    if (FD_RARELY(k1 >= last && k1 < FD_END_OF_BLOCK)) {
        /* The first coefficient ended the band: the second belongs to the next block. */
        buffer = before << (here >> 40 & 63);
        count += (here & 63) - (here >> 40 & 63);
        found = found_before | BIT(k1);
        odd |= k1 > last;
    } else if (k >= FD_END_OF_BLOCK) {
        /* The end has set the bit of the place before it, which may be the last of 16 zeros. */
        found = found_before | (k1 < FD_END_OF_BLOCK ? BIT(k1) : 0);
        reader->ends = (uint32_t)(here >> 48);
    } else {
        odd |= k > last;
    }
done:
    *mask |= found & reader->band; /* a file that is refused has others */
    bits->is_odd |= odd;
    bits->buffer = buffer;
    bits->count = count;
    bits->next = next;
}

/* ---- one more bit of AC coefficients ---- */

/* Give the lowest bits of `bits`, in order, to the places that `mask` has, from the lowest on. */
FD_ROWS uint64_t spread(uint64_t bits, uint64_t mask) {
#ifdef FD_PDEP
    return FD_PDEP(bits, mask);
#else
    uint64_t out = 0;
    for (; bits; bits >>= 1, mask &= mask - 1)
        out |= mask & (~mask + 1) & (~(bits & 1) + 1);
    return out;
#endif
}

/* The place of the zero with the number `run`, from the highest bit on; there are `count` of them. */
FD_ROWS uint64_t place_of(uint64_t zeros, uint32_t run, uint32_t count) {
#ifdef FD_PDEP
    return FD_PDEP(UINT64_C(1) << (count - 1 - run), zeros);
#else
    (void)count;
    for (; run > 0; run--)
        zeros ^= BIT(__builtin_clzll(zeros));
    return BIT(__builtin_clzll(zeros));
#endif
}

/* Read a bit for each coefficient of `passed`, the first one for the highest bit. Returns those that
 * get a 1. READY bits must be there. */
FD_ROWS uint64_t corrections(uint64_t *buffer, uint64_t *count, const uint8_t **next,
                             uint64_t passed) {
    uint64_t found = 0;
    uint32_t bits = (uint32_t)__builtin_popcountll(passed);
    if (FD_RARELY(bits > READY)) {
        uint64_t first = passed;
        for (; bits > READY; bits--)
            first &= first - 1;
        found = spread(*buffer >> (64 - READY), first);
        *buffer <<= READY;
        *count -= READY;
        FD_REFILL(*buffer, *count, *next);
        passed ^= first;
        bits = (uint32_t)__builtin_popcountll(passed);
        assert(bits <= READY);
    }
    found |= spread((*buffer >> 1) >> (63 - bits), passed);
    *buffer <<= bits;
    *count -= bits;
    return found;
}

/* Move coefficients away from 0 by one unit. */
FD_ROWS void correct(int16_t *block, uint64_t which, int16_t unit) {
    while (which) {
        uint32_t k = (uint32_t)__builtin_clzll(which);
        int16_t *at = block + fd_natural_order[k];
        int16_t sign = (int16_t)(*at >> 15);
        *at = (int16_t)(*at + ((unit ^ sign) - sign));
        which ^= BIT(k);
    }
}

/* T.81, G.1.2.3; libjpeg's decode_mcu_AC_refine (jdphuff.c) walks:
 *
 *   until the band ends:
 *     read a code: a run of zeros and a new coefficient of one unit, 16 zeros, or the end of some bands
 *     for each coefficient up to that place which is not 0: read a bit; at 1 it goes a unit away from 0
 *
 * Here `old` has a bit for each coefficient that is not 0, so the zeros of the rest of the band are
 * rest & ~old, and the place is the highest bit of that after `step` - 1 others. The bits of `old` before it
 * are passed: as many bits of data are read at once, and spread to them. */
FD_ROWS void refine_ac(fd_reader *reader, int16_t *block, uint64_t *mask) {
    fd_bits *bits = &reader->bits;
    const fd_table *table = reader->tables[0];
    const uint8_t *next = bits->next;
    uint64_t buffer = bits->buffer, count = bits->count;
    const uint64_t old = *mask & reader->band;
    uint64_t rest = reader->band, corrected = 0, fresh = 0; /* `rest` is still to come */
    uint32_t ends = reader->ends;
    int16_t unit = (int16_t)(1 << reader->pass->low);
    uint32_t entry = FD_LOOKUP(table->one), step;
    FD_REFILL(buffer, count, next);
    while (ends == 0 && rest != 0) {
        int16_t value;
        if (FD_RARELY(entry & FD_ESCAPE)) {
            uint32_t size;
            FD_FIND(table, entry, step, size);
            if (step == FD_END_OF_BLOCK) {
                ends = (1u << size) + top_bits(buffer, size);
                buffer <<= size;
                count -= size;
                FD_REFILL(buffer, count, next);
                break;
            }
            value = 0; /* of 16 zeros */
            if (size) {
                value = (int64_t)buffer < 0 ? unit : (int16_t)-unit;
                buffer <<= 1;
                count -= 1;
            }
        } else {
            buffer <<= entry & 63;
            count -= entry;
            step = entry >> 8 & 255;
            value = (int16_t)(entry >> 16);
            if (step == FD_END_OF_BLOCK) {
                ends = 1 + (uint32_t)(entry >> 16);
                break;
            }
        }
        uint64_t zeros = rest & ~old;
        uint32_t there = (uint32_t)__builtin_popcountll(zeros);
        if (FD_RARELY(step > there)) { /* behind the band, or no code */
            bits->is_odd = 1;
            return;
        }
        uint64_t place = place_of(zeros, step - 1, there);
        uint64_t after = place - 1;
        corrected |= corrections(&buffer, &count, &next, old & rest & ~after);
        rest &= after;
        if (value) {
            block[fd_natural_order[__builtin_clzll(place)]] = value;
            fresh |= place;
        }
        entry = FD_LOOKUP(table->one);
        FD_REFILL(buffer, count, next);
    }
    if (ends) {
        ends--;
        corrected |= corrections(&buffer, &count, &next, old & rest);
    }
    correct(block, corrected, unit);
    *mask |= fresh;
    reader->ends = ends;
    bits->buffer = buffer;
    bits->count = count;
    bits->next = next;
}

/* ---- rows ---- */

/* How many blocks from now on get nothing from a scan, because all of them have ended. */
FD_ROWS int32_t skipped(const fd_reader *reader, int32_t most) {
    int64_t count = reader->ends < reader->left ? reader->ends : reader->left;
    return count < most ? (int32_t)count : most;
}

FD_ROWS int ac_row(fd_progressive *progressive, fd_reader *reader, int32_t y, const int is_first) {
    int c = reader->pass->component[0];
    const fd_frame *frame = progressive->frame;
    const uint16_t *quantiser = frame->quantisers[frame->component[c].quantiser];
    const fd_coefficients *to = &progressive->components[c];
    for (int32_t row = 0; row < rows_of(to, y); row++) {
        int16_t *blocks = to->blocks + (size_t)(row * to->across) * FD_STRIDE;
        uint64_t *masks = to->masks + row * to->across;
        for (int32_t x = 0; x < to->real_across; x++) {
            if (is_first && reader->ends && reader->left) {
                int32_t count = skipped(reader, to->real_across - x);
                reader->ends -= (uint32_t)count;
                reader->left -= count;
                x += count - 1;
                continue;
            }
            if (!advance(progressive, reader))
                return 0;
            if (is_first) {
                first_ac(reader, quantiser, blocks + (size_t)x * FD_STRIDE, masks + x);
            } else if (reader->ends && (masks[x] & reader->band) == 0) {
                reader->ends--;
                continue;
            } else {
                refine_ac(reader, blocks + (size_t)x * FD_STRIDE, masks + x);
            }
            if (!is_fine(reader))
                return 0;
        }
    }
    return 1;
}

/* ---- by kind of scan ---- */

FD_TARGET static int refine_ac_row(fd_progressive *progressive, fd_reader *reader, int32_t y) {
    return ac_row(progressive, reader, y, 0);
}

FD_TARGET static int first_ac_row(fd_progressive *progressive, fd_reader *reader, int32_t y) {
    return ac_row(progressive, reader, y, 1);
}

FD_TARGET static int refine_dc_row(fd_progressive *progressive, fd_reader *reader, int32_t y) {
    return dc_row(progressive, reader, y, 0);
}

FD_TARGET static int first_dc_row(fd_progressive *progressive, fd_reader *reader, int32_t y) {
    return dc_row(progressive, reader, y, 1);
}

/* By [is_dc][is_first]. */
#define FD_ROW_DECODERS                                                                            \
    {                                                                                              \
        {refine_ac_row, first_ac_row}, { refine_dc_row, first_dc_row }                             \
    }
