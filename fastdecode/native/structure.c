/* structure.c: what a file says of itself: the header of a JPEG or PNG, and where the scans of a JPEG are.
 *
 * It passes over what is unusual, as libjpeg does (jdmarker.c), for any decoder; the core's own read
 * their files again, at their strictest. Offsets may lie behind the end of a file that is cut. */
#include "png_decoder.h"

#include <string.h>

/* Markers: frames that are progressive (two), lossless, JPEG-LS; the others by T.81's names. */
enum { SOF2 = 0xC2, SOF10 = 0xCA, SOF3 = 0xC3, SOF55 = 0xF7 };
enum { DHT = 0xC4, EOI = 0xD9, SOS = 0xDA, DRI = 0xDD };

enum {
    MOST_SEGMENTS = 10000, /* before the first scan; an ICC profile of 16 MB takes 256 */
    MOST_IN_SCAN = 4, /* components (T.81, B.2.3) */
    NO_BIT = 16 /* above every bit position */
};

typedef struct {
    const uint8_t *data;
    size_t size;
} file;

static int byte_at(const file *of, size_t at) { return at < of->size ? of->data[at] : 0; }

static int two_bytes_at(const file *of, size_t at) {
    return byte_at(of, at) << 8 | byte_at(of, at + 1);
}

static int is_at(const file *of, size_t at, const char *words, size_t count) {
    return at <= of->size && count <= of->size - at && memcmp(of->data + at, words, count) == 0;
}

int fd_next_segment(const uint8_t *data, size_t size, size_t at, fd_segment *found) {
    const file of = {data, size};
    const uint8_t *ff;

    for (; at < size && (ff = memchr(data + at, 0xFF, size - at)) != NULL; at++) {
        at = (size_t)(ff - data);
        int marker = byte_at(&of, at + 1), length = two_bytes_at(&of, at + 2);
        if (marker > 0x01 && marker != 0xFF && !(marker >= 0xD0 && marker <= 0xD8)) {
            *found = (fd_segment){at, at + 2 + (size_t)(length < 2 ? 2 : length), marker, length};
            return 1;
        }
    }
    *found = (fd_segment){size, size, 0, 0};
    return 0;
}

/* Whether it is a comment or of an application: libjpeg passes over one of an impossible length. */
static int is_passed_over(int marker) { return marker == 0xFE || (marker & 0xF0) == 0xE0; }

/* ---- the header of a JPEG ---- */

/* What decides about colours, besides the components. */
typedef struct {
    int is_jfif, adobe; /* -1: there is no such marker */
} marks;

static void read_segment(fd_header *header, marks *seen, const file *of,
                         const fd_segment *segment) {
    static const char XMP[] = "http://ns.adobe.com/xap/1.0/";
    size_t at = segment->at + 4;
    int marker = segment->marker;
    int is_frame = ((marker & 0xF0) == 0xC0 && ((marker & 3) || marker == 0xC0)) || marker == SOF55;

    if (is_frame && header->frame == 0) {
        header->sof = marker;
        header->frame = at;
    } else if (marker == DRI) {
        header->restart_interval = two_bytes_at(of, at);
    } else if (marker == 0xE0) {
        seen->is_jfif |= is_at(of, at, "JFIF", 5);
    } else if (marker == 0xEE && segment->length >= 14 && is_at(of, at, "Adobe", 5)) {
        seen->adobe = byte_at(of, at + 11);
    } else if (marker == 0xE1 && is_at(of, at, "Exif\0", 6)) {
        if (header->exif_count++ == 0) {
            header->exif = at;
            header->exif_end = segment->end;
        }
    } else if (marker == 0xE1 && is_at(of, at, XMP, sizeof XMP)) {
        header->xmp = at + sizeof XMP;
        header->xmp_end = segment->end;
    }
}

