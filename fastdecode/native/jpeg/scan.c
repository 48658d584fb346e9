/* scan.c: reads the header of a JPEG, and the data of its scans.
 *
 * A file that libjpeg would refuse, correct, guess about or warn of is rejected here, and left to
 * another library. The rules are those of jdmarker.c, jdinput.c and jdapimin.c, each at its strictest. */
#include "baseline.h"

#include <string.h>

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
    frame->is_progressive = 0;
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
        else if (marker == 0xC0 || marker == 0xC1 || marker == 0xC2) {
            frame->is_progressive = marker == 0xC2;
            taken = read_frame(frame, &contents);
        } else if (marker == 0xDD)
            taken = contents.left == 2 && (frame->interval = two_bytes_of(&contents)) >= 0;
        else if (marker == 0xDA && frame->is_progressive)
            break; /* fd_script_read goes on from here */
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

/* ---- the data of a scan ---- */

enum {
    STEP = 16, /* bytes that are searched together */
    /* More than one MCU can read in any scan: a code has up to 16 bits, and its value up to 11. */
    PADDING = FD_MOST_BLOCKS * FD_COEFFICIENTS * (16 + FD_MOST_DC_BITS) / 8 + 64
};

/* A vector for every processor: the compiler makes it of what there is. */
typedef uint8_t step __attribute__((vector_size(STEP)));

/* Copy up to the first FF, or all `count` bytes, and return how many. Writes whole steps. */
static size_t copy_to_ff(uint8_t *to, const uint8_t *from, size_t count) {
    size_t done = 0;
    for (; count - done >= STEP; done += STEP) {
        step bytes;
        uint64_t found[2];
        memcpy(&bytes, from + done, STEP);
        memcpy(to + done, &bytes, STEP);
        bytes = (step)(bytes == 0xFF);
        memcpy(found, &bytes, STEP);
        if ((found[0] | found[1]) == 0)
            continue;
        if (!FIRST_IS_LOW)
            break;
        int bit = found[0] ? __builtin_ctzll(found[0]) : 64 + __builtin_ctzll(found[1]);
        return done + (size_t)bit / 8;
    }
    for (; done < count && from[done] != 0xFF; done++)
        to[done] = from[done];
    return done;
}

/* Make room for the data of `scans` scans, `bytes` in all, with so many restart intervals. */
static int make_room(fd_scan *scan, size_t scans, size_t bytes, size_t intervals) {
    scan->size = scan->count = 0;
    scan->bytes = fd_room_for(&scan->bytes_room, bytes + scans * ((size_t)STEP + PADDING));
    scan->ends = (size_t *)fd_room_for(&scan->ends_room, intervals * sizeof(size_t));
    return scan->bytes != NULL && scan->ends != NULL;
}

/* Append the data of a scan. Returns the marker behind it; or NULL if there is none, or if the restart
 * markers are not in order, or not those of so many intervals. */
static const uint8_t *append(fd_scan *scan, const uint8_t *from, const uint8_t *end,
                             int64_t intervals) {
    uint8_t *to = scan->bytes + scan->size;
    int64_t passed = 0; /* restart markers so far */
    for (;;) {
        size_t copied = copy_to_ff(to, from, (size_t)(end - from));
        from += copied;
        to += copied;
        if (end - from < 2)
            return NULL;
        int marker = from[1];
        if (marker == 0)
            *to++ = 0xFF;
        else if (marker == 0xD0 + (int)(passed & 7) && passed + 1 < intervals)
            scan->ends[scan->count + (size_t)passed++] = (size_t)(to - scan->bytes);
        else
            break;
        from += 2;
    }
    if (passed + 1 != intervals)
        return NULL;
    scan->ends[scan->count + (size_t)passed] = (size_t)(to - scan->bytes);
    scan->count += (size_t)intervals;
    memset(to, 0, PADDING);
    scan->size = (size_t)(to - scan->bytes) + PADDING;
    return from;
}

static int64_t intervals_of(int64_t mcus, int32_t interval) {
    return interval ? (mcus + interval - 1) / interval : 1;
}

