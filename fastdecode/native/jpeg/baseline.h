/* baseline.h: the core's own decoder of baseline and progressive JPEG, in four steps; only decode.c
 * uses it.
 *
 *   scan.c         the header, and the scans without their stuffing: the only code that parses
 *                  untrusted bytes
 *   huffman.h      entropy decoding of a baseline scan, one MCU after another
 *   progressive.c  entropy decoding of the scans of a progressive file, one row of MCUs after another
 *   idct.c         coefficients to samples
 *   rows.c         samples to rows of pixels: upsampling, colours, windows
 *
 * It returns the pixels of libjpeg-turbo (JDCT_ISLOW, fancy upsampling), or gives up: if it does not
 * support the kind of file, or if anything in the data is unusual. It never decides whether a file is
 * damaged: when it gives up, another library decodes the file from the start, and decides.
 */
#pragma once

#include "kernels.h"
#include "weights.h"

enum {
    FD_SIDE = 8, /* samples along the side of a block */
    FD_COEFFICIENTS = 64, /* of a block */
    FD_MOST_BLOCKS = 6, /* of an MCU: 4:2:0 */
    FD_MOST_SIDE = 65500, /* pixels: libjpeg's limit */
    FD_LOOKUP_BITS = 10, /* 9 and 11 are slower, as the tables must fit the first-level cache */
    FD_MOST_DC_BITS = 11, /* of a difference, with 8 bits a sample */
    FD_MOST_AC_BITS = 10,
    FD_MOST_SMALL_BITS = 7 /* of a value that has 16 bits when it is dequantised: 127 * 255 */
};

/* ---- structure.c ---- */

/* Find where the data of a scan ends: before a marker and its fill bytes, or with the file. Restart markers
 * belong to the data, but no more than `intervals` (0: none) need: libjpeg passes over the others. In the
 * data of JPEG-LS, FF stands before bytes up to 7F (T.87, A.1). Sets `passed` to the number of restart
 * markers, or to -1 if they are out of turn. */
size_t fd_end_of_scan(const uint8_t *data, size_t size, size_t start, int64_t intervals, int is_ls,
                      int64_t *passed);

/* Zeros in place of data: zeros are legal codes, and flat areas or gradients may consist of them. The code
 * of only zeros is that of the first symbol of a table (T.81, annex C); if it ends a block at once, any number
 * may be data. With other symbols of AC coefficients, zeros are the same coefficient at all places of a
 * band, which no image has; but refinements have some single bits, too, of which libjpeg (jcphuff.c)
 * writes 1000. But other data decodes to other blocks, so some bytes are left over, or missing, at the end
 * of their interval. */
enum {
    FD_MANY_ZEROS = 16, /* bytes */
    FD_MOST_BITS = 127 /* bytes of single bits in a scan that refines coefficients */
};

/* How many zeros may be data of a scan; `symbols` are the first ones of its tables of AC coefficients,
 * together. */
size_t fd_most_zeros(int is_progressive, int first, int last, int is_first, int symbols);

/* ---- scan.c ---- */

/* A Huffman table as a file defines it. */
typedef struct {
    uint8_t counts[17]; /* codes of each length; [0] is unused */
    uint8_t symbols[256];
    int is_defined;
} fd_codes;

typedef struct {
    int32_t id;
    int32_t across, down; /* sampling factors: blocks of an MCU */
    int32_t quantiser, dc, ac; /* which tables */
} fd_component;

/* The header of a file that this decoder supports. */
typedef struct {
    int32_t width, height;
    int32_t components; /* 1, or 3: Y, Cb, Cr */
    fd_component component[3];
    int32_t across, down; /* the largest sampling factors: an MCU is 8 times as many pixels */
    int32_t mcus_across, mcus_down;
    int32_t blocks; /* of an MCU */
    int32_t rows_at_once; /* rows of MCUs that libjpeg decodes together */
    int32_t interval; /* MCUs between restart markers; 0 is none */
    uint16_t quantisers[4][FD_COEFFICIENTS + 1]; /* in natural order; the last is for position 64 */
    fd_codes codes[2][4]; /* DC, AC */
    int is_progressive;
    size_t scan; /* where its data begins; if it is progressive, where its first SOS marker is */
} fd_frame;

/* The data of scans, without stuffing and markers. After each of them there are more zeros than an
 * MCU can read. */
typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t *ends; /* where each restart interval ends; the last one of a scan ends with its data */
    size_t count; /* of intervals */
    fd_room bytes_room, ends_room;
} fd_scan;

enum { FD_MOST_SCANS = 32 }; /* of a progressive file; real ones have about ten */

/* A scan of a progressive file. It has one bit, or the first bits, of some coefficients. */
typedef struct {
    int components; /* more than one only of DC coefficients */
    int component[3]; /* which, in ascending order */
    int first, last; /* coefficients, in the order of the file: 0 and 0, or both from 1 on */
    int low; /* the lowest bit that it has of them */
    int is_first; /* the first one of these coefficients; the others add the bit `low` */
    int32_t interval; /* MCUs between restart markers; 0 is none. With one component: blocks */
    fd_codes codes[3]; /* of DC, one for each component; of AC, only the first */
    size_t at, size; /* its data in the file */
    size_t intervals;
    size_t begin,
        first_end; /* in an fd_scan: where its data begins, and its first entry in `ends` */
} fd_pass;

