/* fuzz_own.c: the core's own decoder against libjpeg-turbo, as many short files a second as can be.
 *
 * One input is HEAD bytes, as in fuzz.c, and behind them a JPEG. Whatever the core decodes by itself
 * has to be what libjpeg-turbo makes of it without a warning, but for parts of a progressive file that
 * the core left out; what it gives up on is not looked at, because then another library decodes it. For
 * libFuzzer, with the seeds of seeds.py.
 *
 * Half of the mutations are libFuzzer's own. The other half are aimed: at one segment (tables, sizes,
 * restart interval, scans), at the length of one, at the restart markers, at the last bytes of a scan,
 * which hold the last MCU, and at where the file ends. */
#include "fuzz.h"
#include "judge.h"

#include "must.h"
#include "sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIXELS = 1 << 14 };

static int32_t reduced(int32_t side, int32_t reduce) { return (side + reduce - 1) / reduce; }

/* A region from two bytes for each end; half of the inputs have none. */
static void choose_region(fd_request *request, const uint8_t *head, int32_t width, int32_t height) {
    if (head[1] & 1) {
        request->right = width;
        request->bottom = height;
        return;
    }
    request->left = (head[6] | head[7] << 8) % width;
    request->top = (head[8] | head[9] << 8) % height;
    request->right = request->left + 1 + (head[10] | head[11] << 8) % (width - request->left);
    request->bottom = request->top + 1 + (head[12] | head[13] << 8) % (height - request->top);
}

/* Decode into `made` with the core, and where it did, with libjpeg-turbo. */
static void compare(const uint8_t *data, size_t size, fd_request *request, int is_part,
                    ptrdiff_t stride, uint8_t *made, uint8_t *expected, size_t bytes) {
    static fd_decoder *own;
    if (own == NULL)
        own = must(fd_decoder_create());
    if (fd_decode(own, data, size, request, made, stride) != FD_OK)
        return;
    if (judge(data, size, request, expected, stride)) {
        if (memcmp(made, expected, bytes) != 0)
            fail("decoded to other pixels than libjpeg's");
        return;
    }
    if (is_part) /* the core stops behind its last block, and libjpeg at the end of a row */
        return;
    if (request->thorough)
        fail("decoded what libjpeg complains of");
    request->thorough = 1;
    if (fd_decode(own, data, size, request, made, stride) == FD_OK)
        fail("decoded what libjpeg complains of, and left nothing out");
}

