/* restart_markers.c: the lossless repack with restart markers, so that a decoder can start at any
 * row of MCUs.
 *
 * libjpeg reads all quantised coefficients and writes them again, as jpegtran does. A file with
 * warnings, or zeros in place of data, is refused: the repacked file would look complete, with wrong
 * pixels. */
#include "png_decoder.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 4096 /* bytes: markers and tables of a small image */ };

/* One call: everything to free, however the call ends. */
typedef struct {
    fd_errors *errors;
    const fd_limits *limits;
    struct jpeg_decompress_struct in;
    struct jpeg_compress_struct out;
    fd_source source;
    struct jpeg_progress_mgr progress;
    struct jpeg_destination_mgr destination;
    uint8_t *bytes; /* the output; `capacity` bytes are allocated */
    size_t capacity, size;
    int32_t most_scans;
} repack;

/* ---- the destination ---- */

static void give_room(repack *work, size_t used, size_t capacity) {
    uint8_t *larger = realloc(work->bytes, capacity);
    if (larger == NULL)
        fd_errors_leave(work->errors, FD_NO_MEMORY, "there is no memory for the result");
    work->bytes = larger;
    work->capacity = capacity;
    work->destination.next_output_byte = larger + used;
    work->destination.free_in_buffer = capacity - used;
}

static void begin_writing(j_compress_ptr jpeg) { (void)jpeg; }

/* libjpeg calls this when the buffer is full to the last byte. */
static boolean write_more(j_compress_ptr jpeg) {
    repack *work = jpeg->client_data;
    if (work->capacity > SIZE_MAX / 2)
        fd_errors_leave(work->errors, FD_NO_MEMORY, "there is no memory for the result");
    give_room(work, work->capacity, 2 * work->capacity);
    return TRUE;
}

static void end_writing(j_compress_ptr jpeg) {
    repack *work = jpeg->client_data;
    work->size = work->capacity - work->destination.free_in_buffer;
}

/* ---- reading ---- */

/* Fail with the message of the first warning. */
static _Noreturn void leave_damaged(fd_errors *errors) {
    errors->status = FD_DAMAGED;
    longjmp(errors->escape, 1);
}

/* libjpeg calls this before each row of MCUs that it reads. */
static void watch(j_common_ptr jpeg) {
    repack *work = jpeg->client_data;
    if (work->errors->warnings)
        leave_damaged(work->errors);
    if (work->limits->scans > 0 && work->in.input_scan_number > work->most_scans)
        fd_errors_leave(work->errors, FD_DAMAGED,
                        "it has more scans than any honest file of its size: refused as hostile");
}

static int64_t rounded_up(JDIMENSION blocks, int factor) {
    return ((int64_t)blocks + factor - 1) / factor * factor;
}

static void check_header(repack *work) {
    const struct jpeg_decompress_struct *in = &work->in;
    const fd_limits *limits = work->limits;
    int blocks = 0;
    int64_t bytes = 0; /* of all coefficients; rows need little next to them */
    for (int i = 0; i < in->num_components; i++) {
        const jpeg_component_info *part = &in->comp_info[i];
        blocks += part->h_samp_factor * part->v_samp_factor;
        bytes += rounded_up(part->width_in_blocks, part->h_samp_factor) *
                 rounded_up(part->height_in_blocks, part->v_samp_factor) * (int64_t)sizeof(JBLOCK);
    }
    if (in->data_precision != 8)
        fd_errors_leave(work->errors, FD_UNSUPPORTED, "not of 8 bits for each sample");
    if (limits->pixels > 0 && (int64_t)in->image_width * in->image_height > limits->pixels)
        fd_errors_leave(work->errors, FD_TOO_LARGE, "it has more pixels than are allowed");
    if (limits->memory > 0 && bytes > limits->memory)
        fd_errors_leave(work->errors, FD_TOO_LARGE,
                        "repacking it takes more memory than is allowed");
    if (in->num_components > 1 &&
        (in->num_components > MAX_COMPS_IN_SCAN || blocks > C_MAX_BLOCKS_IN_MCU))
        fd_errors_leave(work->errors, FD_UNSUPPORTED,
                        "its components do not fit into one scan, so no restart marker can end a "
                        "row of all of them");
}

/* Check that every coefficient of every component was read to its last bit. Where scans of a
 * progressive file are missing, libjpeg would show other pixels than for the repacked file. */
static void check_complete(repack *work) {
    const struct jpeg_decompress_struct *in = &work->in;
    for (int i = 0; i < in->num_components; i++) {
        if (in->comp_info[i].quant_table == NULL)
            fd_errors_leave(work->errors, FD_DAMAGED, "a component has no scan");
        for (int k = 0; in->coef_bits != NULL && k < DCTSIZE2; k++)
            if (in->coef_bits[i][k] != 0)
                fd_errors_leave(work->errors, FD_DAMAGED, "its last scans are missing");
    }
}

