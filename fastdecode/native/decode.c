/* decode.c: decodes one image, or a part of it, to pixels.
 *
 * libjpeg-turbo decodes only the wanted rows, and of these only the columns of the wanted iMCUs. A
 * little more than the window is decoded, because chroma is interpolated from neighbouring samples:
 * so the pixels equal those of a full decode. */
#include "png_decoder.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEIGHBOURS = 4,   /* columns next to the window whose chroma reaches into it; 2 would do */
    MOST_ROWS = 4,    /* that libjpeg returns at once: the largest vertical sampling factor */
    ROW_ALIGNMENT = 64,
    /* libjpeg-turbo's SIMD writes aligned rows past the cache ("non-temporal" stores), and their
     * reader waits for memory: 0.12 of 1.0 ms for a region of a 500x375 photo. */
    MISALIGNMENT = 4
};

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

struct fd_decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress; /* called for each scan */
    fd_errors errors;
    fd_source source;
    fd_baseline *baseline;   /* this and the next are made when they are first needed */
    fd_png *png;
    int is_own;              /* it made the pixels of the last call */
    fd_resampler *resampler; /* made when it is first needed */
    int32_t most_scans;
    uint8_t *rows; /* the latest rows, unless libjpeg writes to the caller's */
    size_t capacity;
};

/* One decode: its input, window and destination. */
typedef struct {
    const uint8_t *data;
    size_t size;
    size_t scan; /* where the first scan's data begins */
    const fd_request *request;
    int32_t left, top, right, bottom; /* reduced pixels, of the image libjpeg sees */
    J_COLOR_SPACE colors;
    int channels;
    /* The destination is either rows in memory ... */
    uint8_t *out;
    ptrdiff_t stride;
    /* ... or a sink. */
    const fd_sink *sink;
} job;

const char *fd_codec(void) { return STRINGIFY(LIBJPEG_TURBO_VERSION); }

static void count_scans(j_common_ptr common) {
    fd_decoder *decoder = common->client_data;
    if (decoder->most_scans && decoder->jpeg.input_scan_number > decoder->most_scans)
        fd_errors_leave(&decoder->errors, FD_DAMAGED,
                        "it has more scans than any honest file of its size: refused as hostile");
}

fd_decoder *fd_decoder_create(void) {
    fd_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder != NULL)
        fd_errors_begin(&decoder->errors);
    return decoder;
}

void fd_decoder_destroy(fd_decoder *decoder) {
    if (decoder == NULL)
        return;
    fd_baseline_destroy(decoder->baseline);
    fd_png_destroy(decoder->png);
    fd_resampler_destroy(decoder->resampler);
    free(decoder->rows);
    free(decoder);
}

fd_errors *fd_decoder_errors(fd_decoder *decoder) { return &decoder->errors; }

const char *fd_decoder_message(const fd_decoder *decoder) { return decoder->errors.message; }

int64_t fd_decoder_warnings(const fd_decoder *decoder) { return decoder->errors.warnings; }

static int32_t reduced(JDIMENSION side, int32_t reduce) {
    return (int32_t)((side + (JDIMENSION)reduce - 1) / (JDIMENSION)reduce);
}

/* Room for `count` rows of `stride` bytes, kept from call to call. */
static uint8_t *room_for_rows(fd_decoder *decoder, size_t stride, size_t count) {
    size_t needed = stride * count + ROW_ALIGNMENT + MISALIGNMENT;
    if (decoder->capacity < needed) {
        free(decoder->rows);
        decoder->capacity = 0;
        decoder->rows = malloc(needed);
        if (decoder->rows == NULL)
            fd_errors_leave(&decoder->errors, FD_NO_MEMORY, "no memory for rows of pixels");
        decoder->capacity = needed;
    }
    return (uint8_t *)(((uintptr_t)decoder->rows + ROW_ALIGNMENT - 1) &
                       ~(uintptr_t)(ROW_ALIGNMENT - 1)) +
           MISALIGNMENT;
}

