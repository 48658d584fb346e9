/* fastdecode.h: the native core. JPEG to pixels, or to a resized and normalised tensor, or a batch of
 * files to a batch of such tensors, crops drawn at random, without Python.
 *
 * Units: sizes and offsets are pixels or bytes as named; boxes are (left, top, right, bottom) with
 * right and bottom one past the end; strides are bytes. "Reduced pixels" are those of the image
 * after `reduce`: it then has ceil(width / reduce) by ceil(height / reduce) of them.
 *
 * Ownership: whoever creates an object destroys it. The core keeps no pointer to the caller's
 * memory when a call has returned, but for what an fd_item says of itself.
 *
 * Threads: an fd_decoder and an fd_resampler serve one thread at a time, an fd_pool any number.
 * There is no global state but the choice of instructions and of decoders, and two counts.
 *
 * Errors: every function that can fail returns an fd_status; FD_OK is 0. The words are in the
 * object, until its next call. Nothing prints, exits or aborts.
 *
 * cffi reads the part between the two lines that begin with "// cffi".
 */
#ifndef FASTDECODE_H
#define FASTDECODE_H

#include <stddef.h>
#include <stdint.h>

// cffi: from here

typedef enum {
    FD_OK = 0,
    FD_WARNED, /* strict was set, and the codec complained: `message` says of what */
    FD_DAMAGED, /* the bytes are damaged, or end before the image does */
    FD_UNSUPPORTED, /* no JPEG, or a kind that libjpeg-turbo does not read */
    FD_TOO_LARGE, /* more pixels or memory than the caller allows */
    FD_NO_MEMORY,
    FD_IO, /* the file cannot be read: `message` is the system's, errno in `code` */
    FD_ARGUMENT /* the caller asked for what cannot be */
} fd_status;

typedef enum { FD_L = 1, FD_RGB, FD_RGBA, FD_CMYK } fd_layout; /* CMYK: 0 is no ink */

typedef enum { FD_UINT8 = 1, FD_FLOAT16, FD_FLOAT32 } fd_dtype;

#define FD_MESSAGE 200

/* What a JPEG's markers say, up to its first scan. */
typedef struct {
    int32_t width, height; /* stored pixels */
    int32_t components; /* 1, 3, 4 */
    int32_t bits; /* for each sample */
    int32_t sof; /* low byte of the SOF marker: 0xC0 baseline, 0xC2 progressive, … */
    int32_t restart_interval; /* MCUs; 0 is none */
    int32_t has_exif; /* there is an Exif segment, which may hold an orientation */
    int32_t ended; /* the last two bytes are an end marker */
    size_t scan_offset; /* where the first scan's data begins */
} fd_header;

/* What a caller allows; 0 is no limit. */
typedef struct {
    int64_t pixels; /* that the header promises */
    int64_t memory; /* bytes that libjpeg may hold at once, for coefficients above all */
    int32_t scans; /* of a progressive file; FD_DAMAGED if there are more */
} fd_limits;

/* Which part of an image is wanted, and how. */
typedef struct {
    int32_t left, top, right, bottom; /* reduced pixels; all 0 is the whole image */
    int32_t reduce; /* 1, 2, 4 or 8 */
    int32_t layout; /* fd_layout */
    int32_t strict; /* any warning of the codec is FD_WARNED */
    fd_limits limits;
} fd_request;

/* A box of the reduced image, resized to a canvas; of the canvas one rectangle is made. */
typedef struct {
    double left, top, right, bottom; /* the box, in reduced pixels; edges may be fractions */
    int32_t in_left, in_top, in_right,
        in_bottom; /* pixels that may be read: the filter ends here */
    int32_t canvas_width, canvas_height; /* what the box is resized to */
    int32_t x, y, width, height; /* the rectangle, in pixels of the canvas, inside it */
    int32_t flip; /* from left to right, after all else */
} fd_resize;

/* How a pixel value v (0 to 255) of channel c is stored: v for FD_UINT8, else v * scale[c] + bias[c],
 * multiplied and added in float32, each rounded. */
typedef struct {
    int32_t dtype; /* fd_dtype */
    int32_t channels_first; /* 1: (3, height, width); 0: (height, width, 3); no gaps */
    float scale[3], bias[3];
} fd_pixels;

