/* scan.c: reads the header of a baseline JPEG, and the data of its scan.
 *
 * A file that libjpeg would refuse, correct, guess about or warn of is rejected here, and libjpeg
 * decodes it. The rules are those of jdmarker.c, jdinput.c and jdapimin.c, each at its strictest. */
#include "baseline.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define REST_16 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64
const uint8_t fd_natural_order[256] = {
    0,       1,       8,       16,      9,       2,       3,       10,      17,      24,
    32,      25,      18,      11,      4,       5,       12,      19,      26,      33,
    40,      48,      41,      34,      27,      20,      13,      6,       7,       14,
    21,      28,      35,      42,      49,      56,      57,      50,      43,      36,
    29,      22,      15,      23,      30,      37,      44,      51,      58,      59,
    52,      45,      38,      31,      39,      46,      53,      60,      61,      54,
    47,      55,      62,      63,      REST_16, REST_16, REST_16, REST_16, REST_16, REST_16,
    REST_16, REST_16, REST_16, REST_16, REST_16, REST_16};

/* The rest of a segment, which bounds every read. */
typedef struct {
    const uint8_t *at;
    size_t left;
} segment;

static int byte_of(segment *from) {
    if (from->left == 0)
        return -1;
    from->left--;
    return *from->at++;
}

static int two_bytes_of(segment *from) {
    int high = byte_of(from), low = byte_of(from);
    return low < 0 ? -1 : high << 8 | low;
}

/* ---- segments ---- */

static int read_quantisers(fd_frame *frame, uint32_t *defined, segment *from) {
    while (from->left > 0) {
        int kind = byte_of(from);
        if (kind > 3 || from->left < FD_COEFFICIENTS) /* 16-bit values, or no such table */
            return 0;
        for (int k = 0; k < FD_COEFFICIENTS; k++)
            frame->quantisers[kind][fd_natural_order[k]] = (uint16_t)byte_of(from);
        *defined |= 1u << kind;
    }
    return 1;
}

static int read_codes(fd_frame *frame, segment *from) {
    while (from->left > 0) {
        int kind = byte_of(from);
        size_t total = 0;
        if ((kind & 0xEC) != 0 || from->left < 16)
            return 0;
        fd_codes *codes = &frame->codes[kind >> 4][kind & 3];
        for (int length = 1; length <= 16; length++)
            total += codes->counts[length] = (uint8_t)byte_of(from);
        if (total > sizeof codes->symbols || from->left < total)
            return 0;
        memcpy(codes->symbols, from->at, total);
        from->at += total;
        from->left -= total;
        codes->is_defined = 1;
    }
    return 1;
}

static int read_frame(fd_frame *frame, segment *from) {
    if (frame->components != 0 || byte_of(from) != 8)
        return 0;
    frame->height = two_bytes_of(from);
    frame->width = two_bytes_of(from);
    frame->components = byte_of(from);
    if (frame->width < 1 || frame->width > FD_MOST_SIDE || frame->height < 1 ||
        frame->height > FD_MOST_SIDE || (frame->components != 1 && frame->components != 3) ||
        from->left != 3 * (size_t)frame->components)
        return 0;
    for (int c = 0; c < frame->components; c++) {
        fd_component *component = &frame->component[c];
        component->id = byte_of(from);
        int factors = byte_of(from);
        component->across = factors >> 4;
        component->down = factors & 15;
        component->quantiser = byte_of(from);
        if (component->quantiser > 3)
            return 0;
        for (int other = 0; other < c; other++)
            if (frame->component[other].id == component->id)
                return 0;
    }
    return 1;
}

static int read_scan_header(fd_frame *frame, segment *from) {
    if (frame->components == 0 || byte_of(from) != frame->components ||
        from->left != 2 * (size_t)frame->components + 3)
        return 0;
    for (int c = 0; c < frame->components; c++) {
        fd_component *component = &frame->component[c];
        if (byte_of(from) != component->id)
            return 0;
        int tables = byte_of(from);
        component->dc = tables >> 4;
        component->ac = tables & 15;
        if (component->dc > 3 || component->ac > 3 || !frame->codes[0][component->dc].is_defined ||
            !frame->codes[1][component->ac].is_defined)
            return 0;
    }
    return byte_of(from) == 0 && byte_of(from) == 63 && byte_of(from) == 0;
}

/* The colours of the components, from the first marker that declares them. */
typedef struct {
    int is_jfif, is_adobe;
} marks;

static int read_application(marks *seen, int marker, const segment *from) {
    const uint8_t *at = from->at;
    if (marker == 0xE0 && from->left >= 14 && memcmp(at, "JFIF", 5) == 0) {
        seen->is_jfif = 1;
        return at[5] == 1; /* libjpeg warns of other versions */
    }
    if (marker == 0xEE && from->left >= 12 && memcmp(at, "Adobe", 5) == 0) {
        seen->is_adobe = 1;
        return at[11] == 1; /* YCbCr; 0 is RGB */
    }
    return 1;
}

static int is_rgb(const fd_frame *frame, const marks *seen) {
    const fd_component *component = frame->component;
    return !seen->is_jfif && !seen->is_adobe && component[0].id == 'R' && component[1].id == 'G' &&
           component[2].id == 'B';
}