static void read_header(fd_decoder *decoder, job *work) {
    const fd_limits *limits = &work->request->limits;
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    jpeg_create_decompress(jpeg); /* for each file, so that no table of another one is used */
    jpeg->client_data = decoder;
    jpeg->progress = &decoder->progress;
    jpeg->mem->max_memory_to_use = (long)limits->memory;
    decoder->progress.progress_monitor = count_scans;
    fd_source_whole(&decoder->source, jpeg, work->data, work->size);
    jpeg_read_header(jpeg, TRUE);
    decoder->most_scans = fd_most_scans(limits, (int64_t)jpeg->image_width * jpeg->image_height,
                                        work->size);
    work->scan = work->size - decoder->source.jpeg.bytes_in_buffer;
    if (jpeg->data_precision != 8)
        fd_errors_leave(&decoder->errors, FD_UNSUPPORTED, "more than 8 bits for each sample");
    if (limits->pixels && (int64_t)jpeg->image_width * jpeg->image_height > limits->pixels)
        fd_errors_leave(&decoder->errors, FD_TOO_LARGE, "it has more pixels than are allowed");
}

static void check_window(fd_decoder *decoder, job *work) {
    const fd_request *request = work->request;
    int32_t width = reduced(decoder->jpeg.image_width, request->reduce);
    int32_t height = reduced(decoder->jpeg.image_height, request->reduce);
    if (work->left == 0 && work->top == 0 && work->right == 0 && work->bottom == 0) {
        work->right = width;
        work->bottom = height;
    }
    if (work->left < 0 || work->top < 0 || work->left >= work->right || work->top >= work->bottom ||
        work->right > width || work->bottom > height)
        fd_errors_leave(&decoder->errors, FD_ARGUMENT, "the region is not inside the image");
}

/* Start decoding at the last restart marker above the window, if there is one. */
static void jump(fd_decoder *decoder, job *work) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    int32_t reduce = work->request->reduce;
    /* Start one row of MCUs earlier: chroma is interpolated downwards, too. */
    int32_t first = work->top * reduce - DCTSIZE * jpeg->max_v_samp_factor;
    if (first <= 0)
        return;
    int32_t passed = fd_source_jump(&decoder->source, jpeg, work->data, work->size, first,
                                    work->bottom * reduce - 1);
    if (passed == 0)
        return;
    jpeg_read_header(jpeg, TRUE);
    work->top -= passed / reduce;
    work->bottom -= passed / reduce;
}

/* Whether every coefficient of a progressive image has reached its full precision. */
static int all_scans_there(j_decompress_ptr jpeg) {
    for (int component = 0; component < jpeg->num_components; component++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (jpeg->coef_bits[component][k] != 0)
                return 0;
    return 1;
}

static void begin(fd_decoder *decoder, const job *work) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)work->request->reduce;
    jpeg->out_color_space = work->colors;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    jpeg_start_decompress(jpeg);
    for (int i = 0; i < jpeg->num_components; i++)
        if (jpeg->comp_info[i].quant_table == NULL)
            fd_errors_leave(&decoder->errors, FD_DAMAGED, "a component has no scan");
    /* libjpeg-turbo replaces missing scans by smoothing over neighbouring blocks, also outside the
     * window, and each version does it differently. */
    if (jpeg->progressive_mode && !all_scans_there(jpeg))
        fd_errors_leave(&decoder->errors, FD_UNSUPPORTED,
                        "the last scans of the progressive image are missing");
}

#if JPEG_LIB_VERSION >= 70
#define SCALED_SIZE(component) ((component)->DCT_h_scaled_size) /* and so is the other side's */
#define SMALLEST_SCALED_SIZE(jpeg) ((jpeg)->min_DCT_h_scaled_size)
#else
#define SCALED_SIZE(component) ((component)->DCT_scaled_size)
#define SMALLEST_SCALED_SIZE(jpeg) ((jpeg)->min_DCT_scaled_size)
#endif

