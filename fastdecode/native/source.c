/* source.c: libjpeg's data source, which can start in the middle of an image.
 *
 * A decoder can begin after any restart marker, since no state is carried across it. libjpeg has no
 * call for that, but it can be given a file with the same header, a smaller height, and data that
 * begins after that marker. */
#include "png_decoder.h"

#include <string.h>

#include <jerror.h>

static const uint8_t END[2] = {0xFF, 0xD9};

static boolean next_piece(j_decompress_ptr jpeg) {
    fd_source *source = (fd_source *)jpeg->src;
    if (source->next < source->count) {
        source->jpeg.next_input_byte = source->pieces[source->next].at;
        source->jpeg.bytes_in_buffer = source->pieces[source->next].size;
        source->next++;
    } else {
        /* Return an end marker as often as libjpeg asks for more data. */
        WARNMS(jpeg, JWRN_JPEG_EOF);
        source->jpeg.next_input_byte = END;
        source->jpeg.bytes_in_buffer = sizeof END;
    }
    return TRUE;
}

static void skip(j_decompress_ptr jpeg, long count) {
    struct jpeg_source_mgr *source = jpeg->src;
    while (count > 0 && (size_t)count > source->bytes_in_buffer) {
        fd_source *ours = (fd_source *)source;
        if (ours->next >= ours->count) { /* past the end: return the same marker again */
            next_piece(jpeg);
            return;
        }
        count -= (long)source->bytes_in_buffer;
        next_piece(jpeg);
    }
    if (count > 0) {
        source->next_input_byte += count;
        source->bytes_in_buffer -= (size_t)count;
    }
}

/* libjpeg found another restart marker than it expected. It has not seen those before the last
 * piece, so the marker may be right. */
static boolean resync(j_decompress_ptr jpeg, int counted) {
    const fd_source *source = (const fd_source *)jpeg->src;
    int expected = (counted + source->restarts_passed) & 7;
    if (jpeg->unread_marker == JPEG_RST0 + expected) {
        jpeg->unread_marker = 0;
        return TRUE;
    }
    return jpeg_resync_to_restart(jpeg, expected);
}

static void nothing(j_decompress_ptr jpeg) { (void)jpeg; }

static void start(fd_source *source, j_decompress_ptr jpeg) {
    source->jpeg.init_source = nothing;
    source->jpeg.fill_input_buffer = next_piece;
    source->jpeg.skip_input_data = skip;
    source->jpeg.resync_to_restart = resync;
    source->jpeg.term_source = nothing;
    source->jpeg.next_input_byte = NULL;
    source->jpeg.bytes_in_buffer = 0;
    source->next = 0;
    jpeg->src = &source->jpeg;
}

static void add_piece(fd_source *source, const uint8_t *at, size_t size) {
    if (size == 0)
        return; /* libjpeg always reads a byte */
    source->pieces[source->count].at = at;
    source->pieces[source->count].size = size;
    source->count++;
}

void fd_source_whole(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size) {
    source->count = 0;
    source->restarts_passed = 0;
    add_piece(source, data, size);
    start(source, jpeg);
}

