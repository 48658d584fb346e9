/* restart_markers.c: the lossless repack with restart markers, so that a decoder can start at any
 * row of MCUs.
 *
 * The decoder's own steps give the quantised coefficients, one row of MCUs after another, and they are
 * coded again. This is done twice: the first time counts the symbols, for the best Huffman tables. A
 * file that the decoder gives up is refused: the repacked file would look complete, with wrong pixels. */
#include "progressive.h"

#include <stdlib.h>
#include <string.h>

enum {
    SPARE = 4096, /* bytes: markers and tables of a small image */
    LONGEST = 16, /* bits of a code */
    SYMBOLS = 256,
    NOTHING = SYMBOLS /* a symbol that never occurs, and gets the code of only ones */
};

typedef struct {
    int64_t seen[SYMBOLS + 1]; /* how often each symbol occurs */
    uint8_t counts[LONGEST + 1];
    uint8_t symbols[SYMBOLS];
    int used; /* symbols that occur */
    uint16_t code[SYMBOLS];
    uint8_t length[SYMBOLS];
} code_table;

typedef struct {
    const uint8_t *data;
    size_t length;
    int is_counting;
    int32_t row, rows_left; /* of MCUs */
    code_table codes[2][2]; /* DC and AC; of luma and chroma */
    int32_t dc[3];
    uint8_t *out;
    size_t size, capacity;
    uint64_t held; /* the lowest `waiting` bits are not written yet */
    int waiting;
    int is_full; /* there was no memory */
} repack;

/* ---- writing ---- */

static void put_byte(repack *work, int byte) {
    if (work->size == work->capacity) {
        size_t capacity = work->capacity + work->capacity / 2 + work->length + SPARE;
        uint8_t *larger = realloc(work->out, capacity);
        if (larger == NULL) {
            work->is_full = 1;
            work->size = 0; /* the file will be refused: write over it */
            return;
        }
        work->out = larger;
        work->capacity = capacity;
    }
    work->out[work->size++] = (uint8_t)byte;
}

static void put_bytes(repack *work, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        put_byte(work, bytes[i]);
}

static void put_bits(repack *work, uint32_t bits, int count) {
    work->held = work->held << count | bits;
    for (work->waiting += count; work->waiting >= 8; work->waiting -= 8) {
        int byte = (int)(work->held >> (work->waiting - 8) & 255);
        put_byte(work, byte);
        if (byte == 0xFF)
            put_byte(work, 0);
    }
}

/* Code a symbol, and the `count` bits of a value behind it. */
static void put_symbol(repack *work, code_table *table, int symbol, int32_t value, int count) {
    if (work->is_counting) {
        table->seen[symbol]++;
        return;
    }
    put_bits(work, table->code[symbol], table->length[symbol]);
    uint32_t bits = (uint32_t)(value < 0 ? value - 1 : value); /* T.81, F.1.2.1 */
    if (count > 0)
        put_bits(work, bits & ((1u << count) - 1), count);
}

static int bits_of(int32_t value) {
    uint32_t size = (uint32_t)(value < 0 ? -value : value);
    return size == 0 ? 0 : 32 - __builtin_clz(size);
}

/* Code a block of component `c`. NULL is one that only fills up an MCU, and may hold anything. */
static void put_block(void *state, int c, const int16_t *block) {
    repack *work = state;
    code_table *dc = &work->codes[0][c > 0], *ac = &work->codes[1][c > 0];
    int32_t difference = block == NULL ? 0 : block[0] - work->dc[c];
    int size = bits_of(difference), run = 0;
    work->dc[c] += difference;
    put_symbol(work, dc, size, difference, size);
    for (int k = 1; block != NULL && k < FD_COEFFICIENTS; k++) {
        int32_t value = block[fd_natural_order[k]];
        if (value == 0) {
            run++;
            continue;
        }
        for (; run > 15; run -= 16)
            put_symbol(work, ac, 0xF0, 0, 0);
        size = bits_of(value);
        put_symbol(work, ac, run << 4 | size, value, size);
        run = 0;
    }
    if (run > 0 || block == NULL)
        put_symbol(work, ac, 0, 0, 0);
}