int fd_scan_read(fd_scan *scan, const fd_frame *frame, const uint8_t *data, size_t size) {
    size_t length = size - frame->scan;
    int64_t mcus = (int64_t)frame->mcus_across * frame->mcus_down;
    int64_t intervals = intervals_of(mcus, frame->interval);
    if (intervals > (int64_t)(length / 2 + 1)) /* all but one end with a 2-byte marker */
        return 0;
    if (!make_room(scan, 1, length, (size_t)intervals))
        return 0;
    const uint8_t *marker = append(scan, data + frame->scan, data + size, intervals);
    return marker != NULL && marker[1] == 0xD9;
}

/* Whether the zero at `at` is one of `many`. */
static int is_in_run(const uint8_t *data, size_t size, size_t at, size_t many) {
    size_t first = at, end = at + 1;
    while (first > 0 && data[first - 1] == 0)
        first--;
    while (end < size && end - first < many && data[end] == 0)
        end++;
    return end - first >= many;
}

int fd_has_zeros(const uint8_t *data, size_t size, size_t many) {
    size_t at = many - 1; /* of `many` bytes in a row, one is looked at; here eight together */
    for (; at + 7 * many < size; at += 8 * many) {
        const uint8_t *some = data + at;
        if (some[0] && some[many] && some[2 * many] && some[3 * many] && some[4 * many] &&
            some[5 * many] && some[6 * many] && some[7 * many])
            continue;
        for (size_t i = 0; i < 8; i++)
            if (some[i * many] == 0 && is_in_run(data, size, at + i * many, many))
                return 1;
    }
    for (; at < size; at += many)
        if (data[at] == 0 && is_in_run(data, size, at, many))
            return 1;
    return 0;
}

int fd_may_be_zeros(const fd_frame *frame) {
    for (int c = 0; c < frame->components; c++)
        if (frame->codes[1][frame->component[c].ac].symbols[0] != 0)
            return 0;
    return 1;
}

/* ---- the scans of a progressive file ---- */

int32_t fd_blocks_across(const fd_frame *frame, int c) {
    int32_t unit = FD_SIDE * frame->across;
    return (frame->width * frame->component[c].across + unit - 1) / unit;
}

int32_t fd_blocks_down(const fd_frame *frame, int c) {
    int32_t unit = FD_SIDE * frame->down;
    return (frame->height * frame->component[c].down + unit - 1) / unit;
}

/* The lowest bit that the scans so far have of each coefficient; NO_BIT: none. */
typedef int8_t progress[3][FD_COEFFICIENTS];

enum {
    NO_BIT = -1,
    MOST_LOW = 6 /* the largest `low`; so refined values have at most FD_MOST_SMALL_BITS */
};

/* Keep the tables of a scan that is needed. Returns 0 if one of them is not defined. */
static int keep_codes(fd_pass *pass, const fd_frame *frame, const int tables[3]) {
    if (pass->first == 0 && !pass->is_first)
        return 1; /* single bits, without codes */
    for (int i = 0; i < pass->components; i++) {
        int kind = pass->first > 0;
        const fd_codes *codes = &frame->codes[kind][kind ? tables[i] & 15 : tables[i] >> 4];
        if (!codes->is_defined)
            return 0;
        pass->codes[i] = *codes;
    }
    return 1;
}

/* Read a scan's header. Returns 0 unless its bits are the next ones of its coefficients. */
static int read_pass(fd_pass *pass, const fd_frame *frame, progress lowest, segment *from) {
    int tables[3];
    pass->components = byte_of(from);
    if (pass->components < 1 || pass->components > frame->components ||
        from->left != 2 * (size_t)pass->components + 3)
        return 0;
    for (int i = 0, c = 0; i < pass->components; i++, c++) {
        int id = byte_of(from);
        while (c < frame->components && frame->component[c].id != id)
            c++;
        if (c == frame->components)
            return 0;
        pass->component[i] = c;
        tables[i] = byte_of(from);
        if ((tables[i] & 0xCC) != 0)
            return 0;
    }
    pass->first = byte_of(from);
    pass->last = byte_of(from);
    int bits = byte_of(from), before = bits >> 4;
    pass->low = bits & 15;
    pass->is_first = before == 0;
    pass->interval = frame->interval;
    int is_band = pass->first >= 1 && pass->first <= pass->last && pass->last < FD_COEFFICIENTS &&
                  pass->components == 1;
    if (!is_band && (pass->first != 0 || pass->last != 0))
        return 0;
    if (pass->low > MOST_LOW || (!pass->is_first && before != pass->low + 1))
        return 0;
    for (int i = 0; i < pass->components; i++) {
        int8_t *of = lowest[pass->component[i]];
        if (is_band && of[0] == NO_BIT) /* libjpeg warns */
            return 0;
        for (int k = pass->first; k <= pass->last; k++) {
            if (of[k] != (pass->is_first ? NO_BIT : before))
                return 0;
            of[k] = (int8_t)pass->low;
        }
    }
    return keep_codes(pass, frame, tables);
}

