/* png.c: the chunks of a PNG, and its rows as they are decompressed. */
#include "png_decoder.h"

#include "inflate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNATURE = 8,
    CHUNK = 12, /* bytes of a chunk besides its contents: length, type, CRC */
    IHDR = 13,
    GREY = 0,
    COLOUR = 2,
    PALETTE = 3,
    GREY_ALPHA = 4,
    COLOUR_ALPHA = 6,
    AT_ONCE = 96 << 10, /* bytes to decompress before their rows are made: they stay in the cache */
    SLOTS = 4, /* rows without filters: two, and the two before */
    ZLIB_HEADER = 2,
    ADLER = 4
};

/* What is left to read of a compressed stream in one chunk, or in one IDAT after another. */
typedef struct {
    const uint8_t *at;
    size_t here; /* bytes in this chunk */
    size_t total; /* bytes in all */
} stream;

struct fd_png {
    fd_inflater inflater;
    fd_room window, rows;
    const fd_unfilters *unfilters;

    /* the header */
    int32_t width, height, bits, kind;
    int32_t samples; /* of a pixel */
    size_t line, step; /* bytes of a row, and of a pixel (at least 1) */
    int has_transparency; /* there is a tRNS chunk, */
    int has_key; /* which names a transparent colour, as the file has it: */
    int32_t key[3];
    int32_t colours; /* of the palette */
    uint8_t palette[256][4];

    const uint8_t *first; /* what the first IDAT contains */
    size_t compressed; /* bytes of the zlib stream in all of them */
};

fd_png *fd_png_create(void) { return calloc(1, sizeof(fd_png)); }

void fd_png_destroy(fd_png *png) {
    if (png == NULL)
        return;
    fd_room_free(&png->window);
    fd_room_free(&png->rows);
    free(png);
}

/* ---- chunks ---- */

static uint32_t read32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int is_type(const uint8_t *type, const char *name) { return memcmp(type, name, 4) == 0; }

static const char PNG[] = "\x89PNG\r\n\x1A\n";

int fd_is_png(const uint8_t *data, size_t size) {
    return size >= SIGNATURE && memcmp(data, PNG, SIGNATURE) == 0;
}

/* Read IHDR (11.2.1), and return what is wrong; NULL if all is right. */
static const char *read_ihdr(fd_header *header, const uint8_t *data, size_t size) {
    static const struct {
        uint8_t samples, colours, bits; /* `bits` is the sum of all that are possible */
    } KINDS[] = {[GREY] = {1, FD_GREYS, 1 | 2 | 4 | 8 | 16},
                 [COLOUR] = {3, FD_COLOURS, 8 | 16},
                 [PALETTE] = {1, FD_INDICES, 1 | 2 | 4 | 8},
                 [GREY_ALPHA] = {2, FD_GREYS, 8 | 16},
                 [COLOUR_ALPHA] = {4, FD_COLOURS, 8 | 16}};
    const uint8_t *at = data + SIGNATURE;

    if (memcmp(data, PNG, size < SIGNATURE ? size : SIGNATURE) != 0)
        return "has a damaged signature";
    if (size < SIGNATURE + 8 + IHDR)
        return "is truncated";
    if (!is_type(at + 4, "IHDR") || read32(at) < IHDR)
        return "does not start with IHDR";
    uint32_t width = read32(at + 8), height = read32(at + 12), bits = at[16];
    if (width < 1 || width > INT32_MAX || height < 1 || height > INT32_MAX)
        return "says that there are no pixels, or too many";
    if (at[17] > COLOUR_ALPHA || (bits & (bits - 1)) || !(bits & KINDS[at[17]].bits))
        return "has an impossible colour type, or number of bits";
    if (at[18] || at[19] || at[20] > 1)
        return "has an unknown method";
    header->width = (int32_t)width;
    header->height = (int32_t)height;
    header->bits = (int32_t)bits;
    header->components = KINDS[at[17]].samples;
    header->colours = KINDS[at[17]].colours;
    header->is_interlaced = at[20];
    header->ended = 1; /* the end is checked with the chunks */
    header->sof = at[20] || read32(at) != IHDR || width > FD_MOST_SIDE ? FD_OTHER_PNG : FD_PNG;
    return NULL;
}

