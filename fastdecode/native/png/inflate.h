/* inflate.h: decompresses a deflate stream (RFC 1951) piece by piece, for png.c.
 *
 * The input is copied through a small buffer, because it lies in many chunks. The output goes to a window
 * of the caller's, who moves what later matches may refer to (the last FD_HISTORY bytes) to its beginning
 * when it is full. So neither the stream nor an image is ever in memory as a whole, and nothing below the
 * rows that are wanted is decompressed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef FD_INPUT
#define FD_INPUT 65536 /* bytes of the input's buffer; check.sh makes it smaller */
#endif

enum {
    FD_HISTORY = 32768,      /* how far back a match may reach */
    FD_INFLATE_SPARE = 320,  /* bytes that may be written past the limit of a call */
    FD_INFLATE_PADDING = 64, /* bytes after the input, or the output, that may be read */
    FD_INFLATE_BEHIND = 8,   /* bytes of input that were read, and may have to be read again */
    FD_LITERAL_BITS = 12,   /* of a lookup; longer codes are found bit by bit */
    FD_DISTANCE_BITS = 9,
    FD_LONGEST_CODE = 15,
    FD_MOST_SYMBOLS = 288
};

/* A canonical Huffman code. For codes that are longer than a lookup: the first symbol of each length
 * in `symbols`, and the first code that is longer, as the highest of 16 bits. */
typedef struct {
    uint32_t limit[FD_LONGEST_CODE + 1];
    int32_t offset[FD_LONGEST_CODE + 1]; /* of the symbols of a length from their codes */
    uint16_t symbols[FD_MOST_SYMBOLS];   /* by length, then by value */
} fd_symbol_code;

typedef enum { FD_AT_HEADER, FD_IN_CODES, FD_IN_STORED, FD_AT_END } fd_inflate_state;

/* Copy the next bytes of the stream to `to`: `room` of them, or fewer at the end of the stream. */
typedef size_t fd_inflate_read(void *state, uint8_t *to, size_t room);

typedef struct {
    fd_inflate_read *read;
    void *read_state;
    size_t passed;  /* bytes of the stream before those in the buffer */
    int is_all;     /* the rest of the stream is in the buffer */
    const uint8_t *next, *end; /* in `input` */
    uint64_t bits;  /* not used yet; the next one is the lowest */
    uint64_t count; /* of bits; only the low 6 bits of this number count */
    fd_inflate_state state;
    int is_last;     /* block */
    int has_fixed;   /* the tables contain the fixed codes */
    uint32_t stored; /* bytes left of a stored block */
    uint32_t literals[1 << FD_LITERAL_BITS], distances[1 << FD_DISTANCE_BITS];
    fd_symbol_code literal_code, distance_code;
    uint8_t input[FD_INFLATE_BEHIND + FD_INPUT + FD_INFLATE_PADDING];
} fd_inflater;

void fd_inflate_begin(fd_inflater *inflater, fd_inflate_read *read, void *read_state);

/* Decompress to `out` until `limit` is reached, and up to FD_INFLATE_SPARE bytes more, or the stream
 * ends. Matches may reach back to `base`. Returns the end of the output; NULL if the data is damaged. */
uint8_t *fd_inflate(fd_inflater *inflater, const uint8_t *base, uint8_t *out, uint8_t *limit);

/* How many bytes of the stream have been used. */
size_t fd_inflate_used(const fd_inflater *inflater);
