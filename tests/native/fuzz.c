/* fuzz.c: whatever bytes come, the core stays inside its memory and keeps its promises.
 *
 * One input is HEAD bytes that choose an operation and its numbers, and behind them a JPEG (for
 * fd_resize_rgb: pixels). For libFuzzer; corpus.c gives it whole files instead. What is checked,
 * but for what the sanitizers see by themselves:
 *
 *   - only the pixels asked for are written, not what lies around and between the rows;
 *   - a decoder that has seen other images gives what a new one gives;
 *   - a region is the slice of the whole;
 *   - decoding and resizing at once gives what one after the other gives;
 *   - every instruction set gives the same, and no value that the pixels do not span;
 *   - what the core decodes, libjpeg-turbo decodes to the same, without a warning, but for parts of a
 *     progressive file that the core has left out;
 *   - what fd_add_restart_markers makes decodes without a warning, to the same pixels, in every region;
 *   - what fd_plan_sample plans can be carried out (that is in fuzz_crop.c).
 *
 * seeds.py makes inputs to begin with, check.sh builds and runs it. */
#include "fuzz.h"

#include "judge.h"
#include "png_decoder.h"

#include "must.h"
#include "sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(WITH_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum { MARGIN = 64, UNTOUCHED = 0xA5, MOST_SIDE = 300, LARGEST_SIDE = 65500 };

fd_limits fuzz_limits = {.pixels = 4000000, .scans = 100};

/* Bits of the second byte. */
enum { STRICT = 1, UPWARDS = 2, FLIP = 4, FIRST = 8, WILD = 32, RAW = 64, HUGE = 128 };

/* What the head of an input says. The words of four are left, top, right, bottom or x, y, width,
 * height. */
typedef struct {
    int operation, flags, reduce, layout, dtype, thorough, renew;
    size_t gap;
    int32_t region[4], box[4], canvas[2], part[4];
    double raw[4];
} numbers;

/* A JPEG, and what fd_probe says of it. */
typedef struct {
    const uint8_t *data;
    size_t size;
    fd_header header;
    int status;
} jpeg;

/* Memory for rows, with what must not be touched around and between them. */
typedef struct {
    uint8_t *memory, *first; /* all of it; the row that is named first */
    size_t bytes, rows, length, gap;
    ptrdiff_t stride;
} image;

static fd_decoder *old; /* has seen everything before */
static fd_resampler *resampler;

/* ---- the numbers ---- */

static int32_t word(const uint8_t **at) {
    int32_t value = (int32_t)((*at)[0] | (*at)[1] << 8);
    *at += 2;
    return value;
}

static numbers read_numbers(const uint8_t *at) {
    numbers read;
    memcpy(read.raw, at + 6, sizeof read.raw);
    read.operation = at[0] % OPERATIONS;
    read.flags = at[1];
    read.reduce = 1 << at[2] % 4;
    read.layout = FD_L + at[3] % 3;
    read.dtype = FD_UINT8 + at[4] % 2;
    read.thorough = at[4] / 2 % 2;
    read.renew = at[5] & 1;
    read.gap = at[5] / 2 % 80;
    at += 6;
    for (int i = 0; i < 4; i++)
        read.region[i] = word(&at);
    for (int i = 0; i < 4; i++)
        read.box[i] = (int16_t)word(&at);
    for (int i = 0; i < 2; i++)
        read.canvas[i] = word(&at);
    for (int i = 0; i < 4; i++)
        read.part[i] = word(&at);
    return read;
}

static int32_t reduced(int32_t side, int32_t reduce) { return (side + reduce - 1) / reduce; }

static int32_t at_most(int32_t value, int32_t limit) { return value < limit ? value : limit; }

/* Make `box` lie in `width` by `height`, and hold something. */
static void put_inside(int32_t box[4], int32_t width, int32_t height) {
    box[0] %= width;
    box[1] %= height;
    box[2] = box[0] + 1 + box[2] % (width - box[0]);
    box[3] = box[1] + 1 + box[3] % (height - box[1]);
}

