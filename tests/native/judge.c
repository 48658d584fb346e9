/* judge.c: decodes with libjpeg-turbo; see judge.h. */
#include "judge.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

/* `jpeg` comes first, so that libjpeg's pointer to it is also a pointer to this struct. */
typedef struct {
    struct jpeg_error_mgr jpeg;
    jmp_buf escape;
    int warnings;
} listener;

static void leave(j_common_ptr jpeg) { longjmp(((listener *)jpeg->err)->escape, 1); }

static void listen(j_common_ptr jpeg, int level) {
    if (level < 0)
        ((listener *)jpeg->err)->warnings++;
}

/* Decode whole rows to `row`, and copy the window's part of each. */
static void decode(struct jpeg_decompress_struct *jpeg, const fd_request *request, uint8_t *out,
                   ptrdiff_t stride, uint8_t **row) {
    static const J_COLOR_SPACE COLOURS[] = {
        [FD_L] = JCS_GRAYSCALE, [FD_RGB] = JCS_EXT_RGB, [FD_RGBA] = JCS_EXT_RGBA};
    jpeg_read_header(jpeg, TRUE);
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)request->reduce;
    jpeg->out_color_space = COLOURS[request->layout];
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    jpeg_start_decompress(jpeg);
    size_t pixel = (size_t)jpeg->output_components;
    int is_whole = request->right == 0 && request->bottom == 0;
    int32_t left = request->left, top = request->top;
    int32_t right = is_whole ? (int32_t)jpeg->output_width : request->right;
    int32_t bottom = is_whole ? (int32_t)jpeg->output_height : request->bottom;
    *row = malloc(jpeg->output_width * pixel);
    for (int32_t y = 0; y < (int32_t)jpeg->output_height; y++) {
        jpeg_read_scanlines(jpeg, row, 1);
        if (y >= top && y < bottom)
            memcpy(out + (y - top) * stride, *row + (size_t)left * pixel,
                   (size_t)(right - left) * pixel);
    }
    jpeg_finish_decompress(jpeg);
}

int judge(const uint8_t *data, size_t size, const fd_request *request, uint8_t *out,
          ptrdiff_t stride) {
    struct jpeg_decompress_struct jpeg;
    listener heard = {.warnings = 0};
    uint8_t *row = NULL;
    jpeg.err = jpeg_std_error(&heard.jpeg);
    heard.jpeg.error_exit = leave;
    heard.jpeg.emit_message = listen;
    int is_fine = 0;
    if (!setjmp(heard.escape)) {
        jpeg_create_decompress(&jpeg);
        jpeg_mem_src(&jpeg, data, (unsigned long)size);
        decode(&jpeg, request, out, stride, &row);
        is_fine = heard.warnings == 0;
    }
    jpeg_destroy_decompress(&jpeg);
    free(row);
    return is_fine;
}