/* Begin with an image; 0 if this decoder does not support it. */
static int begin(fd_png *png, const uint8_t *data, size_t size) {
    fd_header header;

    if (!fd_is_png(data, size) || read_ihdr(&header, data, size) || header.sof != FD_PNG)
        return 0;
    png->width = header.width;
    png->height = header.height;
    png->bits = header.bits;
    png->kind = data[SIGNATURE + 17];
    png->samples = header.components;
    png->line = ((size_t)png->width * (size_t)(png->bits * png->samples) + 7) / 8;
    png->step = png->bits < 8 ? 1 : (size_t)(png->bits / 8 * png->samples);
    return 1;
}

static int read_palette(fd_png *png, const uint8_t *body, size_t size) {
    size_t colours = size / 3;

    if (png->colours || size % 3 || colours < 1 ||
        colours > (size_t)1 << (png->bits < 8 ? png->bits : 8))
        return 0;
    for (size_t i = 0; i < colours; i++) {
        memcpy(png->palette[i], body + 3 * i, 3);
        png->palette[i][3] = 255;
    }
    png->colours = (int32_t)colours;
    return 1;
}

static int read_transparency(fd_png *png, const uint8_t *body, size_t size) {
    if (png->has_transparency)
        return 0;
    png->has_transparency = 1;
    if (png->kind != PALETTE) {
        if (size != (size_t)(2 * png->samples) || (png->kind != GREY && png->kind != COLOUR))
            return 0;
        png->has_key = 1;
        for (int32_t i = 0; i < png->samples; i++)
            png->key[i] = (body[2 * i] << 8 | body[2 * i + 1]) & ((1 << png->bits) - 1);
        return 1;
    }
    if (size > (size_t)png->colours)
        return 0;
    for (size_t i = 0; i < size; i++)
        png->palette[i][3] = body[i];
    return 1;
}

/* Read on in a stream, as fd_inflate_read: its chunks have been checked. */
static size_t read_stream(void *state, uint8_t *to, size_t room) {
    stream *from = state;
    size_t total = room < from->total ? room : from->total;

    for (size_t done = 0; done < total;) {
        while (from->here == 0) { /* the next IDAT begins after the CRC */
            assert(is_type(from->at + 8, "IDAT"));
            from->here = read32(from->at + 4);
            from->at += CHUNK;
        }
        size_t some = total - done < from->here ? total - done : from->here;
        memcpy(to + done, from->at, some);
        from->at += some;
        from->here -= some;
        done += some;
    }
    from->total -= total;
    return total;
}

/* Whether a chunk can be left out: its type has four letters, and the first one is small. */
static int is_ancillary(const uint8_t *type) {
    for (int i = 0; i < 4; i++)
        if ((type[i] | 32) < 'a' || (type[i] | 32) > 'z')
            return 0;
    return type[0] >= 'a';
}

/* Walk over all chunks, and find those with pixels. Returns 0 at anything unusual: other libraries decide
 * what it means. */