/* End a row of MCUs, and with it a restart interval (T.81, E.1.4): whole bytes, a marker that counts modulo
 * 8, and predictions of DC that begin anew. */
static void end_row(void *state) {
    repack *work = state;
    memset(work->dc, 0, sizeof work->dc);
    if (work->is_counting)
        return;
    if (work->waiting > 0) /* fill the last byte with ones */
        put_bits(work, (1u << (8 - work->waiting)) - 1, 8 - work->waiting);
    put_byte(work, 0xFF);
    put_byte(work, --work->rows_left > 0 ? 0xD0 + (work->row++ & 7) : 0xD9);
}

/* ---- Huffman tables ---- */

/* Find the lengths of Huffman's codes for such weights; returns the longest (T.81, K.2): join the two lightest
 * trees until one is left; the depth of a leaf is the length of its code. */
static int measure_codes(const int64_t seen[SYMBOLS + 1], int damping, int length[SYMBOLS + 1]) {
    int64_t weight[2 * SYMBOLS + 1];
    int parent[2 * SYMBOLS + 1] = {0}, count = SYMBOLS + 1, longest = 0;
    for (int i = 0; i <= SYMBOLS; i++)
        weight[i] = seen[i] >> damping ? seen[i] >> damping : seen[i] > 0;
    for (;; count++) { /* join the two lightest, as long as there are two */
        int pair[2] = {-1, -1};
        for (int i = 0; i < count; i++) {
            if (weight[i] == 0 || parent[i] != 0)
                continue;
            if (pair[0] < 0 || weight[i] < weight[pair[0]]) {
                pair[1] = pair[0];
                pair[0] = i;
            } else if (pair[1] < 0 || weight[i] < weight[pair[1]]) {
                pair[1] = i;
            }
        }
        if (pair[1] < 0)
            break;
        weight[count] = weight[pair[0]] + weight[pair[1]];
        parent[pair[0]] = parent[pair[1]] = count;
    }
    for (int i = 0; i <= SYMBOLS; i++) {
        length[i] = 0;
        for (int at = i; parent[at] != 0; at = parent[at])
            length[i]++;
        longest = length[i] > longest ? length[i] : longest;
    }
    return longest;
}

/* Where K.2 shortens codes of more than 16 bits two by two, weights are halved until there are none. */
static void make_codes(code_table *table) {
    int length[SYMBOLS + 1], longest, damping = 0;
    table->seen[NOTHING] = 1;
    while ((longest = measure_codes(table->seen, damping, length)) > LONGEST)
        damping++; /* makes the weights more alike */
    table->used = 0;
    for (int bits = 1; bits <= longest; bits++)
        for (int i = 0; i <= SYMBOLS; i++) {
            table->counts[bits] += length[i] == bits;
            if (length[i] == bits && i != NOTHING)
                table->symbols[table->used++] = (uint8_t)i;
        }
    table->counts[longest]--; /* no symbol may have the code of only ones (T.81, C) */
    unsigned code = 0;
    for (int bits = 1, place = 0; bits <= longest; bits++, code <<= 1)
        for (int i = 0; i < table->counts[bits]; i++, place++) {
            table->code[table->symbols[place]] = (uint16_t)code++;
            table->length[table->symbols[place]] = (uint8_t)bits;
        }
}

/* ---- the new header ---- */

static void put_marker(repack *work, int marker, int contents) {
    const uint8_t bytes[4] = {0xFF, (uint8_t)marker, (uint8_t)((contents + 2) >> 8),
                              (uint8_t)(contents + 2)};
    put_bytes(work, bytes, sizeof bytes);
}

