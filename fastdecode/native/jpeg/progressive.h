/* progressive.h: the coefficients of a progressive file, one row of MCUs at a time; for rows.c.
 *
 * Every scan that is needed has its own reader and table. They all advance together: each scan adds its
 * bits to a row of MCUs, and then the coefficients of that row are complete. So only one row of them is
 * in memory, and decoding ends with the last row that is needed.
 */
#pragma once

#include "huffman.h"

enum { FD_STRIDE = FD_COEFFICIENTS + 8 }; /* from block to block; position 64 may be written */

/* The coefficients of a component in one row of MCUs. */
typedef struct {
    fd_need need;
    int32_t across, down; /* blocks in memory, with those that only fill up MCUs */
    int32_t real_across, real_down; /* blocks of the whole image, without those */
    int16_t *blocks; /* in natural order, FD_STRIDE apart */
    /* Which AC coefficients of each block are not 0: bit 63 - k for number k in the order of the file. */
    uint64_t *masks;
} fd_coefficients;

typedef struct fd_progressive fd_progressive;
typedef struct fd_reader fd_reader;

/* Decode a row of MCUs of one scan. */
typedef int fd_row_decoder(fd_progressive *progressive, fd_reader *reader, int32_t y);

/* A position in the data of a scan. */
struct fd_reader {
    const fd_pass *pass;
    fd_row_decoder *decode_row;
    const fd_table *tables[3]; /* as `codes` of the pass */
    fd_bits bits;
    const uint8_t *from, *limit; /* of this interval; the reader gives up beyond `limit` */
    size_t interval; /* its number */
    int64_t left; /* MCUs, or blocks, that are left in it */
    uint32_t ends; /* how many of the next blocks get no further coefficients */
    uint64_t band; /* its coefficients, as in `masks` */
    uint8_t order[256]; /* fd_natural_order, but position 64 for what is behind the band */
};

struct fd_progressive {
    const fd_frame *frame;
    const fd_scan *scan;
    fd_script script;
    fd_reader readers[FD_MOST_SCANS];
    fd_coefficients components[3];
    fd_table dc[3]; /* of the first DC scan of each component */
    fd_table *ac; /* of the scans of AC coefficients */
    fd_room tables_room, blocks_room, masks_room;
};

/* Start to decode the scans that are needed; `scan` gets their data. Returns 0 if they are unusual. */
int fd_progressive_begin(fd_progressive *progressive, fd_scan *scan, fd_frame *frame,
                         const fd_need needs[3], int32_t most_scans, const uint8_t *data,
                         size_t size);

/* Decode the next row of MCUs, number `y`, of all scans. Returns 0 if anything in it is unusual. */
int fd_progressive_row(fd_progressive *progressive, int32_t y);

/* Whether no reader has left its data; and, if that was the last row, whether all have read it all. */
int fd_progressive_is_within(const fd_progressive *progressive, int is_done);

/* Whether there is a long run of zeros in what was read so far: 0 if not, 1 if it may be data, else
 * -1. */
int fd_progressive_zeros(const fd_progressive *progressive);

/* For progressive_rows.h: begin the interval with this number; whether a reader stayed within its
 * interval and, at the end of that, has read all of it. */
void fd_reader_begin(const fd_progressive *progressive, fd_reader *reader, size_t interval);
int fd_reader_is_within(const fd_progressive *progressive, const fd_reader *reader, int is_done);

/* ---- progressive_rows.h ---- */

typedef struct fd_row_decoders {
    fd_row_decoder *of[2][2]; /* by [is_dc][is_first] */
} fd_row_decoders;

extern const fd_row_decoders fd_row_decoders_16;
#ifdef FD_AVX2
extern const fd_row_decoders fd_row_decoders_avx2;
#endif

void fd_progressive_free(fd_progressive *progressive);