static int read_chunks(fd_png *png, const uint8_t *data, size_t size) {
    enum { BEFORE, INSIDE, BEHIND } pixels = BEFORE;
    size_t at = SIGNATURE;

    png->has_transparency = png->has_key = png->colours = 0;
    png->compressed = 0;
    for (;;) {
        if (size - at < CHUNK)
            return 0;
        size_t length = read32(data + at);
        const uint8_t *type = data + at + 4, *body = type + 4;
        if (length > size - at - CHUNK || fd_crc32(type, 4 + length) != read32(body + length))
            return 0;
        int is_pixels = is_type(type, "IDAT");
        if (is_pixels) {
            if (pixels == BEHIND)
                return 0;
            if (pixels == BEFORE)
                png->first = body;
            pixels = INSIDE;
            png->compressed += length;
        } else if (pixels == INSIDE) {
            pixels = BEHIND;
        }
        if (is_type(type, "IEND")) {
            if (length != 0 || pixels == BEFORE)
                return 0;
            break;
        }
        int is_wanted = 1;
        if (is_type(type, "IHDR"))
            is_wanted = at == SIGNATURE;
        else if (is_type(type, "PLTE"))
            is_wanted = pixels == BEFORE &&
                        (png->kind == PALETTE ? read_palette(png, body, length)
                                              : png->kind != GREY && png->kind != GREY_ALPHA);
        else if (is_type(type, "tRNS"))
            is_wanted = pixels == BEFORE && read_transparency(png, body, length);
        else if (is_type(type, "acTL") || is_type(type, "fcTL") || is_type(type, "fdAT"))
            is_wanted = 0;
        else if (!is_pixels)
            is_wanted = is_ancillary(type);
        if (!is_wanted)
            return 0;
        at += CHUNK + length;
    }
    return png->kind != PALETTE || png->colours > 0;
}

/* Begin to read the zlib stream of the pixels. Returns 0 unless it is as RFC 1950 says: deflate, a window
 * of up to 32 KB, a checksum, no dictionary. */
static int begin_pixels(fd_png *png, stream *pixels) {
    uint8_t header[ZLIB_HEADER];

    if (png->compressed < ZLIB_HEADER + ADLER)
        return 0;
    *pixels = (stream){.at = png->first, .here = read32(png->first - 8), .total = ZLIB_HEADER};
    read_stream(pixels, header, ZLIB_HEADER);
    pixels->total = png->compressed - ZLIB_HEADER - ADLER;
    fd_inflate_begin(&png->inflater, read_stream, pixels);
    return (header[0] & 15) == 8 && header[0] >> 4 <= 7 && !(header[1] & 32) &&
           (header[0] << 8 | header[1]) % 31 == 0;
}

/* Whether the stream of the pixels has ended, with its checksum, and with it the data. */
static int end_pixels(fd_png *png, stream *pixels, const uint8_t *window, uint8_t *end,
                      uint32_t sum) {
    uint8_t adler[ADLER];

    if (fd_inflate(&png->inflater, window, end, end + 1) != end ||
        png->inflater.state != FD_AT_END || pixels->total > 0 ||
        fd_inflate_used(&png->inflater) != png->compressed - ZLIB_HEADER - ADLER)
        return 0;
    pixels->total = ADLER;
    read_stream(pixels, adler, ADLER);
    return sum == read32(adler);
}

/* Whether a chunk may say how the image is turned: EXIF, or a text with a key that Pillow heeds. */
static int may_turn(const uint8_t *type, size_t size) {
    static const char *const KEYS[] = {"exif", "Raw profile type exif", "XML:com.adobe.xmp"};

    if (is_type(type, "tEXt") || is_type(type, "zTXt") || is_type(type, "iTXt"))
        for (int i = 0; i < 3; i++) {
            size_t length = strlen(KEYS[i]);
            if (size >= length && memcmp(type + 4, KEYS[i], length) == 0 &&
                (size == length || type[4 + length] == 0))
                return 1;
        }
    return is_type(type, "eXIf");
}

const char *fd_png_probe(const uint8_t *data, size_t size, fd_header *header) {
    const char *fault = read_ihdr(header, data, size);
    int is_begun = 0; /* the pixels */

    for (size_t at = SIGNATURE; !fault && at < size && size - at >= 8;) {
        size_t length = read32(data + at), left = size - at - 8;
        const uint8_t *type = data + at + 4;
        if (is_type(type, "IEND"))
            break;
        is_begun |= is_type(type, "IDAT");
        header->may_turn |= may_turn(type, length < left ? length : left);
        if (is_type(type, "acTL") && length >= 8 && left >= 4 && !is_begun)
            header->is_animated = read32(type + 4) > 1; /* one frame is an image */
        at += CHUNK + length;
    }
    header->sof = header->is_animated ? FD_OTHER_PNG : header->sof;
    return fault;
}

