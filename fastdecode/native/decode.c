/* decode.c: decodes one image, or a part of it, to pixels or to a tensor. */
#include "png_decoder.h"

#include <stdlib.h>

struct fd_decoder {
    fd_baseline *baseline; /* this and the next two are made when they are first needed */
    fd_png *png;
    fd_resampler *resampler;
    const char *message;
};

fd_decoder *fd_decoder_create(void) {
    fd_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder != NULL)
        decoder->message = "";
    return decoder;
}

void fd_decoder_destroy(fd_decoder *decoder) {
    if (decoder == NULL)
        return;
    fd_baseline_destroy(decoder->baseline);
    fd_png_destroy(decoder->png);
    fd_resampler_destroy(decoder->resampler);
    free(decoder);
}

const char *fd_decoder_message(const fd_decoder *decoder) { return decoder->message; }

static int fail(fd_decoder *decoder, fd_status status, const char *words) {
    decoder->message = words;
    return (int)status;
}

static int run(fd_decoder *decoder, const uint8_t *data, size_t size, const fd_request *request,
               fd_target *target) {
    int32_t reduce = request->reduce;
    if (data == NULL || (reduce != 1 && reduce != 2 && reduce != 4 && reduce != 8))
        return fail(decoder, FD_ARGUMENT, "reduce must be 1, 2, 4 or 8");
    target->reduce = reduce;
    target->thorough = request->thorough;
    target->limits = request->limits;
    int is_done;
    if (fd_is_png(data, size)) {
        if (decoder->png == NULL && (decoder->png = fd_png_create()) == NULL)
            return fail(decoder, FD_NO_MEMORY, "there is no memory for a decoder");
        is_done = fd_png_decode(decoder->png, data, size, target);
    } else {
        if (decoder->baseline == NULL && (decoder->baseline = fd_baseline_create()) == NULL)
            return fail(decoder, FD_NO_MEMORY, "there is no memory for a decoder");
        is_done = fd_baseline_decode(decoder->baseline, data, size, target);
    }
    return is_done ? FD_OK
                   : fail(decoder, FD_UNSUPPORTED, "something in the file is unusual, or damaged");
}

int fd_decode(fd_decoder *decoder, const uint8_t *data, size_t size, const fd_request *request,
              uint8_t *out, ptrdiff_t stride) {
    int is_known = request->layout >= FD_L && request->layout <= FD_RGBA;
    is_known |= request->layout == FD_STORED && fd_is_png(data, size);
    if (out == NULL || !is_known)
        return fail(decoder, FD_ARGUMENT, "there is no such layout");
    fd_target target = {
        .left = request->left,
        .top = request->top,
        .right = request->right,
        .bottom = request->bottom,
        .layout = request->layout,
        .out = out,
        .stride = stride,
    };
    return run(decoder, data, size, request, &target);
}

int fd_decode_resized(fd_decoder *decoder, const uint8_t *data, size_t size,
                      const fd_request *request, const fd_resize *resize,
                      const fd_operation *operations, int32_t count, const fd_pixels *pixels,
                      void *out) {
    if (decoder->resampler == NULL && (decoder->resampler = fd_resampler_create()) == NULL)
        return fail(decoder, FD_NO_MEMORY, "there is no memory for a resampler");
    int32_t window[4], width, height;
    const uint8_t *rgb = fd_ppm_pixels(data, size, &width, &height);
    if (rgb != NULL) {
        int failed = fd_resize_rgb(decoder->resampler, rgb, width, height, 3, 3 * (ptrdiff_t)width,
                                   resize, operations, count, pixels, out);
        return failed ? fail(decoder, (fd_status)failed, "such a result is not possible") : FD_OK;
    }
    fd_sink sink;
    int status = fd_resampler_begin(decoder->resampler, resize, count > 0, pixels, out, window,
                                    &sink);
    if (status != FD_OK)
        return fail(decoder, (fd_status)status, "such a resize is not possible");
    fd_target target = {
        .left = window[0],
        .top = window[1],
        .right = window[2],
        .bottom = window[3],
        .sink = &sink,
    };
    status = run(decoder, data, size, request, &target);
    if (status == FD_OK && fd_resampler_finish(decoder->resampler, operations, count) != FD_OK)
        return fail(decoder, FD_ARGUMENT, "such an augmentation is not possible");
    return status;
}