/* Whether jpeg_crop_scanline is correct for this image. It miscounts columns where the inverse DCT
 * does a part of the upsampling, but not all of it, as for chroma with a quarter of luma's columns
 * or rows at half size. */
static int can_crop(j_decompress_ptr jpeg) {
    int smallest = SMALLEST_SCALED_SIZE(jpeg);
    for (int i = 0; i < jpeg->num_components; i++) {
        const jpeg_component_info *component = &jpeg->comp_info[i];
        int size = SCALED_SIZE(component);
        int all_across = jpeg->max_h_samp_factor * smallest == component->h_samp_factor * size;
        int all_down = jpeg->max_v_samp_factor * smallest == component->v_samp_factor * size;
        if (size != smallest && !(all_across && all_down))
            return 0;
    }
    return 1;
}

/* Restrict libjpeg to the window's columns. Returns how many extra columns come before them. */
static int32_t crop(fd_decoder *decoder, const job *work) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    int32_t width = (int32_t)jpeg->output_width;
    int32_t from = work->left > NEIGHBOURS ? work->left - NEIGHBOURS : 0;
    int32_t to = work->right < width - NEIGHBOURS ? work->right + NEIGHBOURS : width;
    if ((from == 0 && to == width) || !can_crop(jpeg))
        return work->left;
    JDIMENSION offset = (JDIMENSION)from, count = (JDIMENSION)(to - from);
    jpeg_crop_scanline(jpeg, &offset, &count);
    return work->left - (int32_t)offset;
}

/* Invert CMYK: libjpeg returns inks as Adobe stores them, inverted. */
static void invert(uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)~bytes[i];
}

static void read_rows(fd_decoder *decoder, const job *work, int32_t before) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const fd_sink *sink = work->sink;
    size_t channels = (size_t)work->channels;
    size_t length = (size_t)(work->right - work->left) * channels;
    int32_t height = work->bottom - work->top;
    int32_t kept = sink == NULL ? 0 : sink->rows_kept < height ? sink->rows_kept : height;
    int direct = sink == NULL && jpeg->output_width * channels == length;
    size_t stride = ((size_t)jpeg->output_width * channels + FD_PADDING + ROW_ALIGNMENT - 1) &
                    ~(size_t)(ROW_ALIGNMENT - 1);
    int32_t depth = kept + MOST_ROWS;
    uint8_t *ring = direct ? NULL : room_for_rows(decoder, stride, (size_t)depth);
    int32_t at_once = jpeg->rec_outbuf_height < MOST_ROWS ? jpeg->rec_outbuf_height : MOST_ROWS;
    int32_t y = 0;
    while (y < height && !decoder->errors.missing) { /* stop once pixels are missing */
        JSAMPROW into[MOST_ROWS];
        int32_t count = height - y < at_once ? height - y : at_once;
        for (int32_t i = 0; i < count; i++)
            into[i] = direct ? work->out + (y + i) * work->stride
                             : ring + (size_t)((y + i) % depth) * stride;
        int32_t got = (int32_t)jpeg_read_scanlines(jpeg, into, (JDIMENSION)count);
        for (int32_t i = 0; i < got; i++) {
            uint8_t *row = direct ? into[i] : into[i] + (size_t)before * channels;
            if (work->colors == JCS_CMYK)
                invert(row, length);
            if (sink != NULL)
                sink->row(sink->state, y + i, row);
            else if (!direct)
                memcpy(work->out + (y + i) * work->stride, row, length);
        }
        y += got;
    }
}

/* The window is decoded. Read on to the end only where that can show damage: a file that is
 * truncated below the window is damaged, even if the window is complete. */