static jvirt_barray_ptr *read_coefficients(repack *work, const uint8_t *data, size_t size) {
    j_decompress_ptr in = &work->in;
    jpeg_create_decompress(in);
    in->client_data = work;
    fd_source_whole(&work->source, in, data, size);
    jpeg_save_markers(in, JPEG_COM, 0xFFFF);
    for (int marker = JPEG_APP0; marker <= JPEG_APP0 + 15; marker++)
        jpeg_save_markers(in, marker, 0xFFFF);
    jpeg_read_header(in, TRUE);
    work->most_scans = fd_most_scans(work->limits, (int64_t)in->image_width * in->image_height,
                                     size);
    check_header(work);
    int jfif = in->saw_JFIF_marker, adobe = in->saw_Adobe_marker, transform = in->Adobe_transform;
    work->progress.progress_monitor = watch;
    in->progress = &work->progress;
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(in);
    if (work->errors->warnings)
        leave_damaged(work->errors);
    check_complete(work);
    /* Markers move to the front, where these two would decide about the colours. */
    if (in->saw_JFIF_marker != jfif || in->saw_Adobe_marker != adobe ||
        in->Adobe_transform != transform)
        fd_errors_leave(work->errors, FD_UNSUPPORTED, "a JFIF or Adobe marker follows the data");
    return coefficients;
}

/* ---- writing ---- */

static void write_coefficients(repack *work, jvirt_barray_ptr *coefficients, size_t size) {
    j_compress_ptr out = &work->out;
    jpeg_create_compress(out);
    out->client_data = work;
    jpeg_copy_critical_parameters(&work->in, out);
    /* The source's own markers are copied byte by byte. */
    out->write_JFIF_header = FALSE;
    out->write_Adobe_marker = FALSE;
    out->optimize_coding = TRUE;
    out->restart_in_rows = 1;
    work->destination.init_destination = begin_writing;
    work->destination.empty_output_buffer = write_more;
    work->destination.term_destination = end_writing;
    out->dest = &work->destination;
    give_room(work, 0, size + SPARE);
    jpeg_write_coefficients(out, coefficients);
    for (jpeg_saved_marker_ptr marker = work->in.marker_list; marker; marker = marker->next)
        jpeg_write_marker(out, marker->marker, marker->data, marker->data_length);
    jpeg_finish_compress(out);
}

static void skip_row(void *state, int32_t row, const uint8_t *pixels) {
    (void)state, (void)row, (void)pixels;
}

/* Check that zeros are data: the core's own decoder, if it reads the file, knows the rules. Of others,
 * libjpeg at least warns if more than a few bytes are left over. */
static void check_zeros(repack *work, const uint8_t *data, size_t size, const fd_header *header) {
    fd_frame frame;
    size_t scan = header->scan_offset;
    if (!fd_has_zeros(data + scan, size - scan, FD_MANY_ZEROS) ||
        !fd_frame_read(&frame, data, size))
        return;
    const fd_sink sink = {.row = skip_row};
    const fd_target target = {.right = header->width,
                              .bottom = header->height,
                              .reduce = 1,
                              .layout = FD_RGB,
                              .sink = &sink,
                              .thorough = 1,
                              .limits = *work->limits};
    fd_baseline *decoder = fd_baseline_create();
    int are_data = decoder != NULL && fd_baseline_decode(decoder, data, size, &target);
    fd_baseline_destroy(decoder);
    if (!are_data)
        fd_errors_leave(work->errors, FD_UNSUPPORTED, "zeros may stand in place of its data");
}

/* Everything that may fail inside libjpeg. It is a function of its own, because after a longjmp the
 * local variables of the function with setjmp are undefined. */
static fd_status transcode(repack *work, const uint8_t *data, size_t size,
                           const fd_header *header) {
    if (setjmp(work->errors->escape))
        return work->errors->status;
    check_zeros(work, data, size, header);
    write_coefficients(work, read_coefficients(work, data, size), size);
    return FD_OK;
}

int fd_add_restart_markers(fd_decoder *decoder, const uint8_t *data, size_t size,
                           const fd_limits *limits, uint8_t **out, size_t *out_size) {
    fd_errors *errors = fd_decoder_errors(decoder);
    fd_errors_begin(errors);
    *out = NULL;
    *out_size = 0;
    /* libjpeg accepts some damaged segments. */
    fd_header header;
    int is_other = data == NULL || fd_is_png(data, size);
    int probed = is_other ? FD_UNSUPPORTED : fd_probe(data, size, &header);
    if (probed != FD_OK)
        return (int)fd_errors_note(
            errors, (fd_status)probed,
            probed == FD_UNSUPPORTED ? "not a JPEG" : "the header is damaged, or truncated");
    if (size > SIZE_MAX / 2)
        return (int)fd_errors_note(errors, FD_ARGUMENT, "no memory has that size");
    repack work;
    memset(&work, 0, sizeof work);
    work.errors = errors;
    work.limits = limits;
    work.in.err = &errors->jpeg;
    work.out.err = &errors->jpeg;
    fd_status status = transcode(&work, data, size, &header);
    jpeg_destroy_compress(&work.out);
    jpeg_destroy_decompress(&work.in);
    if (status != FD_OK) {
        free(work.bytes);
        return (int)status;
    }
    uint8_t *fitting = realloc(work.bytes, work.size);
    *out = fitting != NULL ? fitting : work.bytes;
    *out_size = work.size;
    return FD_OK;
}

void fd_free(void *memory) { free(memory); }