/* Which scans the pixels need of a component. */
typedef enum { FD_NO_SCAN = 0, FD_DC_SCANS, FD_ALL_SCANS } fd_need;

/* The scans of a progressive file that are needed. */
typedef struct {
    fd_pass passes[FD_MOST_SCANS];
    int count;
} fd_script;

/* Positions of coefficients, in the order of the file. After the 63rd they are all position 64, where
 * a damaged file can write without harm. */
extern const uint8_t fd_natural_order[256];

/* Read the header of `data`. Returns 0 if this decoder does not support the file. */
int fd_frame_read(fd_frame *frame, const uint8_t *data, size_t size);

/* Remove the stuffing from the frame's scan. Returns 0 unless an end marker follows and all restart
 * markers are there, in order. */
int fd_scan_read(fd_scan *scan, const fd_frame *frame, const uint8_t *data, size_t size);

/* Whether there is a run of so many zeros; whether many may be data of a baseline scan. */
int fd_has_zeros(const uint8_t *data, size_t size, size_t many);
int fd_may_be_zeros(const fd_frame *frame);

/* Blocks of a component across or down the image, without those that only fill up MCUs. */
int32_t fd_blocks_across(const fd_frame *frame, int c);
int32_t fd_blocks_down(const fd_frame *frame, int c);

/* Read the headers of a progressive file's scans: the tables and the restart interval in `frame`
 * change from one to the next. Returns 0 unless together they have all bits of all coefficients, no
 * bit twice, in at most `most` scans (0: FD_MOST_SCANS), and end with an end marker. */
int fd_script_read(fd_script *script, fd_frame *frame, const fd_need needs[3], int32_t most,
                   const uint8_t *data, size_t size);

/* Remove the stuffing from the scans that are needed. */
int fd_script_copy(fd_scan *scan, fd_script *script, const uint8_t *data, size_t size);

/* ---- idct.c, idct_simd.h ---- */

/* Dequantise and transform two blocks to samples next to each other at `out`, whose rows lie
 * `stride` bytes apart. huffman.h ensures that dequantised coefficients fit 16 bits. Returns 0, with
 * arbitrary samples written, where a number leaves the range in which all of libjpeg-turbo's
 * implementations agree; only forged files get there. */
typedef int fd_idct(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                    uint8_t *out, size_t stride);

fd_idct fd_idct_8x8, fd_idct_4x4, fd_idct_2x2, fd_idct_1x1;

/* ---- colours.c, colours_simd.h ---- */

/* The operations on rows of samples, one set for each instruction set. They may write whole steps of
 * FD_COLOUR_STEP results (with `widen`, of twice as many), and read as many samples, and another step
 * before and after them. */
typedef struct fd_steps {
    fd_idct *idct_8x8, *idct_4x4, *idct_2x2;

    /* Make `count` samples twice as many; also reads the neighbours of the first and the last. */
    void (*widen)(uint8_t *out, const uint8_t *in, size_t count);

    /* The same between two rows, of which `near` is the nearer one. */
    void (*widen_between)(uint8_t *out, const uint8_t *near, const uint8_t *far, size_t count);

    /* Interpolate between two rows; `is_lower` rounds up. */
    void (*between)(uint8_t *out, const uint8_t *near, const uint8_t *far, int is_lower,
                    size_t count);

    /* Convert to pixels of 3 or 4 bytes; the fourth is 255. */
    void (*rgb)(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count);
    void (*rgbx)(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                 size_t count);
} fd_steps;

enum { FD_COLOUR_STEP = 32 };

extern const fd_steps fd_steps_plain;

/* ---- rows.c ---- */

typedef struct fd_baseline fd_baseline;

fd_baseline *fd_baseline_create(void);
void fd_baseline_destroy(fd_baseline *baseline);

/* Receives quantised coefficients instead of pixels. */
typedef struct {
    /* The next block in the order of a baseline scan, of component `c`, in natural order. It is NULL if
     * it only fills up an MCU. */
    void (*block)(void *state, int c, const int16_t *block);
    void (*row_end)(void *state); /* after each row of MCUs */
    void *state;
} fd_block_sink;

/* The destination of the pixels: rows of a layout in memory, or RGBX to a sink. */
typedef struct {
    int32_t left, top, right, bottom; /* reduced pixels; all 0 is the whole image */
    int32_t reduce;
    int32_t layout; /* fd_layout */
    uint8_t *out;
    ptrdiff_t stride;
    const fd_sink *sink; /* if not NULL, it gets the rows instead of `out` */
    const fd_block_sink *blocks; /* if not NULL, it gets the coefficients of the whole image */
    int thorough; /* also decode the scans and rows that the pixels do not need */
    fd_limits limits;
} fd_target;

/* Decode. Returns 0 if it gives up; the target may have received some rows by then. */
int fd_baseline_decode(fd_baseline *baseline, const uint8_t *data, size_t size,
                       const fd_target *target);