static int is_needed(const fd_pass *pass, const fd_need needs[3]) {
    for (int i = 0; i < pass->components; i++)
        if (needs[pass->component[i]] >= (pass->first == 0 ? FD_DC_SCANS : FD_ALL_SCANS))
            return 1;
    return 0;
}

/* Find where the data of a scan ends. Returns 0 if no marker follows, or if there are not as many
 * restart markers, in order, as the scan must have. */
static int find_end(fd_pass *pass, const fd_frame *frame, const uint8_t *data, size_t size) {
    int c = pass->component[0];
    int64_t mcus = pass->components > 1
                       ? (int64_t)frame->mcus_across * frame->mcus_down
                       : (int64_t)fd_blocks_across(frame, c) * fd_blocks_down(frame, c);
    int64_t intervals = intervals_of(mcus, pass->interval), passed;
    pass->size = fd_end_of_scan(data, size, pass->at, intervals, 0, &passed) - pass->at;
    pass->intervals = (size_t)intervals;
    return passed + 1 == intervals && pass->at + pass->size < size;
}

int fd_script_read(fd_script *script, fd_frame *frame, const fd_need needs[3], int32_t most,
                   const uint8_t *data, size_t size) {
    progress lowest;
    size_t at = frame->scan;
    most = most == 0 || most > FD_MOST_SCANS ? FD_MOST_SCANS : most;
    script->count = 0;
    memset(lowest, NO_BIT, sizeof lowest);
    for (int32_t scans = 0;;) {
        if (size - at < 2 || data[at] != 0xFF)
            return 0;
        int marker = data[at + 1];
        if (marker == 0xD9)
            break;
        if (marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        size_t length = size - at < 4 ? 0 : (size_t)data[at + 2] << 8 | data[at + 3];
        if (length < 2 || length > size - at - 2)
            return 0;
        segment contents = {data + at + 4, length - 2};
        at += 2 + length;
        if (marker == 0xC4) {
            if (!read_codes(frame, &contents))
                return 0;
        } else if (marker == 0xDD) {
            if (contents.left != 2)
                return 0;
            frame->interval = two_bytes_of(&contents);
        } else if (marker == 0xDA) {
            fd_pass *pass = &script->passes[script->count];
            if (scans++ == most || !read_pass(pass, frame, lowest, &contents))
                return 0;
            pass->at = at;
            if (!find_end(pass, frame, data, size))
                return 0;
            at += pass->size;
            script->count += is_needed(pass, needs);
        } else if (marker != 0xFE) {
            return 0;
        }
    }
    for (int c = 0; c < frame->components; c++)
        for (int k = 0; k < FD_COEFFICIENTS; k++)
            if (lowest[c][k] != 0)
                return 0;
    return 1;
}

int fd_script_copy(fd_scan *scan, fd_script *script, const uint8_t *data, size_t size) {
    size_t bytes = 0, intervals = 0;
    for (int i = 0; i < script->count; i++) {
        bytes += script->passes[i].size;
        intervals += script->passes[i].intervals;
    }
    if (!make_room(scan, (size_t)script->count, bytes, intervals))
        return 0;
    for (int i = 0; i < script->count; i++) {
        fd_pass *pass = &script->passes[i];
        pass->begin = scan->size;
        pass->first_end = scan->count;
        if (append(scan, data + pass->at, data + size, (int64_t)pass->intervals) !=
            data + pass->at + pass->size)
            return 0;
    }
    return 1;
}