/* The colours that libjpeg would guess (jdapimin.c, default_decompress_parms). */
static int colours_of(const file *of, const fd_header *header, const marks *seen) {
    size_t at = header->frame + 6;
    int are_named = byte_at(of, at) == 'R' && byte_at(of, at + 3) == 'G' &&
                    byte_at(of, at + 6) == 'B';
    int are_rgb = !seen->is_jfif && (seen->adobe == 0 || (seen->adobe < 0 && are_named));

    if (header->components == 3)
        return are_rgb ? FD_COLOURS : FD_YCC;
    return header->components == 1 ? FD_GREYS : header->components == 4 ? FD_CMYK : FD_UNUSUAL;
}

/* Read every segment up to the first scan (T.81, annex B), and return what is wrong; NULL if all is right.
 * A search for the frame alone could find that of a thumbnail. */
static const char *read_header(fd_header *header, const file *of) {
    marks seen = {0, -1};
    fd_segment segment = {.end = 2};

    for (int count = 0; segment.marker != SOS; count++) {
        if (!fd_next_segment(of->data, of->size, segment.end, &segment))
            return "is truncated";
        if (segment.marker == EOI)
            return "ends (EOI) before any image";
        if (segment.at + 4 > of->size)
            return "is truncated";
        if (count == MOST_SEGMENTS || (segment.length < 2 && !is_passed_over(segment.marker)))
            return "has too many segments, or one of an impossible length";
        if (segment.length >= 2)
            read_segment(header, &seen, of, &segment);
    }
    if (header->frame == 0)
        return "has no frame (SOF) before the first scan (SOS)";
    header->bits = byte_at(of, header->frame);
    header->height = two_bytes_at(of, header->frame + 1);
    header->width = two_bytes_at(of, header->frame + 3);
    header->components = byte_at(of, header->frame + 5);
    if (header->width == 0 || header->height == 0 || header->components == 0)
        return "says that there are no pixels";
    for (int c = 0; c < header->components && c < MOST_IN_SCAN; c++)
        header->factors[c] = (uint8_t)byte_at(of, header->frame + 7 + 3 * (size_t)c);
    header->colours = colours_of(of, header, &seen);
    header->may_turn = header->exif_count > 0 || header->xmp > 0;
    header->scan_offset = segment.end;
    header->ended = is_at(of, of->size - 2, "\xFF\xD9", 2);
    return NULL;
}

/* ---- pixels as they are ---- */

/* Read a number of at most 5 digits, and the one byte behind it; 0 if there is none. */
static int32_t read_number(const file *of, size_t *at, int end) {
    int32_t number = 0;
    size_t most = *at + 5;

    while (*at < most && byte_at(of, *at) >= '0' && byte_at(of, *at) <= '9')
        number = 10 * number + byte_at(of, (*at)++) - '0';
    return byte_at(of, (*at)++) == end ? number : 0;
}

const uint8_t *fd_ppm_pixels(const uint8_t *data, size_t size, int32_t *width, int32_t *height) {
    const file of = {data, size};
    size_t at = 3;

    if (!is_at(&of, 0, "P6\n", 3) || (*width = read_number(&of, &at, ' ')) == 0 ||
        (*height = read_number(&of, &at, '\n')) == 0 || read_number(&of, &at, '\n') != 255)
        return NULL;
    size_t pixels = (size_t)*width * (size_t)*height;
    return at <= size && size - at == 3 * pixels ? data + at : NULL;
}

int fd_probe(const uint8_t *data, size_t size, fd_header *header) {
    const file of = {data, size};

    memset(header, 0, sizeof *header);
    if (fd_ppm_pixels(data, size, &header->width, &header->height)) {
        header->sof = FD_PPM;
        header->components = 3;
        header->bits = 8;
        header->colours = FD_COLOURS;
        header->ended = 1;
        return FD_OK;
    }
    if (is_at(&of, 0, "\xFF\xD8", 2))
        header->fault = read_header(header, &of);
    else if (is_at(&of, 0, "\x89PNG", 4))
        header->fault = fd_png_probe(data, size, header);
    else
        return FD_UNSUPPORTED;
    return header->fault == NULL ? FD_OK : FD_DAMAGED;
}

/* ---- the scans of a JPEG ---- */

