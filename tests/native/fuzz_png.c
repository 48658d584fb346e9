/* fuzz_png.c: what the core decodes of a PNG, libpng decodes to the same.
 *
 * An input is a whole PNG, whose CRCs are mended first, so that more than its CRCs is tried; or, if it
 * does not begin as one, KIND bytes that choose size and kind of an image, and its deflate stream,
 * around which a PNG is made. What is checked, but for what the sanitizers see by themselves:
 *
 *   - the core accepts nothing that libpng refuses, and its pixels are libpng's;
 *   - every instruction set accepts the same, and gives the same;
 *   - the checksums of every set are zlib's;
 *   - a region is the slice of the whole.
 *
 * File and pixels have memory of the exact size, so that ASan sees what is read or written beside them.
 *
 * check.sh builds it with libFuzzer, and runs it. With -DFILES it takes files as arguments instead. */
#include "png_decoder.h"

#include "must.h"
#include "sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

enum { KIND = 6, MOST_PIXELS = 1 << 20, REGIONS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static fd_decoder *decoder;

/* ---- making files ---- */

static void write32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t read32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void mend(uint8_t *file, size_t size) {
    for (size_t at = 8; size - at >= 12;) {
        size_t length = read32(file + at);
        if (length > size - at - 12)
            return;
        write32(file + at + 8 + length, (uint32_t)crc32(0, file + at + 4, (uInt)length + 4));
        at += 12 + length;
    }
}

static size_t add_chunk(uint8_t *to, const char *type, const uint8_t *body, size_t size) {
    write32(to, (uint32_t)size);
    memcpy(to + 4, type, 4);
    if (size)
        memcpy(to + 8, body, size);
    write32(to + 8 + size, (uint32_t)crc32(0, to + 4, (uInt)size + 4));
    return size + 12;
}

/* The checksum of what zlib makes of a stream; of damaged ones, of what comes first. */
static uint32_t checksum(const uint8_t *stream, size_t size) {
    uint8_t some[4096];
    uLong sum = adler32(0, NULL, 0);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)stream, .avail_in = (uInt)size};
    int status = Z_OK;

    if (inflateInit2(&z, -15) != Z_OK)
        fail("zlib does not begin");
    for (int i = 0; i < 1024 && status == Z_OK; i++) {
        z.next_out = some;
        z.avail_out = sizeof some;
        status = inflate(&z, Z_NO_FLUSH);
        sum = adler32(sum, some, (uInt)(sizeof some - z.avail_out));
    }
    inflateEnd(&z);
    return (uint32_t)sum;
}

/* Make a PNG of the numbers at `kind` around a deflate stream. */
static uint8_t *make(const uint8_t *kind, const uint8_t *stream, size_t size, size_t *whole) {
    static const uint8_t kinds[][2] = {{0, 1}, {0, 2},  {0, 4},  {0, 8}, {0, 16},
                                       {2, 8}, {2, 16}, {3, 1},  {3, 2}, {3, 4},
                                       {3, 8}, {4, 8},  {4, 16}, {6, 8}, {6, 16}};
    const uint8_t *chosen = kinds[kind[0] % (sizeof kinds / sizeof *kinds)];
    size_t part = kind[5] ? kind[5] : size + 6;
    uint8_t *zlib = must(malloc(size + 6));
    uint8_t *file = must(malloc(1024 + (size + 6) * 13 + 64)), palette[768];
    uint8_t ihdr[13] = {[8] = chosen[1], [9] = chosen[0]};
    size_t at = 8;

    write32(ihdr, 1u + kind[1] + (kind[4] & 1 ? 256u : 0));
    write32(ihdr + 4, 1u + kind[2]);
    zlib[0] = 0x78;
    zlib[1] = 0x9C;
    memcpy(zlib + 2, stream, size);
    write32(zlib + 2 + size, checksum(stream, size));
    memcpy(file, "\x89PNG\r\n\x1A\n", 8);
    at += add_chunk(file + at, "IHDR", ihdr, sizeof ihdr);
    if (chosen[0] == 3) {
        size_t colours = (size_t)1 << chosen[1];
        for (size_t i = 0; i < 3 * colours; i++)
            palette[i] = (uint8_t)(i * 7);
        at += add_chunk(file + at, "PLTE", palette, 3 * (kind[3] % colours + 1));
    }
    for (size_t done = 0; done < size + 6; done += part)
        at += add_chunk(file + at, "IDAT", zlib + done,
                        part < size + 6 - done ? part : size + 6 - done);
    at += add_chunk(file + at, "IEND", NULL, 0);
    free(zlib);
    *whole = at;
    return must(realloc(file, at));
}

/* ---- decoding ---- */

/* How one image lies in memory. */
typedef struct {
    int32_t width, height;
    size_t pixel; /* bytes */
} form;

typedef struct {
    const uint8_t *at;
    size_t left;
} input;

static void give(png_structp png, png_bytep to, size_t size) {
    input *from = png_get_io_ptr(png);
    if (size > from->left)
        png_error(png, "the end");
    memcpy(to, from->at, size);
    from->at += size;
    from->left -= size;
}

static void complain(png_structp png, png_const_charp words) {
    (void)words;
    longjmp(*png_set_longjmp_fn(png, longjmp, sizeof(jmp_buf)), 1);
}

static void ignore(png_structp png, png_const_charp words) { (void)png, (void)words; }