static unsigned two_bytes(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

/* Walk the segments up to the first scan. Returns the offset of its data, and sets `frame` to the
 * offset of the frame header's contents (0: there was none). Returns 0 if there is no scan. */
static size_t walk(const uint8_t *data, size_t size, size_t *frame, fd_header *header) {
    *frame = 0;
    if (size < 4 || data[0] != 0xFF || data[1] != 0xD8)
        return 0;
    size_t at = 2;
    while (at + 4 <= size) {
        if (data[at] != 0xFF) { /* bytes outside segments: decoders skip to the next FF */
            at++;
            continue;
        }
        int marker = data[at + 1];
        if (marker == 0xFF) { /* fill */
            at++;
            continue;
        }
        if (marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += 2; /* these markers have no length */
            continue;
        }
        if (marker == 0xD9)
            return 0;
        size_t length = two_bytes(data + at + 2);
        /* A comment or application segment with a length below 2: libjpeg skips it. */
        if (length < 2 && (marker == 0xFE || (marker >= 0xE0 && marker <= 0xEF))) {
            at += 4;
            continue;
        }
        if (length < 2 || length > size - at - 2)
            return 0;
        const uint8_t *contents = data + at + 4;
        int frame_kind = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 &&
                         marker != 0xCC;
        if (frame_kind && length >= 8) {
            *frame = at + 4;
            header->sof = marker;
            header->bits = contents[0];
            header->height = (int32_t)two_bytes(contents + 1);
            header->width = (int32_t)two_bytes(contents + 3);
            header->components = contents[5];
        } else if (marker == 0xDD && length >= 4) {
            header->restart_interval = (int32_t)two_bytes(contents);
        } else if (marker == 0xE1) { /* EXIF or XMP */
            header->may_turn = 1;
        }
        at += 2 + length;
        if (marker == 0xDA)
            return at;
    }
    return 0;
}

int fd_probe(const uint8_t *data, size_t size, fd_header *header) {
    memset(header, 0, sizeof *header);
    if (fd_is_png(data, size))
        return fd_png_probe(data, size, header);
    if (size < 3 || data[0] != 0xFF || data[1] != 0xD8 || data[2] != 0xFF)
        return FD_UNSUPPORTED;
    size_t frame;
    size_t scan = walk(data, size, &frame, header);
    if (scan == 0 || frame == 0 || header->width == 0 || header->height == 0)
        return FD_DAMAGED;
    header->scan_offset = scan;
    header->ended = memcmp(data + size - 2, END, 2) == 0;
    return FD_OK;
}

int fd_has_end(const uint8_t *data, size_t size, size_t scan_offset) {
    if (size >= 2 && memcmp(data + size - 2, END, 2) == 0)
        return 1;
    const uint8_t *at = data + scan_offset, *end = data + size;
    while (at < end && (at = memchr(at, 0xFF, (size_t)(end - at))) != NULL) {
        if (end - at >= 2 && at[1] == 0xD9)
            return 1;
        at++;
    }
    return 0;
}

/* Return the offset of the data after restart marker `first` (counted from 0). Returns 0 unless all
 * markers of the scan up to `last`, or up to its end, are there in order. */
static size_t behind_restart(const uint8_t *data, size_t size, size_t scan, int64_t first,
                             int64_t last) {
    const uint8_t *at = data + scan, *end = data + size;
    size_t found = 0;
    int64_t count = 0;
    while (count <= last && (at = memchr(at, 0xFF, (size_t)(end - at))) != NULL) {
        if (end - at < 2)
            break;
        int marker = at[1];
        if (marker == 0x00) {
            at += 2;
        } else if (marker == 0xFF) {
            at += 1;
        } else if (marker == 0xD0 + (int)(count & 7)) {
            at += 2;
            if (count++ == first)
                found = (size_t)(at - data);
        } else {
            return marker == 0xD9 ? found : 0; /* the end, or a marker out of order */
        }
        if (at >= end)
            break;
    }
    return found;
}

int32_t fd_source_jump(fd_source *source, j_decompress_ptr jpeg, const uint8_t *data, size_t size,
                       int32_t row, int32_t last) {
    int64_t interval = jpeg->restart_interval;
    /* One scan with everything in it, sequential, with Huffman codes. */
    if (interval == 0 || jpeg->progressive_mode || jpeg->arith_code ||
        jpeg->comps_in_scan != jpeg->num_components || jpeg_has_multiple_scans(jpeg))
        return 0;
    /* In a scan of one component an MCU is one block, whatever its sampling factors. */
    int alone = jpeg->num_components == 1;
    int64_t unit_width = alone ? DCTSIZE : DCTSIZE * jpeg->max_h_samp_factor;
    int64_t unit_height = alone ? DCTSIZE : DCTSIZE * jpeg->max_v_samp_factor;
    int64_t step = DCTSIZE * jpeg->max_v_samp_factor /
                   unit_height; /* rows of MCUs in an iMCU row */
    int64_t across = (jpeg->image_width + unit_width - 1) / unit_width;
    int64_t begin = row / unit_height;
    begin -= begin % step;
    while (begin > 0 && begin * across % interval != 0)
        begin -= step;
    if (begin <= 0)
        return 0;
    int64_t needed = (last / unit_height + 1) * across / interval;
    fd_header header;
    size_t frame;
    size_t scan = walk(data, size, &frame, &header);
    if (scan == 0 || frame == 0)
        return 0;
    int64_t first = begin * across / interval - 1;
    size_t rest = behind_restart(data, size, scan, first, needed);
    if (rest == 0 || rest >= size)
        return 0;
    int32_t skipped = (int32_t)(begin * unit_height);
    uint32_t left = jpeg->image_height - (uint32_t)skipped;
    source->height[0] = (uint8_t)(left >> 8);
    source->height[1] = (uint8_t)left;
    source->count = 0;
    add_piece(source, data, frame + 1);
    add_piece(source, source->height, 2);
    add_piece(source, data + frame + 3, scan - frame - 3);
    add_piece(source, data + rest, size - rest);
    source->restarts_passed = (int)((first + 1) & 7);
    jpeg_abort_decompress(jpeg);
    start(source, jpeg);
    return skipped;
}