typedef enum { FD_RANDOM = 1, FD_CENTRAL } fd_crop_kind;

/* What becomes of each image of a batch, by its size and a seed: a random box of it, resized to
 * the result; or the whole of it, resized, and the centre of that. */
typedef struct {
    int32_t kind; /* fd_crop_kind */
    int32_t width, height; /* of the result */
    int32_t resize_width, resize_height; /* FD_CENTRAL: what the whole is resized to; a height of
                                            * 0: the width is that of the shorter side */
    double area, area_range; /* FD_RANDOM: the box's least share of the image, and
                                            * how much more it may be */
    double aspect, aspect_range; /* the logarithm of its width to its height, likewise */
    double narrowest, widest; /* width to height, where no box that is drawn fits */
    double flip; /* probability */
    double headroom; /* how many times larger than what it is resized to the
                                            * box is after the reduction, at least; 0: no reduction */
    int64_t pixels; /* images of more are left alone */
    int32_t upright; /* so are those with an Exif segment */
} fd_crop;

typedef struct fd_decoder fd_decoder;
typedef struct fd_resampler fd_resampler;
typedef struct fd_pool fd_pool;

/* ---- decode.c: one image ---- */

/* Version of libjpeg-turbo this was built with, such as "2.1.5"; static. */
const char *fd_codec(void);

/* Read the markers of `data` (`size` bytes). On failure `header` is not complete. */
int fd_probe(const uint8_t *data, size_t size, fd_header *header);

/* A decoder with the memory it will use again and again, some hundred KB to some MB; NULL if there
 * is none to be had. The caller destroys it. */
fd_decoder *fd_decoder_create(void);
void fd_decoder_destroy(fd_decoder *decoder);

/* Words for the last failure of this decoder, or for the first warning that mattered; never NULL;
 * the decoder's own, until its next call. */
const char *fd_decoder_message(const fd_decoder *decoder);

/* Whether the core's own decoder made the pixels of the last call, and not libjpeg-turbo. */
int fd_decoder_own(const fd_decoder *decoder);

/* "libjpeg": leave every file to libjpeg-turbo from now on, in all threads; "": only those that the
 * core's own decoder does not take. FD_ARGUMENT for other names. */
int fd_use_decoder(const char *name);

/* Images that this process has decoded, or failed to. */
typedef struct {
    int64_t own; /* by the core itself */
    int64_t libjpeg; /* by libjpeg-turbo, to which they were left */
} fd_counts;

fd_counts fd_counted(void);

/* How often the codec complained in the last call. */
int64_t fd_decoder_warnings(const fd_decoder *decoder);

/* Decode `request`'s part of the JPEG at `data` into `out`, whose rows lie `stride` bytes apart
 * (negative: upwards) and hold 1, 3, 4, 4 bytes a pixel for L, RGB, RGBA, CMYK. Only `out`'s pixels
 * are written; after a failure some of them may be. Pixels are those of a full decode, cut out. */
int fd_decode(fd_decoder *decoder, const uint8_t *data, size_t size, const fd_request *request,
              uint8_t *out, ptrdiff_t stride);

/* Decode only what `resize` needs of the JPEG at `data`, and write (3, height, width) or
 * (height, width, 3) values as `pixels` says to `out`, without an image in between. Of `request`
 * the reduce, strict and limits count. */
int fd_decode_resized(fd_decoder *decoder, const uint8_t *data, size_t size,
                      const fd_request *request, const fd_resize *resize, const fd_pixels *pixels,
                      void *out);

/* ---- restart_markers.c: lossless repack ---- */

/* Rewrite the JPEG at `data` as baseline with a restart marker after each row of MCUs and optimised
 * Huffman tables: the same coefficients, all APPn and COM markers kept. What follows the end marker
 * (an MPO's other images) is dropped. FD_DAMAGED if libjpeg complains of anything, or scans are
 * missing. `*out` (`*out_size` bytes) is the caller's, to be given to fd_free. */
int fd_add_restart_markers(fd_decoder *decoder, const uint8_t *data, size_t size,
                           const fd_limits *limits, uint8_t **out, size_t *out_size);
void fd_free(void *memory);

/* ---- resample.c: antialiased resizing ---- */

fd_resampler *fd_resampler_create(void);
void fd_resampler_destroy(fd_resampler *resampler);