/* ---- pixels ---- */

static int32_t sample(const uint8_t *row, size_t number, int32_t bits) {
    size_t bit = number * (size_t)bits;

    if (bits == 16)
        return row[bit / 8] << 8 | row[bit / 8 + 1];
    return row[bit / 8] >> (8 - bits - (int)(bit % 8)) & ((1 << bits) - 1);
}

/* Unpack samples of fewer than 8 bits, from number `left` on, and multiply them. */
static void unpack(uint8_t *out, const uint8_t *row, int32_t left, int32_t count, int32_t bits,
                   int32_t factor) {
    for (int32_t i = 0; i < count; i++)
        out[i] = (uint8_t)(sample(row, (size_t)(left + i), bits) * factor);
}

/* Bring a row to 8 bits a sample, and an index to its colour. Returns `row` itself or `scratch`, at
 * pixel `left`, and the samples of a pixel; NULL if an index has no colour. */
static const uint8_t *eight_bits(const fd_png *png, const uint8_t *row, uint8_t *scratch,
                                 int32_t left, int32_t count, int32_t *samples) {
    *samples = png->samples;
    if (png->kind == PALETTE) {
        int32_t highest = 0;
        const uint8_t *index = row + left;
        if (png->bits < 8) {
            unpack(scratch + 4 * (size_t)count, row, left, count, png->bits, 1);
            index = scratch + 4 * (size_t)count;
        }
        for (int32_t i = 0; i < count; i++) {
            highest = index[i] > highest ? index[i] : highest;
            memcpy(scratch + 4 * (size_t)i, png->palette[index[i]], 4);
        }
        *samples = 4;
        return highest < png->colours ? scratch : NULL;
    }
    if (png->bits < 8) {
        unpack(scratch, row, left, count, png->bits, 255 / ((1 << png->bits) - 1));
        return scratch;
    }
    if (png->bits == 16) { /* the high bytes, as libpng's png_set_strip_16 */
        size_t values = (size_t)count * (size_t)png->samples;
        const uint8_t *from = row + 2 * (size_t)left * (size_t)png->samples;
        for (size_t i = 0; i < values; i++)
            scratch[i] = from[2 * i];
        return scratch;
    }
    return row + (size_t)left * (size_t)png->samples;
}

/* Write samples of 8 bits as pixels of a layout; without a row of their own, alpha is dropped. */
static void write_pixels(uint8_t *out, const uint8_t *in, int32_t samples, int32_t count,
                         int layout, int is_opaque) {
    size_t pixels = (size_t)count;

    if (layout == FD_L) {
        for (size_t i = 0; i < pixels; i++)
            out[i] = in[i * (size_t)samples];
    } else if (layout == FD_RGB && samples == 3) {
        memcpy(out, in, 3 * pixels);
    } else if (layout == FD_RGB) {
        for (size_t i = 0; i < pixels; i++, in += samples, out += 3) {
            out[0] = in[0];
            out[1] = in[samples > 2 ? 1 : 0];
            out[2] = in[samples > 2 ? 2 : 0];
        }
    } else if (samples == 4 && !is_opaque) {
        memcpy(out, in, 4 * pixels);
    } else {
        for (size_t i = 0; i < pixels; i++, in += samples, out += 4) {
            out[0] = in[0];
            out[1] = in[samples > 2 ? 1 : 0];
            out[2] = in[samples > 2 ? 2 : 0];
            out[3] = is_opaque || samples % 2 ? 255 : in[samples - 1];
        }
    }
}