/* A resize of an image of `width` by `height`. Without WILD it can be done. */
static fd_resize resize_of(const numbers *from, int32_t width, int32_t height) {
    int32_t in[4], canvas[2];
    int32_t part[4];
    double box[4];
    memcpy(in, from->region, sizeof in);
    memcpy(part, from->part, sizeof part);
    put_inside(in, width, height);
    for (int i = 0; i < 2; i++) {
        /* Mostly small, and with HUGE as large as can be; of these only a part is made. */
        canvas[i] = 1 + from->canvas[i] % (from->flags & HUGE ? LARGEST_SIDE : MOST_SIDE);
        part[i] %= canvas[i];
        part[2 + i] = 1 + at_most(part[2 + i] % (canvas[i] - part[i]), MOST_SIDE - 1);
    }
    for (int i = 0; i < 2; i++) {
        /* The box lies over what may be read, by parts of 1/256 of it, and may reach out of it. */
        double side = in[2 + i] - in[i];
        double low = from->box[i] / 256.0, high = from->box[2 + i] / 256.0;
        box[i] = in[i] + side * (low < 1 ? low : 1 / (1 + low));
        box[2 + i] = in[2 + i] + side * (high > -1 ? high : -1 / (1 - high));
        box[i] = box[i] > -LARGEST_SIDE ? box[i] : -LARGEST_SIDE;
        box[2 + i] = box[2 + i] < 2 * LARGEST_SIDE ? box[2 + i] : 2 * LARGEST_SIDE;
        if (box[2 + i] <= box[i] || box[2 + i] <= in[i] || box[i] >= in[2 + i]) {
            box[i] = in[i];
            box[2 + i] = in[2 + i];
        }
    }
    if (from->flags & WILD) {
        memcpy(in, from->region, sizeof in);
        memcpy(part, from->part, sizeof part);
        part[2] = at_most(part[2], MOST_SIDE);
        part[3] = at_most(part[3], MOST_SIDE);
    }
    if (from->flags & RAW)
        memcpy(box, from->raw, sizeof box);
    return (fd_resize){
        .left = box[0],
        .top = box[1],
        .right = box[2],
        .bottom = box[3],
        .in_left = in[0],
        .in_top = in[1],
        .in_right = in[2],
        .in_bottom = in[3],
        .canvas_width = canvas[0],
        .canvas_height = canvas[1],
        .x = part[0],
        .y = part[1],
        .width = part[2],
        .height = part[3],
        .flip = (from->flags & FLIP) != 0,
    };
}

static fd_pixels pixels_of(const numbers *from) {
    return (fd_pixels){.dtype = from->dtype,
                       .channels = 3,
                       .channels_first = (from->flags & FIRST) != 0,
                       .scale = {1 / 255.0F, 0.017F, 100},
                       .bias = {0, -2.1F, 1e-6F}};
}

/* ---- images ---- */

static uint8_t *row_of(const image *of, size_t y) { return of->first + (ptrdiff_t)y * of->stride; }

/* Everything around and between the rows: to be left alone by sanitized code, and by libjpeg. */
static void guard(const image *of, int close) {
    size_t step = of->length + of->gap;
    uint8_t *from = of->memory;
    for (size_t y = 0; y <= of->rows; y++) {
        uint8_t *to = of->memory + (y < of->rows ? MARGIN + y * step : of->bytes);
        if (close) {
            memset(from, UNTOUCHED, (size_t)(to - from));
            ASAN_POISON_MEMORY_REGION(from, (size_t)(to - from));
        } else {
            ASAN_UNPOISON_MEMORY_REGION(from, (size_t)(to - from));
            for (; from < to; from++)
                if (*from != UNTOUCHED)
                    fail("written beside the pixels");
        }
        from = to + of->length;
    }
}

static image make(size_t length, size_t rows, size_t gap, int upwards) {
    image made = {.rows = rows, .length = length, .gap = gap};
    made.bytes = 2 * MARGIN + rows * (length + gap);
    made.memory = must(malloc(made.bytes));
    made.first = made.memory + MARGIN;
    made.stride = (ptrdiff_t)(length + gap);
    if (upwards) {
        made.first += (ptrdiff_t)(rows - 1) * made.stride;
        made.stride = -made.stride;
    }
    guard(&made, 1);
    return made;
}

static void drop(image *gone) {
    guard(gone, 0);
    free(gone->memory);
}

static size_t channels_of(int layout) { return layout == FD_L ? 1 : layout == FD_RGB ? 3 : 4; }

/* A result of a resize: rows without gaps. */
static image make_result(const fd_resize *resize, int dtype) {
    size_t bytes = dtype == FD_UINT8 ? 1 : 4;
    size_t rows = resize->height > 0 ? (size_t)resize->height : 0;
    return make((resize->width > 0 ? (size_t)resize->width : 0) * 3 * bytes, rows, 0, 0);
}