static void finish(fd_decoder *decoder, const job *work) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    JDIMENSION left = jpeg->output_height - jpeg->output_scanline;
    if (decoder->errors.missing) {
        jpeg_abort_decompress(jpeg);
        return;
    }
    if (left == 0) {
        jpeg_finish_decompress(jpeg);
        return;
    }
    if (!fd_has_end(work->data, work->size, work->scan)) {
        /* libjpeg would not check a last row that is skipped: so read it. */
        uint8_t *row = room_for_rows(decoder, (size_t)jpeg->output_width * work->channels, 1);
        jpeg_skip_scanlines(jpeg, left - 1);
        jpeg_read_scanlines(jpeg, &row, 1);
        jpeg_finish_decompress(jpeg);
        return;
    }
    jpeg_abort_decompress(jpeg);
}

/* ---- the core's own decoder ---- */

static _Atomic(int) only_libjpeg;
static _Atomic(int64_t) own_count, libjpeg_count;

fd_counts fd_counted(void) {
    return (fd_counts){.own = atomic_load(&own_count), .libjpeg = atomic_load(&libjpeg_count)};
}

int fd_use_decoder(const char *name) {
    if (name == NULL || (name[0] != '\0' && strcmp(name, "libjpeg") != 0))
        return FD_ARGUMENT;
    atomic_store(&only_libjpeg, name[0] != '\0');
    return FD_OK;
}

int fd_decoder_own(const fd_decoder *decoder) { return decoder->is_own; }

/* Decode without libjpeg. Returns 0 if that is not possible. */
static int try_own(fd_decoder *decoder, const job *work) {
    const fd_request *request = work->request;
    int32_t reduce = request->reduce;
    if (atomic_load(&only_libjpeg) || work->data == NULL ||
        (reduce != 1 && reduce != 2 && reduce != 4 && reduce != 8))
        return 0;
    fd_target target = {
        .left = work->left,
        .top = work->top,
        .right = work->right,
        .bottom = work->bottom,
        .reduce = reduce,
        .layout = request->layout,
        .out = work->out,
        .stride = work->stride,
        .sink = work->sink,
        .thorough = request->thorough,
        .limits = request->limits,
    };
    if (fd_is_png(work->data, work->size)) {
        if (decoder->png == NULL && (decoder->png = fd_png_create()) == NULL)
            return 0;
        return fd_png_decode(decoder->png, work->data, work->size, &target);
    }
    if (decoder->baseline == NULL && (decoder->baseline = fd_baseline_create()) == NULL)
        return 0;
    return fd_baseline_decode(decoder->baseline, work->data, work->size, &target);
}

/* The same, and count it. Returns 0 if libjpeg must decode. */
static int run_own(fd_decoder *decoder, const job *work) {
    fd_errors_begin(&decoder->errors);
    decoder->is_own = try_own(decoder, work);
    atomic_fetch_add_explicit(decoder->is_own ? &own_count : &libjpeg_count, 1,
                              memory_order_relaxed);
    return decoder->is_own;
}

/* ---- all of it ---- */

static int run(fd_decoder *decoder, job *work) {
    fd_errors *errors = &decoder->errors;
    int32_t reduce = work->request->reduce;
    fd_errors_begin(errors);
    if (work->data == NULL || (reduce != 1 && reduce != 2 && reduce != 4 && reduce != 8))
        return (int)fd_errors_note(errors, FD_ARGUMENT, "reduce must be 1, 2, 4 or 8");
    if (fd_is_png(work->data, work->size))
        return (int)fd_errors_note(errors, FD_UNSUPPORTED,
                                   "something in the PNG is unusual, or damaged");
    memset(&decoder->jpeg, 0, sizeof decoder->jpeg);
    decoder->jpeg.err = &errors->jpeg;
    if (setjmp(errors->escape)) {
        jpeg_destroy_decompress(&decoder->jpeg);
        return (int)errors->status;
    }
    read_header(decoder, work);
    check_window(decoder, work);
    jump(decoder, work);
    begin(decoder, work);
    int32_t before = crop(decoder, work);
    if (work->top > 0)
        jpeg_skip_scanlines(&decoder->jpeg, (JDIMENSION)work->top);
    read_rows(decoder, work, before);
    finish(decoder, work);
    jpeg_destroy_decompress(&decoder->jpeg);
    if (work->request->strict && errors->warnings > 0)
        return FD_WARNED;
    if (errors->missing)
        return FD_DAMAGED;
    /* Up to eight bytes that are left over are no warning of libjpeg. The caller must look closer. */
    if (work->request->strict &&
        fd_has_zeros(work->data + work->scan, work->size - work->scan, FD_MANY_ZEROS))
        return (int)fd_errors_note(errors, FD_WARNED, "there is a long run of zeros in the data");
    return FD_OK;
}