/* Make the pixels of the colour that tRNS names transparent; it has as many bits as the file. */
static void apply_key(const fd_png *png, uint8_t *out, const uint8_t *row, int32_t left,
                      int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        size_t first = (size_t)(left + i) * (size_t)png->samples;
        int is_key = 1;
        for (int32_t s = 0; s < png->samples; s++)
            is_key &= sample(row, first + (size_t)s, png->bits) == png->key[s];
        if (is_key)
            out[4 * (size_t)i + 3] = 0;
    }
}

/* Write a row as the file has it; 16 bits in the order of this machine. */
static void write_stored(const fd_png *png, uint8_t *out, const uint8_t *row, int32_t left,
                         int32_t count) {
    size_t values = (size_t)count * (size_t)png->samples;
    size_t first = (size_t)left * (size_t)png->samples;

    if (png->bits < 8)
        unpack(out, row, left, count, png->bits, 1);
    else if (png->bits == 8)
        memcpy(out, row + first, values);
    else
        for (size_t i = 0; i < values; i++) {
            uint16_t value = (uint16_t)(row[2 * (first + i)] << 8 | row[2 * (first + i) + 1]);
            memcpy(out + 2 * i, &value, sizeof value);
        }
}

/* ---- rows ---- */

/* The rows of one image, from its compressed data to the target. */
typedef struct {
    fd_png *png;
    const fd_target *target;
    int32_t left, top, right, bottom;
    int32_t done; /* rows without their filters */
    const uint8_t *above;
    uint8_t *slots, *scratch, *ring;
    size_t slot, ring_slot; /* bytes of each */
    int32_t next; /* slot: 0 or 2 */
} rows;

/* Deliver a row; 0 if it cannot be converted. */
static int deliver(rows *of, const uint8_t *row) {
    const fd_png *png = of->png;
    const fd_target *target = of->target;
    int32_t y = of->done - of->top, count = of->right - of->left, samples;

    if (y < 0)
        return 1;
    if (target->sink == NULL && target->layout == FD_STORED) {
        write_stored(png, target->out + y * target->stride, row, of->left, count);
        return 1;
    }
    const uint8_t *eight = eight_bits(png, row, of->scratch, of->left, count, &samples);
    if (eight == NULL)
        return 0;
    if (target->sink == NULL) {
        uint8_t *out = target->out + y * target->stride;
        write_pixels(out, eight, samples, count, target->layout, 0);
        if (png->has_key && target->layout == FD_RGBA)
            apply_key(png, out, row, of->left, count);
        return 1;
    }
    uint8_t *to = of->ring + (size_t)(y % (target->sink->rows_kept + 1)) * of->ring_slot;
    write_pixels(to, eight, samples, count, FD_RGBA, 1);
    target->sink->row(target->sink->state, y, to);
    return 1;
}

/* Undo the filters of all rows that are there, and deliver them. Returns where the next row begins; NULL if
 * there is an unknown filter. */
static const uint8_t *take_rows(rows *of, const uint8_t *from, const uint8_t *end) {
    const fd_png *png = of->png;
    const fd_unfilters *unfilters = png->unfilters;
    size_t line = png->line, stride = line + 1;
    int can_pair = unfilters->two_paeth != NULL && (png->step == 3 || png->step == 4);

    while (of->done < of->bottom && (size_t)(end - from) >= stride) {
        uint8_t *out = of->slots + (size_t)of->next * of->slot;
        int filter = from[0], count = 1;
        if (filter >= FD_FILTERS)
            return NULL;
        if (can_pair && filter == FD_PAETH && of->done + 1 < of->bottom &&
            (size_t)(end - from) >= 2 * stride && from[stride] == FD_PAETH) {
            count = 2;
            unfilters->two_paeth(out, of->slot, from + 1, stride, of->above, line, png->step);
        } else {
            unfilters->filters[filter](out, from + 1, of->above, line, png->step);
        }
        of->next = 2 - of->next;
        for (int i = 0; i < count; i++, of->done++) {
            of->above = out + (size_t)i * of->slot;
            if (!deliver(of, of->above))
                return NULL;
        }
        from += (size_t)count * stride;
    }
    return from;
}

