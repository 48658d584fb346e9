/* header.c: what a file says of itself before its pixels. */
#include "png_decoder.h"

#include <string.h>

static const uint8_t END[2] = {0xFF, 0xD9};

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