int fd_decode(fd_decoder *decoder, const uint8_t *data, size_t size, const fd_request *request,
              uint8_t *out, ptrdiff_t stride) {
    static const struct {
        J_COLOR_SPACE colors;
        int channels;
    } LAYOUTS[] = {[FD_L] = {JCS_GRAYSCALE, 1},
                   [FD_RGB] = {JCS_EXT_RGB, 3},
                   [FD_RGBA] = {JCS_EXT_RGBA, 4},
                   [FD_CMYK] = {JCS_CMYK, 4},
                   [FD_STORED] = {JCS_UNKNOWN, 0}};
    decoder->is_own = 0;
    int is_known = request->layout >= FD_L && request->layout <= FD_CMYK;
    is_known |= request->layout == FD_STORED && fd_is_png(data, size);
    if (out == NULL || !is_known) {
        fd_errors_begin(&decoder->errors);
        return (int)fd_errors_note(&decoder->errors, FD_ARGUMENT, "there is no such layout");
    }
    job work = {
        .data = data,
        .size = size,
        .request = request,
        .left = request->left,
        .top = request->top,
        .right = request->right,
        .bottom = request->bottom,
        .colors = LAYOUTS[request->layout].colors,
        .channels = LAYOUTS[request->layout].channels,
        .out = out,
        .stride = stride,
    };
    return run_own(decoder, &work) ? FD_OK : run(decoder, &work);
}

int fd_decode_resized(fd_decoder *decoder, const uint8_t *data, size_t size,
                      const fd_request *request, const fd_resize *resize,
                      const fd_operation *operations, int32_t count, const fd_pixels *pixels,
                      void *out) {
    fd_errors *errors = &decoder->errors;
    fd_errors_begin(errors);
    decoder->is_own = 0;
    if (decoder->resampler == NULL && (decoder->resampler = fd_resampler_create()) == NULL)
        return (int)fd_errors_note(errors, FD_NO_MEMORY, "no memory for a resampler");
    int32_t window[4];
    fd_sink sink;
    fd_resampler *resampler = decoder->resampler;
    int is_augmented = count > 0;
    int status = fd_resampler_begin(resampler, resize, is_augmented, pixels, out, window, &sink);
    if (status != FD_OK)
        return (int)fd_errors_note(errors, (fd_status)status, "such a resize is not possible");
    job work = {
        .data = data,
        .size = size,
        .request = request,
        .left = window[0],
        .top = window[1],
        .right = window[2],
        .bottom = window[3],
        .colors = JCS_EXT_RGBX,
        .channels = 4,
        .sink = &sink,
    };
    if (!run_own(decoder, &work)) {
        /* The sink may have got some rows: start again. */
        fd_resampler_begin(resampler, resize, is_augmented, pixels, out, window, &sink);
        status = run(decoder, &work);
    }
    if (status == FD_OK && fd_resampler_finish(resampler, operations, count) != FD_OK)
        return (int)fd_errors_note(errors, FD_ARGUMENT, "such an augmentation is not possible");
    return status;
}