static int make_room(rows *of) {
    fd_png *png = of->png;
    const fd_sink *sink = of->target->sink;
    size_t width = (size_t)(of->right - of->left);
    size_t wide = (5 * width + FD_PADDING + 63) / 64 * 64; /* RGBA, and indices */
    of->slot = (png->line + FD_ROW_PADDING + 63) / 64 * 64;
    of->ring_slot = wide;
    size_t kept = sink == NULL ? 0 : (size_t)sink->rows_kept + 1;
    uint8_t *memory = fd_room_for(&png->rows, (SLOTS + 1) * of->slot + (1 + kept) * wide);

    if (memory == NULL)
        return 0;
    of->slots = memory + of->slot;
    of->scratch = of->slots + SLOTS * of->slot;
    of->ring = of->scratch + wide;
    memset(memory, 0, of->slot);
    of->above = memory; /* zeros above the first row */
    return 1;
}

/* Decompress, and deliver the rows, until the last one that is wanted. */
static int decode_rows(rows *of) {
    fd_png *png = of->png;
    fd_inflater *inflater = &png->inflater;
    size_t stride = png->line + 1, left = stride * (size_t)of->bottom;
    size_t some = AT_ONCE > 4 * stride ? AT_ONCE : 4 * stride, capacity = FD_HISTORY + some;
    uint8_t *window = fd_room_for(&png->window, capacity + FD_INFLATE_SPARE + FD_INFLATE_PADDING);
    uint8_t *end = window;
    const uint8_t *from = window; /* the first row that is not taken */
    uint32_t sum = 1;
    int is_whole = of->bottom == png->height;
    stream pixels;

    if (window == NULL || !begin_pixels(png, &pixels))
        return 0;
    while (of->done < of->bottom) {
        size_t room = (size_t)(window + capacity - end);
        uint8_t *limit = end + (room < left ? room : left), *before = end;
        end = fd_inflate(inflater, window, end, limit);
        if (end == NULL || end < limit)
            return 0;
        size_t got = (size_t)(end - before);
        if (got > left && is_whole) /* more than the image */
            return 0;
        left -= got < left ? got : left;
        if (is_whole)
            sum = fd_adler32(sum, before, got);
        from = take_rows(of, from, end);
        if (from == NULL)
            return 0;
        size_t kept = (size_t)(end - from);
        kept = kept > FD_HISTORY ? kept : FD_HISTORY;
        if ((size_t)(end - window) > kept) {
            size_t shift = (size_t)(end - window) - kept;
            memmove(window, window + shift, kept);
            end -= shift;
            from -= shift;
        }
    }
    return !is_whole || end_pixels(png, &pixels, window, end, sum);
}

int fd_png_decode(fd_png *png, const uint8_t *data, size_t size, const fd_target *target) {
    const fd_limits *limits = &target->limits;
    rows of = {.png = png,
               .target = target,
               .left = target->left,
               .top = target->top,
               .right = target->right,
               .bottom = target->bottom};

    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || target->reduce != 1 || !begin(png, data, size))
        return 0;
    if (of.left == 0 && of.top == 0 && of.right == 0 && of.bottom == 0) {
        of.right = png->width;
        of.bottom = png->height;
    }
    if (of.left < 0 || of.top < 0 || of.left >= of.right || of.top >= of.bottom ||
        of.right > png->width || of.bottom > png->height)
        return 0;
    if (limits->pixels && (int64_t)png->width * png->height > limits->pixels)
        return 0;
    int layout = target->sink == NULL ? target->layout : FD_RGB;
    int is_grey = png->kind == GREY || png->kind == GREY_ALPHA;
    if (layout == FD_L && !is_grey)
        return 0;
    png->unfilters = fd_kernels_now()->unfilters;
    return read_chunks(png, data, size) && make_room(&of) && decode_rows(&of);
}