static void compare(const image *one, const image *other, size_t left, size_t top,
                    const char *words) {
    for (size_t y = 0; y < one->rows; y++)
        if (memcmp(row_of(one, y), row_of(other, top + y) + left, one->length) != 0)
            fail(words);
}

static fd_request request_of(const numbers *from) {
    return (fd_request){.reduce = from->reduce,
                        .layout = from->layout,
                        .thorough = from->thorough,
                        .limits = fuzz_limits};
}

/* libjpeg complains of what the core has decoded: of a part that the core did not need. For a region
 * the core stops behind its last block, and libjpeg at the end of a row. */
static void must_be_left_out(const jpeg *from, const fd_request *asked) {
    fd_request request = *asked;
    if ((request.right != 0 || request.bottom != 0) &&
        (request.right - request.left < reduced(from->header.width, request.reduce) ||
         request.bottom - request.top < reduced(from->header.height, request.reduce)))
        return;
    fd_decoder *fresh = must(fd_decoder_create());
    size_t length = 4 * (size_t)reduced(from->header.width, request.reduce);
    image other = make(length, (size_t)reduced(from->header.height, request.reduce), 0, 0);
    if (request.thorough)
        fail("decoded what libjpeg complains of");
    request.thorough = 1;
    if (fd_decode(fresh, from->data, from->size, &request, other.first, other.stride) == FD_OK)
        fail("decoded what libjpeg complains of, and left nothing out");
    drop(&other);
    fd_decoder_destroy(fresh);
}

/* What the core has decoded, by libjpeg-turbo. */
static void check_own(const jpeg *from, const fd_request *asked, const image *made) {
    image other = make(made->length, made->rows, 0, 0);
    if (judge(from->data, from->size, asked, other.first, other.stride))
        compare(made, &other, 0, 0, "decoded to other pixels than libjpeg's");
    else
        must_be_left_out(from, asked);
    drop(&other);
}

/* Decode into an image that is made for it. Where the header is not known, that is one pixel. */
static int decode(fd_decoder *decoder, const jpeg *from, const fd_request *wanted, size_t gap,
                  int upwards, image *into) {
    fd_request asked = *wanted;
    int32_t width = asked.right - asked.left, height = asked.bottom - asked.top;
    if (asked.right == 0 && asked.bottom == 0) {
        width = reduced(from->header.width, asked.reduce);
        height = reduced(from->header.height, asked.reduce);
    }
    if (from->status != FD_OK) {
        width = height = 1;
        asked.right = asked.left + 1;
        asked.bottom = asked.top + 1;
    }
    /* More than may be decoded is not made room for: it has to be refused. */
    int64_t count = (int64_t)width * height;
    int room = width > 0 && height > 0 &&
               count <= (fuzz_limits.pixels ? fuzz_limits.pixels : count);
    *into = make(room ? (size_t)width * channels_of(asked.layout) : 1, room ? (size_t)height : 1,
                 gap, upwards);
    int status = fd_decode(decoder, from->data, from->size, &asked, into->first, into->stride);
    guard(into, 0);
    if (status == FD_OK && !room)
        fail("decoded what cannot be decoded");
    if (status != FD_OK && fd_decoder_message(decoder)[0] == '\0')
        fail("a failure without words");
    if (status == FD_OK)
        check_own(from, &asked, into);
    return status;
}

/* ---- the operations ---- */

/* The whole, into rows of any kind, by the old decoder and by a new one. */
static void try_whole(const numbers *from, const jpeg *file) {
    image one, other;
    fd_request request = request_of(from);
    fd_decoder *fresh = must(fd_decoder_create());
    if (from->flags & WILD) { /* a failure half-way, which the next call must not feel */
        fd_request narrow = request;
        narrow.limits.scans = 1;
        decode(old, file, &narrow, from->gap, 0, &one);
        drop(&one);
    }
    int status = decode(old, file, &request, from->gap, from->flags & UPWARDS, &one);
    if (decode(fresh, file, &request, 0, 0, &other) != status)
        fail("an old decoder gives another status than a new one");
    if (status != FD_OK && strcmp(fd_decoder_message(fresh), fd_decoder_message(old)) != 0)
        fail("an old decoder has other words than a new one");
    if (status == FD_OK)
        compare(&one, &other, 0, 0, "an old decoder gives other pixels than a new one");
    drop(&one);
    drop(&other);
    fd_decoder_destroy(fresh);
}