/* Copy the segments that stay: applications, comments, quantisers and, as baseline, the frame. */
static void put_segments(repack *work) {
    const uint8_t *data = work->data;
    put_bytes(work, data, 2);
    for (fd_segment next = {.end = 2};
         fd_next_segment(data, work->length, next.end, &next) && next.marker != 0xD9;) {
        if (next.marker >= 0xC0 && next.marker <= 0xC2) {
            put_marker(work, 0xC0, next.length - 2);
            put_bytes(work, data + next.at + 4, (size_t)next.length - 2);
        } else if (next.marker >= 0xE0 || next.marker == 0xDB) {
            put_bytes(work, data + next.at, next.end - next.at);
        }
    }
}

static void put_header(repack *work, const fd_frame *frame) {
    put_segments(work);
    for (int chroma = 0; chroma <= (frame->components > 1); chroma++)
        for (int kind = 0; kind < 2; kind++) {
            const code_table *table = &work->codes[kind][chroma];
            put_marker(work, 0xC4, 1 + LONGEST + table->used);
            put_byte(work, kind << 4 | chroma);
            put_bytes(work, table->counts + 1, LONGEST);
            put_bytes(work, table->symbols, (size_t)table->used);
        }
    put_marker(work, 0xDD, 2);
    put_byte(work, frame->mcus_across >> 8);
    put_byte(work, frame->mcus_across & 255);
    put_marker(work, 0xDA, 4 + 2 * frame->components);
    put_byte(work, frame->components);
    for (int c = 0; c < frame->components; c++) {
        put_byte(work, frame->component[c].id);
        put_byte(work, c > 0 ? 0x11 : 0);
    }
    put_byte(work, 0);
    put_byte(work, FD_COEFFICIENTS - 1);
    put_byte(work, 0);
}

/* ---- all of it ---- */

/* Decode twice. Returns 0 if the decoder gives up. */
static int transcode(repack *work, fd_baseline *decoder, const fd_frame *frame,
                     const fd_limits *limits) {
    const fd_block_sink sink = {put_block, end_row, work};
    const fd_target target = {
        .reduce = 1, .layout = FD_RGB, .thorough = 1, .blocks = &sink, .limits = *limits};
    work->is_counting = 1;
    if (!fd_baseline_decode(decoder, work->data, work->length, &target))
        return 0;
    for (int kind = 0; kind < 2; kind++)
        for (int chroma = 0; chroma < 2; chroma++)
            make_codes(&work->codes[kind][chroma]);
    work->is_counting = 0;
    work->rows_left = frame->mcus_down;
    put_header(work, frame);
    return fd_baseline_decode(decoder, work->data, work->length, &target);
}

int fd_add_restart_markers(const uint8_t *data, size_t size, const fd_limits *limits, uint8_t **out,
                           size_t *out_size) {
    fd_frame frame;
    fd_header header;
    *out = NULL;
    *out_size = 0;
    int status = fd_probe(data, size, &header);
    if (status != FD_OK)
        return status;
    if (limits->pixels > 0 && (int64_t)header.width * header.height > limits->pixels)
        return FD_TOO_LARGE;
    if (header.sof == FD_PNG || !fd_frame_read(&frame, data, size))
        return FD_UNSUPPORTED;
    repack *work = calloc(1, sizeof *work);
    fd_baseline *decoder = fd_baseline_create();
    status = FD_NO_MEMORY;
    if (work != NULL && decoder != NULL) {
        work->data = data;
        work->length = size;
        int is_done = transcode(work, decoder, &frame, limits);
        status = work->is_full ? FD_NO_MEMORY : is_done ? FD_OK : FD_UNSUPPORTED;
    }
    if (status == FD_OK) {
        uint8_t *fitting = realloc(work->out, work->size);
        *out = fitting != NULL ? fitting : work->out;
        *out_size = work->size;
    } else if (work != NULL) {
        free(work->out);
    }
    fd_baseline_destroy(decoder);
    free(work);
    return status;
}

void fd_free(void *memory) { free(memory); }