/* libpng's pixels, as FD_STORED gives them, or NULL. */
static uint8_t *expected(const uint8_t *file, size_t size, const form *of) {
    input from = {file, size};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, complain, ignore);
    png_infop info = png_create_info_struct(png);
    uint8_t *volatile pixels = must(calloc((size_t)of->height, (size_t)of->width * of->pixel));

    if (setjmp(png_jmpbuf(png))) {
        png_destroy_read_struct(&png, &info, NULL);
        free(pixels);
        return NULL;
    }
    png_set_read_fn(png, &from, give);
    png_set_benign_errors(png, 1);
    png_read_info(png, info);
    png_set_packing(png);
    png_set_swap(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)of->width * of->pixel)
        fail("libpng has another row");
    for (int32_t y = 0; y < of->height; y++)
        png_read_row(png, pixels + (size_t)y * (size_t)of->width * of->pixel, NULL);
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
    return pixels;
}

/* The core's pixels of a region, or NULL. */
static uint8_t *decoded(const uint8_t *file, size_t size, const form *of, const int32_t box[4]) {
    fd_request request = {.left = box[0],
                          .top = box[1],
                          .right = box[2],
                          .bottom = box[3],
                          .reduce = 1,
                          .layout = FD_STORED,
                          .limits = {.pixels = MOST_PIXELS}};
    size_t row = (size_t)(box[2] - box[0]) * of->pixel, rows = (size_t)(box[3] - box[1]);
    uint8_t *pixels = must(malloc(row * rows));

    if (fd_decode(decoder, file, size, &request, pixels, (ptrdiff_t)row) == FD_OK)
        return pixels;
    free(pixels);
    return NULL;
}

static void check_region(const uint8_t *file, size_t size, const form *of, const uint8_t *whole,
                         uint32_t seed) {
    int32_t box[4] = {(int32_t)(seed % (uint32_t)of->width),
                      (int32_t)(seed / 7 % (uint32_t)of->height)};
    box[2] = box[0] + 1 + (int32_t)(seed / 31 % (uint32_t)(of->width - box[0]));
    box[3] = box[1] + 1 + (int32_t)(seed / 101 % (uint32_t)(of->height - box[1]));
    size_t row = (size_t)(box[2] - box[0]) * of->pixel;
    uint8_t *part = decoded(file, size, of, box);

    if (whole != NULL && part == NULL)
        fail("a region of what it decodes is refused");
    for (int32_t y = 0; whole != NULL && y < box[3] - box[1]; y++)
        if (memcmp(part + (size_t)y * row,
                   whole + ((size_t)(box[1] + y) * (size_t)of->width + (size_t)box[0]) * of->pixel,
                   row) != 0)
            fail("a region is not the slice of the whole");
    free(part);
}

/* Of parts of any length, also those that a set takes in steps. */
static void check_checksums(const uint8_t *data, size_t size) {
    for (const char *sets = fd_instructions(); use_next(&sets);)
        for (size_t some = 0; some < size; some += 1 + some / 3) {
            const uint8_t *part = data + size - some;
            if (fd_crc32(part, some) != crc32(0, part, (uInt)some))
                fail("another CRC than zlib's");
            if (fd_adler32(0xFFF0FFF0, part, some) != adler32(0xFFF0FFF0, part, (uInt)some))
                fail("another Adler-32 than zlib's");
        }
}

static int64_t images, accepted;

static void check(const uint8_t *file, size_t size) {
    fd_header header;

    images++;
    if (fd_probe(file, size, &header) != FD_OK || header.sof != FD_PNG ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return;
    form of = {header.width, header.height,
               (size_t)header.components * (header.bits == 16 ? 2 : 1)};
    int32_t box[4] = {0, 0, of.width, of.height};
    size_t bytes = (size_t)of.width * (size_t)of.height * of.pixel;
    uint8_t *whole = decoded(file, size, &of, box);
    for (const char *sets = fd_instructions(); use_next(&sets);) {
        uint8_t *other = decoded(file, size, &of, box);
        if ((whole == NULL) != (other == NULL) ||
            (whole != NULL && memcmp(whole, other, bytes) != 0))
            fail("the instruction sets differ");
        free(other);
    }
    if (whole != NULL) {
        uint8_t *theirs = expected(file, size, &of);
        if (theirs == NULL)
            fail("decoded what libpng refuses");
        if (memcmp(whole, theirs, bytes) != 0)
            fail("other pixels than libpng's");
        free(theirs);
        accepted++;
    }
    for (uint32_t i = 1; i <= REGIONS; i++)
        check_region(file, size, &of, whole, (uint32_t)(size + i) * 2654435761u);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    size_t whole = size;
    uint8_t *file;

    check_checksums(input, size);
    if (size < KIND)
        return 0;
    if (size % 2) { /* what is kept is larger than what is needed, and hides overruns */
        fd_decoder_destroy(decoder);
        decoder = NULL;
    }
    if (decoder == NULL)
        decoder = must(fd_decoder_create());
    if (fd_is_png(input, size)) {
        file = must(malloc(size));
        memcpy(file, input, size);
        mend(file, size);
    } else {
        file = make(input, input + KIND, size - KIND, &whole);
    }
    check(file, whole);
    free(file);
    return 0;
}

#ifdef FILES
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(names[i], "rb");
        if (file == NULL)
            fail(names[i]);
        fseek(file, 0, SEEK_END);
        size_t size = (size_t)ftell(file);
        uint8_t *data = must(malloc(size));
        rewind(file);
        if (fread(data, 1, size, file) != size)
            fail(names[i]);
        fclose(file);
        LLVMFuzzerTestOneInput(data, size);
        check(data, size);
        free(data);
    }
    fd_decoder_destroy(decoder);
    printf("%lld images, %lld of them decoded by the core\n", (long long)images,
           (long long)accepted);
    if (accepted == 0)
        fail("the core decodes nothing");
    return 0;
}
#endif