/* What is known while the file is read. */
typedef struct {
    file of;
    fd_header header;
    int32_t interval;
    int is_progressive, is_damaged; /* the header of a scan is: libjpeg stops there */
    uint8_t symbols[16]; /* the first one of each Huffman table of AC coefficients */
    int components; /* that there is a scan of; for each, by its name, the lowest bit of coefficients */
    uint8_t has[256], lowest[256][FD_COEFFICIENTS];
} reader;

/* Note the first symbols of the tables of AC coefficients, which have the codes of only zeros (T.81, C). */
static void read_tables(reader *from, const fd_segment *segment) {
    size_t at = segment->at + 4;

    while (at + 17 < segment->end && at + 17 < from->of.size) {
        const uint8_t *table = from->of.data + at;
        if (table[0] >> 4 == 1)
            from->symbols[table[0] & 15] = table[17];
        at += 17;
        for (int length = 1; length <= 16; length++)
            at += table[length];
    }
}

/* The number of MCUs in a scan (T.81, A.2); a large one if its headers are damaged. */
static int64_t units_of(const reader *from, size_t marker) {
    const fd_header *header = &from->header;
    int is_single = byte_at(&from->of, marker + 4) == 1, own[2] = {0, 0}, most[2] = {0, 0};
    int64_t side = header->sof == SOF3 ? 1 : FD_SIDE, units = 1;

    for (int c = 0; c < header->components; c++)
        for (int i = 0; i < 2; i++) {
            size_t at = header->frame + 6 + 3 * (size_t)c;
            int factor = byte_at(&from->of, at + 1) >> (i ? 0 : 4) & 15;
            most[i] = factor > most[i] ? factor : most[i];
            if (byte_at(&from->of, at) == byte_at(&from->of, marker + 5))
                own[i] = factor;
        }
    for (int i = 0; i < 2; i++) {
        int64_t size = i ? header->height : header->width;
        if (most[i] == 0 || (is_single && own[i] == 0))
            return (int64_t)header->width * header->height;
        if (is_single)
            size = (size * own[i] + most[i] - 1) / most[i];
        int64_t unit = is_single ? side : side * most[i];
        units *= (size + unit - 1) / unit;
    }
    return units;
}

size_t fd_end_of_scan(const uint8_t *data, size_t size, size_t start, int64_t intervals, int is_ls,
                      int64_t *passed) {
    size_t at = start;
    int in_order = 1;

    for (*passed = 0; at < size; at += 2) {
        const uint8_t *ff = memchr(data + at, 0xFF, size - at);
        at = ff == NULL ? size : (size_t)(ff - data);
        if (size - at < 2) {
            at = size;
        } else if (ff[1] == 0xFF) { /* a fill byte, if it stands before a marker */
            at--;
        } else if ((ff[1] & 0xF8) == 0xD0 && *passed + 1 < intervals) {
            in_order &= (ff[1] & 7) == (*passed & 7);
            ++*passed;
        } else if (ff[1] != 0 && !(is_ls && ff[1] < 0x80)) {
            break;
        }
    }
    for (at = at < size ? at : size; at > start && data[at - 1] == 0xFF;)
        at--;
    *passed = in_order ? *passed : -1;
    return at;
}

size_t fd_most_zeros(int is_progressive, int first, int last, int is_first, int symbols) {
    if (is_progressive && (first == 0 || first == last))
        return SIZE_MAX;
    if ((symbols & (is_progressive ? 15 : 255)) == 0) /* the end of one block, or of several */
        return SIZE_MAX;
    return is_progressive && !is_first ? FD_MOST_BITS : FD_MANY_ZEROS - 1;
}

/* Read the header of a scan (T.81, B.2.3 and G.1.1.1): which bits of which coefficients it has, and which
 * zeros may be data. Where a bit is missing in the middle, the scans with the bits below mean nothing. */