/* A region, and the slice of the whole. Returns the region's status. */
static int check_region(const numbers *from, const jpeg *file) {
    image part, whole;
    fd_request request = request_of(from), all = request;
    int32_t region[4];
    memcpy(region, from->region, sizeof region);
    if (!(from->flags & WILD) && file->status == FD_OK)
        put_inside(region, reduced(file->header.width, from->reduce),
                   reduced(file->header.height, from->reduce));
    request.left = region[0];
    request.top = region[1];
    request.right = region[2];
    request.bottom = region[3];
    int status = decode(old, file, &request, from->gap, from->flags & UPWARDS, &part);
    if (status == FD_ARGUMENT && !(from->flags & WILD) && file->status == FD_OK)
        fail("a region inside the image was refused");
    if (status == FD_OK && file->status == FD_OK) {
        /* The whole may fail by damage that the region does not reach. */
        if (decode(old, file, &all, 0, 0, &whole) == FD_OK)
            compare(&part, &whole, (size_t)region[0] * channels_of(request.layout),
                    (size_t)region[1], "a region is not the slice of the whole");
        drop(&whole);
    }
    drop(&part);
    return status;
}

static void try_region(const numbers *from, const jpeg *file) { check_region(from, file); }

static int resize_to(const image *whole, int32_t width, const fd_resize *resize,
                     const fd_pixels *pixels, image *into) {
    *into = make_result(resize, pixels->dtype);
    int status = fd_resize_rgb(resampler, whole->first, width, (int32_t)whole->rows, 3,
                               whole->stride, resize, NULL, 0, pixels, into->first);
    guard(into, 0);
    return status;
}

/* Decode and resize at once, and one after the other. */
static void try_resized(const numbers *from, const jpeg *file) {
    image at_once, whole, after;
    fd_request request = request_of(from);
    int32_t width = reduced(file->header.width, from->reduce);
    int32_t height = reduced(file->header.height, from->reduce);
    int known = file->status == FD_OK;
    fd_resize resize = resize_of(from, known ? width : 100, known ? height : 100);
    fd_pixels pixels = pixels_of(from);
    request.layout = FD_RGB;
    use_number((unsigned)from->gap);
    at_once = make_result(&resize, pixels.dtype);
    int status = fd_decode_resized(old, file->data, file->size, &request, &resize, NULL, 0, &pixels,
                                   at_once.first);
    guard(&at_once, 0);
    if (status == FD_ARGUMENT && known && !(from->flags & (WILD | RAW)))
        fail("a resize that can be done was refused");
    use_number((unsigned)from->gap + 1);
    if (status == FD_OK && known) {
        if (decode(old, file, &request, from->gap, from->flags & UPWARDS, &whole) == FD_OK) {
            if (resize_to(&whole, width, &resize, &pixels, &after) != FD_OK)
                fail("refused for pixels in memory, not for a JPEG");
            compare(&at_once, &after, 0, 0, "at once is not one after the other");
            drop(&after);
        }
        drop(&whole);
    }
    drop(&at_once);
}

/* Whether all bytes of a uint8 result lie between the least and the most of the source. */
static void check_range(const image *source, const image *result) {
    uint8_t least = 255, most = 0;
    for (size_t y = 0; y < source->rows; y++)
        for (size_t i = 0; i < source->length; i++) {
            uint8_t value = row_of(source, y)[i];
            least = value < least ? value : least;
            most = value > most ? value : most;
        }
    for (size_t y = 0; y < result->rows; y++)
        for (size_t i = 0; i < result->length; i++)
            if (row_of(result, y)[i] < least || row_of(result, y)[i] > most)
                fail("a value that the pixels do not span");
}

