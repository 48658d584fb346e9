/* fuzz_own.c: the core's own decoder against libjpeg-turbo, as many short files a second as can be.
 *
 * One input is HEAD bytes, as in fuzz.c, and behind them a JPEG. Whatever the core decodes by itself
 * has to be what libjpeg-turbo makes of it without a warning; what it gives up on is not looked at,
 * because then libjpeg-turbo decodes it. For libFuzzer, with the seeds of seeds.py. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIXELS = 1 << 14 };

static _Noreturn void fail(const char *words) {
    fprintf(stderr, "fuzz_own.c: %s\n", words);
    abort();
}

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

static void decode_by_both(const uint8_t *head, const uint8_t *data, size_t size) {
    static fd_decoder *own, *other;
    static uint8_t made[4 * MOST_PIXELS + 1], expected[4 * MOST_PIXELS + 1];
    fd_header header;
    if (own == NULL && ((own = fd_decoder_create()) == NULL || (other = fd_decoder_create()) == NULL))
        fail("no memory for the test itself");
    if (fd_probe(data, size, &header) != FD_OK ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return;
    fd_request request = {.reduce = 1 << head[2] % 4, .layout = FD_L + head[3] % 3};
    choose_region(&request, head, reduced(header.width, request.reduce),
                  reduced(header.height, request.reduce));
    ptrdiff_t stride = 4 * (ptrdiff_t)(request.right - request.left);
    size_t bytes = (size_t)stride * (size_t)(request.bottom - request.top);
    memset(made, 0xA5, bytes + 1);
    memset(expected, 0xA5, bytes + 1);
    fd_use_instructions(head[1] & 16 ? "plain" : "");
    fd_use_decoder("");


    int status = fd_decode(own, data, size, &request, made, stride);
    if (!fd_decoder_own(own))
        return;
    fd_use_decoder("libjpeg");
    if (status != FD_OK || fd_decode(other, data, size, &request, expected, stride) != FD_OK ||
        fd_decoder_warnings(other) != 0)
        fail("decoded what libjpeg complains of");
    if (memcmp(made, expected, bytes + 1) != 0)
        fail("decoded to other pixels than libjpeg's");
}

/* The JPEG has memory of its own, so that ASan sees what is read before and behind it. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size <= HEAD)
        return 0;
    uint8_t *data = malloc(size - HEAD);
    if (data == NULL)
        fail("no memory for the test itself");
    memcpy(data, input + HEAD, size - HEAD);
    decode_by_both(input, data, size - HEAD);
    free(data);
    return 0;
}