/* Resize pixels that are in memory: `height` rows of `width` RGB pixels (3 bytes), `stride` bytes
 * apart. FD_ARGUMENT if `resize` does not fit them; then nothing is written. */
int fd_resize_rgb(fd_resampler *resampler, const uint8_t *rgb, int32_t width, int32_t height,
                  ptrdiff_t stride, const fd_resize *resize, const fd_pixels *pixels, void *out);

/* Names of the instruction sets that can run here, best first, separated by spaces: such as
 * "avx2 plain". */
const char *fd_instructions(void);

/* Use one of them from now on, in all threads ("" is the best); for tests. FD_ARGUMENT if it cannot
 * run here. */
int fd_use_instructions(const char *name);

/* ---- crop.c: which part of an image is shown ---- */

/* Decide, and draw, what becomes of an image: the reduce, layout and strict of `request`, and all of
 * `resize`. The draws follow from `seed`, by SplitMix64. Returns 0, and changes nothing, where
 * fastdecode.torch would not decode such an image by this core: four inks, arithmetic coding, no
 * end marker, padding. */
int fd_plan_crop(const fd_header *header, uint64_t seed, const fd_crop *crop, fd_request *request,
                 fd_resize *resize);

/* ---- batch.c: many images, many threads ---- */

/* One image of a batch. Zero it before its first use; `buffer` stays with it from batch to batch. */
typedef struct {
    /* From the caller, for fd_pool_open. */
    const char *path; /* file to read, or NULL: the bytes are at `data` */
    const uint8_t *data; /* with a path: set by fd_pool_open, into `buffer` */
    size_t size;
    /* From fd_pool_open. */
    fd_header header;
    /* From the caller, for fd_pool_decode. */
    int32_t wanted; /* 0: leave this item alone */
    int32_t resized; /* 1: fd_decode_resized; 0: fd_decode, to `out` and `stride` */
    fd_request request;
    fd_resize resize;
    void *out;
    ptrdiff_t stride;
    /* From both. */
    int32_t status; /* fd_status; an item that failed does not touch the others */
    int32_t code; /* errno of FD_IO */
    char message[FD_MESSAGE];
    /* The core's: what a file was read into. */
    uint8_t *buffer;
    size_t capacity;
} fd_item;

/* `threads` threads (at least 1) that wait for work; NULL if they cannot be had. They do not survive
 * a fork: destroy nothing and create anew in the child. */
fd_pool *fd_pool_create(int threads);

/* End the threads, when what they are at is done. */
void fd_pool_destroy(fd_pool *pool);

/* Read each item's file, if it names one, and its header. Returns when all are done; several threads
 * may call at once, and their items are then worked on side by side, in the order of the calls. */
void fd_pool_open(fd_pool *pool, fd_item *items, size_t count);

/* Decode each item that is wanted, with `pixels` for those that are resized. Likewise. */
void fd_pool_decode(fd_pool *pool, fd_item *items, size_t count, const fd_pixels *pixels);

/* Decode and resize `chosen` of the items, and leave the others alone: item `which[i]` as the 16
 * numbers from `plans[16 * i]` say (reduce; then the members of fd_resize in their order), to `out`
 * + `which[i]` * `stride`. Of each request only the limits are the caller's: it is strict. */
void fd_pool_resize(fd_pool *pool, fd_item *items, size_t count, const int32_t *which,
                    const double *plans, size_t chosen, const fd_pixels *pixels, void *out,
                    ptrdiff_t stride);

/* What a call of fd_pool_crop has come to. */
typedef struct {
    size_t made; /* items, of those that were asked for */
    size_t held; /* bytes: the capacity of their buffers, all together */
} fd_cropped;

/* Open the items by the threads of `reading`, and then by those of `decoding` do with each what
 * fd_plan_crop says for its seed, to `out` + its number * `stride`. Those with a plan have `wanted`
 * set, and `request` and `resize` say what it is; the others are as fd_pool_open has left them. */
fd_cropped fd_pool_crop(fd_pool *reading, fd_pool *decoding, fd_item *items, size_t count,
                        const uint64_t *seeds, const fd_crop *crop, const fd_pixels *pixels,
                        void *out, ptrdiff_t stride);

/* Free what the items were read into. The items themselves are the caller's. */
void fd_items_free(fd_item *items, size_t count);

// cffi: to here

#endif