static void decode_by_both(const uint8_t *head, const uint8_t *data, size_t size) {
    fd_header header;
    if (fd_probe(data, size, &header) != FD_OK ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return;
    fd_request request = {
        .reduce = 1 << head[2] % 4, .layout = FD_L + head[3] % 3, .thorough = head[4] & 1};
    choose_region(&request, head, reduced(header.width, request.reduce),
                  reduced(header.height, request.reduce));
    size_t channels = request.layout == FD_L ? 1 : request.layout == FD_RGB ? 3 : 4;
    size_t row = channels * (size_t)(request.right - request.left);
    size_t bytes = row * (size_t)(request.bottom - request.top);
    uint8_t *made = must(malloc(bytes)), *expected = must(malloc(bytes)); /* exactly, for ASan */
    use_number(head[1] >> 4);
    int is_part = row < channels * (size_t)reduced(header.width, request.reduce) ||
                  request.bottom - request.top < reduced(header.height, request.reduce);
    compare(data, size, &request, is_part, (ptrdiff_t)row, made, expected, bytes);
    free(made);
    free(expected);
}

/* ---- mutations ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *input, size_t size, size_t max_size, unsigned seed);

static uint32_t drawn(uint32_t *state) { /* xorshift32 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* Where the data of a scan ends that begins at `at`: at the next marker that is not for restarts. */
static size_t end_of_scan(const uint8_t *jpeg, size_t size, size_t at) {
    while (at + 1 < size &&
           (jpeg[at] != 0xFF || jpeg[at + 1] == 0 || (jpeg[at + 1] & 0xF8) == 0xD0))
        at++;
    return at;
}

/* Where a random segment begins, its marker included, before a scan or between two; 0 if there is none. */
static size_t segment_of(const uint8_t *jpeg, size_t size, uint32_t *state) {
    size_t chosen = 0;
    uint32_t count = 0;
    for (size_t at = 2; at + 4 <= size && jpeg[at] == 0xFF;) {
        int marker = jpeg[at + 1];
        if (drawn(state) % ++count == 0)
            chosen = at;
        at += 2 + (size_t)(jpeg[at + 2] << 8 | jpeg[at + 3]);
        if (marker == 0xDA)
            at = end_of_scan(jpeg, size, at);
    }
    return chosen;
}

static void change_byte(uint8_t *byte, uint32_t *state) {
    static const uint8_t odd[] = {0, 1, 2, 0x11, 0x22, 0x7F, 0x80, 0xFE, 0xFF};
    uint32_t how = drawn(state) % 3;
    *byte = how == 0   ? odd[drawn(state) % sizeof odd]
            : how == 1 ? (uint8_t)(*byte ^ 1u << drawn(state) % 8)
                       : (uint8_t)(*byte + (drawn(state) & 1 ? 1 : -1));
}

/* Put a restart marker at a random place, or turn one into another, or take it away. */
static size_t change_markers(uint8_t *jpeg, size_t size, size_t max_size, uint32_t *state) {
    size_t found = 0;
    uint32_t count = 0;
    for (size_t at = 2; at + 1 < size; at++)
        if (jpeg[at] == 0xFF && (jpeg[at + 1] & 0xF8) == 0xD0 && drawn(state) % ++count == 0)
            found = at;
    uint32_t how = drawn(state) % 3;
    if (how == 0 || found == 0) {
        size_t at = 2 + drawn(state) % (size - 2);
        if (size + 2 > max_size)
            return size;
        memmove(jpeg + at + 2, jpeg + at, size - at);
        jpeg[at] = 0xFF;
        jpeg[at + 1] = (uint8_t)(0xD0 + drawn(state) % 8);
        return size + 2;
    }
    if (how == 1) {
        jpeg[found + 1] = (uint8_t)(0xD0 + drawn(state) % 8);
        return size;
    }
    memmove(jpeg + found, jpeg + found + 2, size - found - 2);
    return size - 2;
}

size_t LLVMFuzzerCustomMutator(uint8_t *input, size_t size, size_t max_size, unsigned seed) {
    enum { END = 24 };
    uint32_t state = seed | 1;
    uint8_t *jpeg = input + HEAD;
    if (size < HEAD + 64 || drawn(&state) & 1)
        return LLVMFuzzerMutate(input, size, max_size);
    size_t length = size - HEAD;
    size_t segment = segment_of(jpeg, length, &state);
    switch (drawn(&state) % 5) {
    case 0: /* what a segment says */
        if (segment) {
            size_t bytes = (size_t)(jpeg[segment + 2] << 8 | jpeg[segment + 3]);
            size_t at = segment + 4 + drawn(&state) % (bytes > 2 ? bytes - 2 : 1);
            if (at < length)
                change_byte(jpeg + at, &state);
        }
        break;
    case 1: /* how long it says that it is */
        if (segment)
            change_byte(jpeg + segment + 2 + (drawn(&state) % 4 != 0), &state);
        break;
    case 2:
        length = change_markers(jpeg, length, max_size - HEAD, &state);
        break;
    case 3: { /* the last MCU of a scan */
        size_t end = segment && jpeg[segment + 1] == 0xDA ? end_of_scan(jpeg, length, segment + 2)
                                                          : length;
        change_byte(jpeg + end - 1 - drawn(&state) % END, &state);
        break;
    }
    default: { /* the end of the file */
        size_t lost = 1 + drawn(&state) % END;
        if (drawn(&state) & 1) { /* of the scan alone: the end marker stays */
            jpeg[length - lost - 2] = 0xFF;
            jpeg[length - lost - 1] = 0xD9;
        }
        length -= lost;
    }
    }
    return HEAD + length;
}

/* The JPEG has memory of its own, so that ASan sees what is read before and behind it. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size <= HEAD)
        return 0;
    uint8_t *data = must(malloc(size - HEAD));
    memcpy(data, input + HEAD, size - HEAD);
    decode_by_both(input, data, size - HEAD);
    free(data);
    return 0;
}
