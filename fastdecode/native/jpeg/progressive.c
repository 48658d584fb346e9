/* progressive.c: decodes the scans of a progressive file together, one row of MCUs at a time. */
#include "progressive.h"

#include <assert.h>
#include <stdlib.h>

enum { BEYOND = 8 /* bytes after an interval that are read ahead */ };

/* ---- positions ---- */

void fd_reader_begin(const fd_progressive *progressive, fd_reader *reader, size_t interval) {
    const fd_scan *scan = progressive->scan;
    const fd_pass *pass = reader->pass;
    const size_t *ends = scan->ends + pass->first_end;
    assert(interval < pass->intervals);
    reader->interval = interval;
    reader->from = scan->bytes + (interval ? ends[interval - 1] : pass->begin);
    reader->limit = scan->bytes + ends[interval] + BEYOND;
    reader->left = pass->interval ? pass->interval : INT64_MAX;
    reader->ends = 0;
    fd_bits_begin(&reader->bits, reader->from);
}

int fd_reader_is_within(const fd_progressive *progressive, const fd_reader *reader, int is_done) {
    const fd_scan *scan = progressive->scan;
    const uint8_t *here = reader->from + fd_bytes_read(&reader->bits, reader->from);
    const uint8_t *end = scan->bytes + scan->ends[reader->pass->first_end + reader->interval];
    return is_done ? here == end && reader->ends == 0 : here <= end;
}

int fd_progressive_is_within(const fd_progressive *progressive, int is_done) {
    for (int i = 0; i < progressive->script.count; i++)
        if (!fd_reader_is_within(progressive, &progressive->readers[i], is_done))
            return 0;
    return 1;
}

int fd_progressive_zeros(const fd_progressive *progressive) {
    int found = 0;
    for (int i = 0; i < progressive->script.count; i++) {
        const fd_reader *reader = &progressive->readers[i];
        const uint8_t *begin = progressive->scan->bytes + reader->pass->begin;
        const uint8_t *here = reader->from + fd_bytes_read(&reader->bits, reader->from);
        const uint8_t *limit = reader->limit - BEYOND;
        const fd_pass *pass = reader->pass;
        if (here < limit) /* only the first of many zeros may have been read */
            here += limit - here < FD_MANY_ZEROS ? limit - here : FD_MANY_ZEROS - 1;
        size_t size = (size_t)(here - begin);
        size_t most = fd_most_zeros(1, pass->first, pass->last, pass->is_first,
                                    pass->codes[0].symbols[0]);
        if (!fd_has_zeros(begin, size, FD_MANY_ZEROS))
            continue;
        if (most != SIZE_MAX && fd_has_zeros(begin, size, most + 1))
            return -1;
        found = 1;
    }
    return found;
}

/* ---- rows ---- */

int fd_progressive_row(fd_progressive *progressive, int32_t y) {
    for (int c = 0; c < progressive->frame->components; c++) {
        const fd_coefficients *of = &progressive->components[c];
        size_t blocks = (size_t)of->across * (size_t)of->down;
        if (of->need == FD_ALL_SCANS)
            memset(of->blocks, 0, blocks * FD_STRIDE * sizeof *of->blocks);
        memset(of->masks, 0, blocks * sizeof *of->masks);
    }
    for (int i = 0; i < progressive->script.count; i++) {
        fd_reader *reader = &progressive->readers[i];
        if (!reader->decode_row(progressive, reader, y))
            return 0;
    }
    return 1;
}

/* ---- beginning ---- */

static int make_tables(fd_progressive *progressive) {
    const fd_script *script = &progressive->script;
    size_t count = 0;
    for (int i = 0; i < script->count; i++)
        count += script->passes[i].first > 0;
    fd_table *next = fd_room_for(&progressive->tables_room, count * sizeof *next);
    if (next == NULL && count > 0)
        return 0;
    for (int i = 0; i < script->count; i++) {
        const fd_pass *pass = &script->passes[i];
        fd_reader *reader = &progressive->readers[i];
        if (pass->first > 0) {
            fd_table_kind kind = pass->is_first ? FD_AC_FIRST : FD_AC_REFINED;
            reader->tables[0] = next;
            if (!fd_table_make(next++, &pass->codes[0], kind, pass->low))
                return 0;
        }
        for (int j = 0; pass->first == 0 && pass->is_first && j < pass->components; j++) {
            fd_table *table = &progressive->dc[pass->component[j]];
            reader->tables[j] = table;
            if (!fd_table_make(table, &pass->codes[j], FD_DC, 0))
                return 0;
        }
    }
    return 1;
}

static int make_room(fd_progressive *progressive, const fd_need needs[3]) {
    const fd_frame *frame = progressive->frame;
    size_t total = 0;
    for (int c = 0; c < frame->components; c++) {
        fd_coefficients *of = &progressive->components[c];
        of->need = needs[c];
        of->across = frame->mcus_across * frame->component[c].across;
        of->down = frame->component[c].down;
        of->real_across = fd_blocks_across(frame, c);
        of->real_down = fd_blocks_down(frame, c);
        total += (size_t)of->across * (size_t)of->down;
    }
    size_t bytes = total * FD_STRIDE * sizeof(int16_t);
    int16_t *blocks = fd_room_for(&progressive->blocks_room, bytes);
    uint64_t *masks = fd_room_for(&progressive->masks_room, total * sizeof *masks);
    if (blocks == NULL || masks == NULL)
        return 0;
    memset(blocks, 0, bytes); /* no scan may write the DC of blocks that only fill up MCUs */
    for (int c = 0; c < frame->components; c++) {
        fd_coefficients *of = &progressive->components[c];
        of->blocks = blocks;
        of->masks = masks;
        blocks += (size_t)of->across * (size_t)of->down * FD_STRIDE;
        masks += (size_t)of->across * (size_t)of->down;
    }
    return 1;
}

static void begin_reader(const fd_progressive *progressive, fd_reader *reader) {
    const fd_pass *pass = reader->pass;
    reader->band = (~UINT64_C(0) >> pass->first) & (~UINT64_C(0) << (63 - pass->last));
    for (int k = 0; k < (int)sizeof reader->order; k++)
        reader->order[k] = k > pass->last ? FD_COEFFICIENTS : fd_natural_order[k];
    reader->bits.is_odd = 0;
    reader->decode_row = fd_kernels_now()->row_decoders->of[pass->first == 0][pass->is_first];
    fd_reader_begin(progressive, reader, 0);
}

int fd_progressive_begin(fd_progressive *progressive, fd_scan *scan, fd_frame *frame,
                         const fd_need needs[3], int32_t most_scans, const uint8_t *data,
                         size_t size) {
    fd_script *script = &progressive->script;
    progressive->frame = frame;
    progressive->scan = scan;
    if (!fd_script_read(script, frame, needs, most_scans, data, size) ||
        !fd_script_copy(scan, script, data, size))
        return 0;
    for (int i = 0; i < script->count; i++)
        progressive->readers[i].pass = &script->passes[i];
    if (!make_tables(progressive) || !make_room(progressive, needs))
        return 0;
    for (int i = 0; i < script->count; i++)
        begin_reader(progressive, &progressive->readers[i]);
    return 1;
}

void fd_progressive_free(fd_progressive *progressive) {
    fd_room_free(&progressive->tables_room);
    fd_room_free(&progressive->blocks_room);
    fd_room_free(&progressive->masks_room);
}