static void read_scan_header(reader *from, const fd_segment *segment, fd_scan_place *scan) {
    size_t at = segment->at + 5, count = (size_t)byte_at(&from->of, at - 1), band = at + 2 * count;
    int first = byte_at(&from->of, band), last = byte_at(&from->of, band + 1);
    int bits = byte_at(&from->of, band + 2), before = bits >> 4, symbols = 0;

    from->is_damaged |= count > MOST_IN_SCAN || band + 3 > from->of.size ||
                        band + 3 != segment->end;
    if (from->is_damaged)
        return;
    for (; at < band; at += 2) {
        uint8_t name = from->of.data[at], *lowest = from->lowest[name];
        from->components += !from->has[name];
        from->has[name] = 1;
        symbols |= from->symbols[from->of.data[at + 1] & 15];
        for (int k = first; from->is_progressive && k <= last && k < FD_COEFFICIENTS; k++)
            lowest[k] = before == 0 || lowest[k] <= before ? bits & 15 : NO_BIT;
    }
    scan->has_only_bits = from->is_progressive && first == 0 && before > 0;
    scan->zeros = fd_most_zeros(from->is_progressive, first, last, before == 0, symbols);
    if (from->header.sof == SOF3)
        scan->zeros = SIZE_MAX;
}

/* Read a scan, and return where its data ends. */
static size_t read_scan(reader *from, const fd_segment *segment, fd_stream *stream) {
    fd_scan_place *scan = &stream->scans[stream->count++];
    int64_t passed, interval = from->interval;
    int is_ls = from->header.sof == SOF55;

    *scan = (fd_scan_place){.marker = segment->at, .start = segment->end, .interval = interval};
    if (interval > 0 && !is_ls)
        scan->intervals = (units_of(from, segment->at) + interval - 1) / interval;
    scan->end = fd_end_of_scan(from->of.data, from->of.size, segment->end, scan->intervals, is_ls,
                               &passed);
    stream->in_order &= passed >= 0;
    read_scan_header(from, segment, scan);
    return scan->end;
}

int fd_read_scans(const uint8_t *data, size_t size, fd_stream *stream) {
    static const uint8_t BETWEEN[] = {DHT, 0xCC, 0xDB, 0xDC, DRI, 0xF8}; /* tables, DNL, LSE */
    reader from = {.of = {data, size}};
    fd_segment segment = {.end = 2};
    size_t behind = SIZE_MAX; /* the last segment, if it was one between scans */

    if (fd_probe(data, size, &from.header) != FD_OK || from.header.frame == 0)
        return FD_UNSUPPORTED;
    *stream = (fd_stream){.in_order = 1};
    stream->most = fd_most_scans(&(fd_limits){.scans = FD_SCANS},
                                 (int64_t)from.header.width * from.header.height, size);
    from.is_progressive = from.header.sof == SOF2 || from.header.sof == SOF10;
    memset(from.symbols, 1, sizeof from.symbols);
    memset(from.lowest, from.is_progressive ? NO_BIT : 0, sizeof from.lowest);
    while (stream->count <= FD_SCANS) {
        fd_next_segment(data, size, segment.end, &segment);
        stream->gap |= behind < segment.at &&
                       fd_has_zeros(data + behind, segment.at - behind, FD_MANY_ZEROS);
        behind = SIZE_MAX;
        if (segment.marker == SOS) {
            segment.end = read_scan(&from, &segment, stream);
            continue;
        }
        if (segment.marker == DHT)
            read_tables(&from, &segment);
        else if (segment.marker == DRI)
            from.interval = two_bytes_at(&from.of, segment.at + 4);
        if (stream->count == 0)
            continue;
        behind = segment.end;
        if (!memchr(BETWEEN, segment.marker, sizeof BETWEEN) && !is_passed_over(segment.marker)) {
            stream->ended = segment.marker == EOI;
            break;
        }
    }
    int is_known = from.components >= from.header.components, worst = 0;
    for (int name = 0; name < 256; name++)
        for (int k = 0; from.has[name] && k < FD_COEFFICIENTS; k++)
            worst = from.lowest[name][k] > worst ? from.lowest[name][k] : worst;
    stream->begun = is_known && worst < NO_BIT;
    stream->complete = is_known && worst == 0;
    return FD_OK;
}