/* Resize pixels that are in memory; `file` is these, over and over. */
static void try_resize(const numbers *from, const jpeg *file) {
    int32_t width = 1 + from->region[0] % 500, height = 1 + from->region[1] % 500;
    fd_resize resize = resize_of(from, width, height);
    fd_pixels pixels = pixels_of(from);
    image source = make((size_t)width * 3, (size_t)height, from->gap, from->flags & UPWARDS);
    image one, other;
    for (size_t y = 0, i = 0; y < source.rows; y++)
        for (size_t x = 0; x < source.length; x++, i++)
            row_of(&source, y)[x] = file->size ? file->data[i % file->size] : 255;
    int status = resize_to(&source, width, &resize, &pixels, &one);
    if (status == FD_ARGUMENT && !(from->flags & (WILD | RAW)))
        fail("a resize that can be done was refused");
    if (status == FD_OK && pixels.dtype == FD_UINT8)
        check_range(&source, &one);
    for (const char *sets = fd_instructions(); use_next(&sets);) {
        if (resize_to(&source, width, &resize, &pixels, &other) != status)
            fail("instruction sets give another status");
        if (status == FD_OK)
            compare(&one, &other, 0, 0, "instruction sets give other values");
        drop(&other);
    }
    drop(&one);
    drop(&source);
}

/* Repack, and look whether it is the same image, whole and in part. */
static void try_restart_markers(const numbers *from, const jpeg *file) {
    image before, after;
    fd_request request = request_of(from);
    jpeg again = {.data = NULL};
    uint8_t *bytes;
    int status = fd_add_restart_markers(file->data, file->size, &fuzz_limits, &bytes, &again.size);
    if (status != FD_OK) {
        if (bytes != NULL || again.size != 0)
            fail("bytes of a file that was not repacked");
        return;
    }
    again.data = bytes;
    again.status = fd_probe(again.data, again.size, &again.header);
    if (again.status != FD_OK || again.header.width != file->header.width ||
        again.header.height != file->header.height || !again.header.ended)
        fail("the repacked file has another header");
    int of_before = decode(old, file, &request, 0, 0, &before);
    int of_after = decode(old, &again, &request, 0, 0, &after);
    if (of_before != of_after)
        fail("the repacked file does not decode as the file");
    if (of_before == FD_OK) {
        compare(&after, &before, 0, 0, "the repacked file has other pixels");
        int of_region = check_region(from, &again); /* its new codes may have a long run of zeros */
        if (of_region != FD_OK && !fd_has_zeros(bytes, again.size, 16) && !(from->flags & WILD))
            fail("a region of the repacked file fails");
    }
    drop(&before);
    drop(&after);
    fd_free(bytes);
}

/* Walk over its scans: they are inside the file, one behind another. */
static void try_scans(const jpeg *file) {
    static fd_stream found;
    size_t behind = 0;
    if ((fd_read_scans(file->data, file->size, &found) == FD_OK) != (file->status == FD_OK))
        fail("the scans are read although the header is not, or not although it is");
    for (int i = 0; file->status == FD_OK && i < found.count; i++) {
        const fd_scan_place *scan = &found.scans[i];
        if (scan->marker < behind || scan->marker >= scan->start || scan->end > file->size ||
            found.complete > found.begun)
            fail("the scans are not where they can be");
        behind = scan->end;
    }
}

void fuzz_one(const uint8_t *head, const uint8_t *data, size_t size) {
    static void (*const OPERATION[OPERATIONS - 1])(const numbers *, const jpeg *) = {
        try_whole, try_region, try_resized, try_resize, try_restart_markers};
    if (fd_is_png(data, size)) /* fuzz_png.c has the judge of these */
        return;
    if (head[0] % OPERATIONS == OPERATIONS - 1) {
        fuzz_crop(head, data, size);
        return;
    }
    numbers from = read_numbers(head);
    jpeg file = {.data = data, .size = size};
    if (from.renew) /* what is kept is larger than what is needed, and hides overruns */
        fuzz_end();
    if (old == NULL) {
        old = must(fd_decoder_create());
        resampler = must(fd_resampler_create());
    }
    file.status = fd_probe(data, size, &file.header);
    if (file.header.sof == FD_PPM) { /* of which only samples are made */
        fuzz_crop(head, data, size);
        return;
    }
    try_scans(&file);
    OPERATION[from.operation](&from, &file);
}

void fuzz_end(void) {
    fd_resampler_destroy(resampler);
    fd_decoder_destroy(old);
    resampler = NULL;
    old = NULL;
}

/* The JPEG has memory of its own, so that ASan sees what is read before and behind it. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size <= HEAD)
        return 0;
    uint8_t *data = must(malloc(size - HEAD));
    memcpy(data, input + HEAD, size - HEAD);
    fuzz_one(input, data, size - HEAD);
    free(data);
    return 0;
}