/* Lay out the MCUs: grey, or luma of 1x1, 2x1, 1x2 or 2x2 blocks with chroma of 1x1. */
static int lay_out(fd_frame *frame) {
    fd_component *component = frame->component;
    frame->rows_at_once = 1;
    if (frame->components == 1) {
        frame->rows_at_once = component[0].down;
        if (component[0].across != component[0].down || component[0].across < 1 ||
            component[0].across > 2)
            return 0;
        component[0].across = component[0].down = 1;
    }
    if (component[0].across < 1 || component[0].across > 2 || component[0].down < 1 ||
        component[0].down > 2)
        return 0;
    for (int c = 1; c < frame->components; c++)
        if (component[c].across != 1 || component[c].down != 1)
            return 0;
    frame->across = component[0].across;
    frame->down = component[0].down;
    frame->mcus_across = (frame->width + FD_SIDE * frame->across - 1) / (FD_SIDE * frame->across);
    frame->mcus_down = (frame->height + FD_SIDE * frame->down - 1) / (FD_SIDE * frame->down);
    frame->blocks = frame->across * frame->down + frame->components - 1;
    return 1;
}

int fd_frame_read(fd_frame *frame, const uint8_t *data, size_t size) {
    marks seen = {0, 0};
    uint32_t quantisers = 0;
    size_t at = 2;
    frame->components = 0;
    frame->interval = 0;
    for (int table = 0; table < 4; table++)
        frame->codes[0][table].is_defined = frame->codes[1][table].is_defined = 0;
    if (size < 4 || data[0] != 0xFF || data[1] != 0xD8)
        return 0;
    for (;;) {
        if (size - at < 4 || data[at] != 0xFF)
            return 0;
        int marker = data[at + 1];
        size_t length = (size_t)data[at + 2] << 8 | data[at + 3];
        if (marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        if (length < 2 || length > size - at - 2)
            return 0;
        segment contents = {data + at + 4, length - 2};
        int taken;
        if (marker == 0xDB)
            taken = read_quantisers(frame, &quantisers, &contents);
        else if (marker == 0xC4)
            taken = read_codes(frame, &contents);
        else if (marker == 0xC0 || marker == 0xC1)
            taken = read_frame(frame, &contents);
        else if (marker == 0xDD)
            taken = contents.left == 2 && (frame->interval = two_bytes_of(&contents)) >= 0;
        else if (marker == 0xDA)
            taken = read_scan_header(frame, &contents);
        else if ((marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE)
            taken = read_application(&seen, marker, &contents);
        else
            taken = 0;
        if (!taken)
            return 0;
        at += 2 + length;
        if (marker == 0xDA)
            break;
    }
    frame->scan = at;
    for (int c = 0; c < frame->components; c++)
        if ((quantisers >> frame->component[c].quantiser & 1u) == 0)
            return 0;
    return !(frame->components == 3 && is_rgb(frame, &seen)) && lay_out(frame);
}

/* ---- the scan ---- */

enum {
    STEP = 16, /* bytes that are searched together */
    /* More than one MCU can read: a code has up to 16 bits, and its value up to 11. */
    PADDING = FD_MOST_BLOCKS * FD_COEFFICIENTS * (16 + FD_MOST_DC_BITS) / 8 + 64
};

/* Copy up to the first FF, or all `count` bytes, and return how many. Writes whole steps. */
static size_t copy_to_ff(uint8_t *to, const uint8_t *from, size_t count) {
    size_t done = 0;
#ifdef __SSE2__
    for (; count - done >= STEP; done += STEP) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + done));
        _mm_storeu_si128((__m128i *)(void *)(to + done), bytes);
        int found = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)0xFF)));
        if (found)
            return done + (size_t)__builtin_ctz((unsigned)found);
    }
#else
    for (; count - done >= STEP; done += STEP) {
        uint64_t half[2], found = 0;
        memcpy(half, from + done, STEP);
        memcpy(to + done, half, STEP);
        for (int i = 0; i < 2; i++)
            found |= (~half[i] - UINT64_C(0x0101010101010101)) & half[i];
        if (found & UINT64_C(0x8080808080808080))
            break;
    }
#endif
    for (; done < count && from[done] != 0xFF; done++)
        to[done] = from[done];
    return done;
}

int fd_scan_read(fd_scan *scan, const fd_frame *frame, const uint8_t *data, size_t size) {
    size_t length = size - frame->scan;
    int64_t mcus = (int64_t)frame->mcus_across * frame->mcus_down;
    int64_t expected = frame->interval ? (mcus + frame->interval - 1) / frame->interval : 1;
    if (expected > (int64_t)(length / 2 + 1)) /* all intervals but one end with a 2-byte marker */
        return 0;
    scan->bytes = fd_room_for(&scan->bytes_room, length + STEP + PADDING);
    scan->ends = (size_t *)(void *)fd_room_for(&scan->ends_room, (size_t)expected * sizeof(size_t));
    if (scan->bytes == NULL || scan->ends == NULL)
        return 0;
    const uint8_t *from = data + frame->scan, *end = data + size;
    uint8_t *to = scan->bytes;
    int64_t passed = 0; /* restart markers so far */
    for (;;) {
        size_t copied = copy_to_ff(to, from, (size_t)(end - from));
        from += copied;
        to += copied;
        if (end - from < 2)
            return 0;
        int marker = from[1];
        from += 2;
        if (marker == 0) {
            *to++ = 0xFF;
        } else if (marker == 0xD0 + (int)(passed & 7) && passed + 1 < expected) {
            scan->ends[passed++] = (size_t)(to - scan->bytes);
        } else if (marker == 0xD9 && passed + 1 == expected) {
            break;
        } else {
            return 0;
        }
    }
    scan->ends[passed] = (size_t)(to - scan->bytes);
    scan->count = (size_t)expected;
    memset(to, 0, PADDING);
    return 1;
}
