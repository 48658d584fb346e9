/* rows.c: decodes a JPEG to rows of pixels, one row of MCUs at a time.
 *
 * Two MCUs at a time are decoded and transformed, while their coefficients are in the L1 cache. Of a
 * progressive file, progressive.c decodes a row of MCUs before it is transformed.
 * Samples go to one ring of rows per component, which holds two rows of MCUs, because chroma is
 * interpolated from the rows above and below. MCUs outside the window are parsed, but not
 * transformed. Rows above it are skipped up to the last restart marker from which libjpeg would start.
 *
 * Every baseline file is read exactly as far as libjpeg-turbo reads it for the same window. So where
 * this decoder returns pixels, libjpeg would have given no warning. A progressive file is read only as
 * far as the pixels need, unless `thorough` is set: libjpeg reads all of it, and may warn of the rest. */
#include "progressive.h"

#include <stdlib.h>

enum {
    AT_ONCE = 2,   /* MCUs */
    /* Bytes before and after each row of samples: what `fd_steps` reads beyond it, a step before and
     * almost two after it. */
    MARGIN = 2 * FD_COLOUR_STEP,
    SLACK = 64, /* coefficients after the last block, of which the first may be written */
    MOST_KEPT = 16 << 20 /* bytes per buffer that are kept from image to image */
};

/* The samples of one component. */
typedef struct {
    int is_wanted;
    int32_t side; /* samples along a block's side: 8, 4, 2 or 1 */
    int32_t across, down; /* blocks in an MCU */
    int32_t wider, taller; /* 1; or 2, if each sample covers two pixels */
    int is_smooth; /* chroma is interpolated, not repeated */
    int32_t width, height; /* samples in the image */
    int32_t left; /* the sample column at which the ring starts */
    int32_t rows; /* in the ring, a power of two */
    size_t stride;
    uint8_t *ring;
    fd_idct *idct;
    const uint16_t *quantiser;
    fd_room room;
} plane;

/* A block of an MCU. */
typedef struct {
    int c; /* its component */
    int is_stored; /* all of its coefficients are needed, not only the DC one */
    const fd_table *dc, *ac;
    const uint16_t *quantiser;
} mcu_block;

/* A position in the scan. */
typedef struct {
    fd_bits bits;
    const uint8_t *from, *limit; /* of this interval; the reader gives up beyond `limit` */
    size_t interval; /* its number */
    int32_t left; /* MCUs that are left in it */
} position;

struct fd_baseline {
    fd_frame frame;
    fd_scan scan;
    fd_table tables[2][4];
    fd_progressive progressive;
    plane planes[3];
    const fd_steps *steps;
    const fd_block_sink *sink; /* NULL: the coefficients become pixels */
    fd_room blocks_room, pixels_room, wide_room;
    int16_t *blocks; /* the coefficients of AT_ONCE MCUs */
    uint8_t *pixels; /* a ring of rows for the sink, or one row */
    uint8_t *wide[2]; /* rows of chroma in the window's full width */
    mcu_block mcu[FD_MOST_BLOCKS];
    int32_t left, top, right, bottom; /* the window, in reduced pixels */
    int32_t width, height; /* of the whole image, reduced */
    int32_t first_mcu, end_mcu; /* the MCUs of a row that the window needs */
    int32_t start, first_row, end_row; /* rows of MCUs: the first read, the first kept, the end */
    int32_t mcu_height; /* reduced pixels */
    int looks_down; /* the last row of pixels needs samples below it */
};

fd_baseline *fd_baseline_create(void) { return calloc(1, sizeof(fd_baseline)); }

void fd_baseline_destroy(fd_baseline *baseline) {
    if (baseline == NULL)
        return;
    for (int c = 0; c < 3; c++)
        fd_room_free(&baseline->planes[c].room);
    fd_room_free(&baseline->scan.bytes_room);
    fd_room_free(&baseline->scan.ends_room);
    fd_room_free(&baseline->blocks_room);
    fd_room_free(&baseline->pixels_room);
    fd_room_free(&baseline->wide_room);
    fd_progressive_free(&baseline->progressive);
    free(baseline);
}

/* ---- the plan ---- */

static int32_t ceil_of(int64_t value, int64_t divisor) {
    return (int32_t)((value + divisor - 1) / divisor);
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

/* The samples along the side of a reduced block of component `c`. As in jdmaster.c, chroma is
 * reduced less if that saves interpolating it. */
static int32_t side_of(const fd_frame *frame, int c, int32_t reduce) {
    const fd_component *component = &frame->component[c];
    int32_t least_side = FD_SIDE / reduce, side = least_side;
    while (side < FD_SIDE && frame->across * least_side % (component->across * side * 2) == 0 &&
           frame->down * least_side % (component->down * side * 2) == 0)
        side *= 2;
    return side;
}

static void choose_transform(fd_baseline *baseline, plane *to) {
    to->idct = to->side == 8   ? baseline->steps->idct_8x8
               : to->side == 4 ? baseline->steps->idct_4x4
               : to->side == 2 ? baseline->steps->idct_2x2
                               : fd_idct_1x1;
}

static void plan_plane(fd_baseline *baseline, int c, int32_t reduce, int is_wanted) {
    const fd_frame *frame = &baseline->frame;
    const fd_component *component = &frame->component[c];
    plane *to = &baseline->planes[c];
    int32_t unit = FD_SIDE / reduce;
    to->is_wanted = is_wanted;
    to->side = side_of(frame, c, reduce);
    to->across = component->across;
    to->down = component->down;
    to->wider = frame->across * unit / (component->across * to->side);
    to->taller = frame->down * unit / (component->down * to->side);
    to->width = ceil_of((int64_t)frame->width * component->across * to->side,
                        (int64_t)frame->across * FD_SIDE);
    to->height = ceil_of((int64_t)frame->height * component->down * to->side,
                         (int64_t)frame->down * FD_SIDE);
    /* As jdsample.c: not at 1/8, and not with fewer than three columns. */
    to->is_smooth = unit > 1 && (to->wider == 1 || to->width > 2);
    to->quantiser = frame->quantisers[component->quantiser];
    choose_transform(baseline, to);
}

/* Plan which rows of MCUs to read, and which to keep. */
static void plan_rows(fd_baseline *baseline, int32_t reduce) {
    const fd_frame *frame = &baseline->frame;
    int32_t height = baseline->mcu_height, at_once = frame->rows_at_once;
    int32_t last = (baseline->bottom - 1) / height;
    /* libjpeg computes two rows of pixels together, and has read the samples below them. */
    if (baseline->looks_down && (baseline->bottom - 1) % height >= height - 2)
        last++;
    last = (last / at_once + 1) * at_once;
    baseline->end_row = least(last, frame->mcus_down);
    baseline->first_row = most(baseline->top - 1, 0) / height;
    baseline->start = 0;
    /* The same rule as fd_source_jump's. */
    int32_t unit = FD_SIDE * frame->down;
    int32_t first = baseline->top * reduce - unit * at_once;
    if (frame->is_progressive || frame->interval == 0 || first <= 0)
        return;
    int32_t start = first / unit;
    start -= start % at_once;
    while (start > 0 && (int64_t)start * frame->mcus_across % frame->interval != 0)
        start -= at_once;
    baseline->start = most(start, 0);
}

static void plan_columns(fd_baseline *baseline, int32_t reduce) {
    const fd_frame *frame = &baseline->frame;
    int32_t width = FD_SIDE * frame->across / reduce;
    /* Interpolation needs the samples next to the window's. */
    baseline->first_mcu = most(baseline->left - 2, 0) / width;
    baseline->end_mcu = least((baseline->right + 1) / width + 1, frame->mcus_across);
}

/* Plan the window of `target`, and what it needs of the file. Returns 0 if it leaves the image. */
static int plan(fd_baseline *baseline, const fd_target *target) {
    const fd_frame *frame = &baseline->frame;
    int32_t reduce = target->reduce;
    baseline->width = ceil_of(frame->width, reduce);
    baseline->height = ceil_of(frame->height, reduce);
    baseline->left = target->left;
    baseline->top = target->top;
    baseline->right = target->right;
    baseline->bottom = target->bottom;
    if (target->left == 0 && target->top == 0 && target->right == 0 && target->bottom == 0) {
        baseline->right = baseline->width;
        baseline->bottom = baseline->height;
    }
    if (baseline->left < 0 || baseline->top < 0 || baseline->left >= baseline->right ||
        baseline->top >= baseline->bottom || baseline->right > baseline->width ||
        baseline->bottom > baseline->height)
        return 0;
    int is_grey = target->sink == NULL && target->layout == FD_L;
    baseline->mcu_height = FD_SIDE * frame->down / reduce;
    baseline->looks_down = 0;
    for (int c = 0; c < frame->components; c++) {
        plan_plane(baseline, c, reduce, c == 0 || !is_grey);
        const plane *made = &baseline->planes[c];
        if (made->is_wanted && made->taller == 2 && made->is_smooth)
            baseline->looks_down = 1;
    }
    plan_rows(baseline, reduce);
    plan_columns(baseline, reduce);
    return 1;
}

/* ---- memory ---- */

static int make_room(fd_baseline *baseline, const fd_target *target) {
    const fd_frame *frame = &baseline->frame;
    int32_t mcus = baseline->end_mcu - baseline->first_mcu;
    for (int c = 0; c < frame->components; c++) {
        plane *to = &baseline->planes[c];
        if (!to->is_wanted)
            continue;
        to->rows = 2 * to->down * to->side;
        to->left = baseline->first_mcu * to->across * to->side;
        to->stride = (size_t)mcus * (size_t)(to->across * to->side) + 2 * MARGIN;
        to->ring = fd_room_for(&to->room, to->stride * (size_t)to->rows);
        if (to->ring == NULL)
            return 0;
    }
    size_t width = (size_t)(baseline->right - baseline->left) + 2 * MARGIN;
    size_t rows = target->sink == NULL ? 1 : (size_t)target->sink->rows_kept + 1;
    size_t blocks = AT_ONCE * (size_t)frame->blocks * FD_COEFFICIENTS + SLACK;
    baseline->pixels = fd_room_for(&baseline->pixels_room, rows * 4 * width);
    baseline->wide[0] = fd_room_for(&baseline->wide_room, 2 * width);
    baseline->blocks = (int16_t *)fd_room_for(&baseline->blocks_room,
                                              blocks * sizeof *baseline->blocks);
    if (baseline->pixels == NULL || baseline->wide[0] == NULL || baseline->blocks == NULL)
        return 0;
    baseline->wide[1] = baseline->wide[0] + width;
    return 1;
}

/* Build the tables of each component (some may share one), and describe the blocks of an MCU. */
static int make_tables(fd_baseline *baseline) {
    const fd_frame *frame = &baseline->frame;
    uint32_t made = 0;
    for (int c = 0; c < frame->components; c++) {
        const int32_t which[2] = {frame->component[c].dc, frame->component[c].ac};
        for (int kind = 0; kind < 2; kind++) {
            uint32_t bit = 1u << (4 * kind + which[kind]);
            if (!(made & bit) &&
                !fd_table_make(&baseline->tables[kind][which[kind]],
                               &frame->codes[kind][which[kind]], kind == 0 ? FD_DC : FD_AC, 0))
                return 0;
            made |= bit;
        }
    }
    mcu_block *next = baseline->mcu;
    for (int c = 0; c < frame->components; c++) {
        const fd_component *component = &frame->component[c];
        const plane *to = &baseline->planes[c];
        for (int i = 0; i < component->across * component->down; i++)
            *next++ = (mcu_block){c, to->is_wanted && to->side > 1,
                                  &baseline->tables[0][component->dc],
                                  &baseline->tables[1][component->ac], to->quantiser};
    }
    return 1;
}

/* ---- MCUs to samples ---- */

static uint8_t *row_of(const plane *of, int32_t y) {
    return of->ring + (size_t)(y & (of->rows - 1)) * of->stride + MARGIN;
}

/* Transform `count` MCUs, the first of them in column `x` of row `y`, and write to the rings. */
static int transform(fd_baseline *baseline, int32_t x, int32_t y, int count) {
    size_t mcu = (size_t)baseline->frame.blocks * FD_COEFFICIENTS;
    const int16_t *block = baseline->blocks;
    int fine = 1;
    for (int c = 0; c < baseline->frame.components; c++) {
        const plane *to = &baseline->planes[c];
        size_t width = (size_t)(to->across * to->side);
        if (!to->is_wanted)
            break;
        for (int32_t down = 0; down < to->down; down++) {
            uint8_t *out = row_of(to, (y * to->down + down) * to->side) +
                           (size_t)(x - baseline->first_mcu) * width;
            if (to->across == 1) {
                fine &= to->idct(block, block + (size_t)(count - 1) * mcu, to->quantiser, out,
                                 to->stride);
                block += FD_COEFFICIENTS;
                continue;
            }
            for (int i = 0; i < count; i++)
                fine &= to->idct(block + (size_t)i * mcu, block + (size_t)i * mcu + FD_COEFFICIENTS,
                                 to->quantiser, out + (size_t)i * width, to->stride);
            block += 2 * FD_COEFFICIENTS;
        }
    }
    return fine;
}

/* Give the coefficients of MCU `x` of row `y` to the sink; those of a progressive file are in its row. */
static void give_blocks(const fd_baseline *baseline, int32_t x, int32_t y, const int16_t *block) {
    const fd_frame *frame = &baseline->frame;
    for (int c = 0; c < frame->components; c++) {
        const fd_component *of = &frame->component[c];
        const fd_coefficients *row = &baseline->progressive.components[c];
        for (int32_t i = 0; i < of->across * of->down; i++, block += FD_COEFFICIENTS) {
            int32_t down = i / of->across, column = x * of->across + i % of->across;
            int is_real = column < fd_blocks_across(frame, c) &&
                          y * of->down + down < fd_blocks_down(frame, c);
            const int16_t *found = frame->is_progressive
                                       ? row->blocks + (down * row->across + column) * FD_STRIDE
                                       : block;
            baseline->sink->block(baseline->sink->state, c, is_real ? found : NULL);
        }
    }
}

static void begin_interval(const fd_baseline *baseline, position *at, size_t interval) {
    const fd_scan *scan = &baseline->scan;
    at->interval = interval;
    at->from = scan->bytes + (interval ? scan->ends[interval - 1] : 0);
    at->left = baseline->frame.interval ? baseline->frame.interval : INT32_MAX;
    fd_bits_begin(&at->bits, at->from);
}

/* Whether the reader stayed within the interval and, at its end, has read all of it. */
static int is_within(const fd_baseline *baseline, const position *at, int is_done) {
    const uint8_t *here = at->from + fd_bytes_read(&at->bits, at->from);
    const uint8_t *end = baseline->scan.bytes + baseline->scan.ends[at->interval];
    return is_done ? here == end : here <= end;
}

/* Decode a row of MCUs; keep those that the window needs, if the window needs the row. */
static FD_VARIANTS(int, decode_mcus, (fd_baseline * baseline, position *at, int32_t y),
                   (baseline, at, y)) {
    const fd_frame *frame = &baseline->frame;
    int32_t blocks = frame->blocks;
    int is_needed = y >= baseline->first_row && y < baseline->end_row;
    int32_t first = is_needed ? baseline->first_mcu : INT32_MAX;
    for (int32_t x = 0; x < frame->mcus_across;) {
        int is_kept = x >= first && x < baseline->end_mcu;
        int count = is_kept && x + 1 < baseline->end_mcu ? AT_ONCE : 1;
        int16_t *block = baseline->blocks;
        for (int i = 0; i < count; i++) {
            if (at->left == 0) {
                if (!is_within(baseline, at, 1))
                    return 0;
                begin_interval(baseline, at, at->interval + 1);
            }
            at->left--;
            for (int32_t b = 0; b < blocks; b++) {
                const mcu_block *of = &baseline->mcu[b];
                if (is_kept && of->is_stored)
                    fd_block(&at->bits, of->dc, of->ac, of->quantiser, block, of->c, 1);
                else
                    fd_block(&at->bits, of->dc, of->ac, of->quantiser, block, of->c, 0);
                block += FD_COEFFICIENTS;
            }
            if (FD_RARELY(at->bits.next > at->limit || at->bits.is_odd))
                return 0;
        }
        for (int i = 0; FD_RARELY(baseline->sink != NULL) && i < count; i++)
            give_blocks(baseline, x + i, y, baseline->blocks + i * blocks * FD_COEFFICIENTS);
        if (is_kept && !transform(baseline, x, y, count))
            return 0;
        x += count;
    }
    return 1;
}

/* ---- the same of a progressive file ---- */

static int begin_progressive(fd_baseline *baseline, const fd_target *target, const uint8_t *data,
                             size_t size) {
    fd_frame *frame = &baseline->frame;
    fd_need needs[3] = {FD_NO_SCAN, FD_NO_SCAN, FD_NO_SCAN};
    for (int c = 0; c < frame->components; c++) {
        const plane *to = &baseline->planes[c];
        if (target->thorough || (to->is_wanted && to->side > 1))
            needs[c] = FD_ALL_SCANS;
        else if (to->is_wanted)
            needs[c] = FD_DC_SCANS;
    }
    int64_t pixels = (int64_t)frame->width * frame->height;
    return fd_progressive_begin(&baseline->progressive, &baseline->scan, frame, needs,
                                fd_most_scans(&target->limits, pixels, size), data, size);
}

/* Two blocks with no coefficient but DC: all samples of a block are the same, whatever its side. Returns
 * 0 as fd_idct does. */
static int fill_blocks(const plane *to, const int16_t *first, const int16_t *second, uint8_t *out) {
    int32_t levels[2] = {first[0], second[0]};
    size_t side = (size_t)to->side;
    for (int i = 0; i < 2; i++) {
        int32_t level = (levels[i] * to->quantiser[0] + 4) >> 3;
        if (level < -512 || level > 511)
            return 0;
        levels[i] = most(0, least(level + 128, 255));
    }
    for (size_t y = 0; y < side; y++, out += to->stride) {
        memset(out, levels[0], side);
        memset(out + side, levels[1], side);
    }
    return 1;
}

/* Transform the blocks of row `y` of MCUs that the window needs, and write to the rings. */
static int transform_row(const fd_baseline *baseline, int32_t y) {
    int fine = 1;
    for (int c = 0; c < baseline->frame.components; c++) {
        const plane *to = &baseline->planes[c];
        const fd_coefficients *from = &baseline->progressive.components[c];
        int32_t first = baseline->first_mcu * to->across, end = baseline->end_mcu * to->across;
        if (!to->is_wanted)
            break;
        for (int32_t down = 0; down < to->down; down++) {
            uint8_t *out = row_of(to, (y * to->down + down) * to->side);
            const int16_t *block = from->blocks + (size_t)(down * from->across + first) * FD_STRIDE;
            const uint64_t *masks = from->masks + down * from->across;
            for (int32_t x = first; x < end; x += 2) {
                int32_t other = x + 1 < end ? 1 : 0; /* the last one may be alone */
                const int16_t *second = block + other * FD_STRIDE;
                if ((masks[x] | masks[x + other]) == 0)
                    fine &= fill_blocks(to, block, second, out);
                else
                    fine &= to->idct(block, second, to->quantiser, out, to->stride);
                block += 2 * FD_STRIDE;
                out += 2 * to->side;
            }
        }
    }
    return fine;
}

/* Read the rows of MCUs that the window does not need. */
static int read_rest(fd_baseline *baseline) {
    for (int32_t y = baseline->end_row; y < baseline->frame.mcus_down; y++)
        if (!fd_progressive_row(&baseline->progressive, y))
            return 0;
    return 1;
}

/* Repeat the outermost samples beyond the edges of the image. */
static void extend(const fd_baseline *baseline, int32_t y) {
    for (int c = 1; c < baseline->frame.components; c++) {
        const plane *of = &baseline->planes[c];
        if (!of->is_wanted || of->wider == 1)
            continue;
        int32_t first = y * of->down * of->side;
        int32_t beyond = of->width - of->left;
        int is_there = (size_t)beyond <= of->stride - 2 * MARGIN;
        for (int32_t row = first; row < first + of->down * of->side; row++) {
            uint8_t *samples = row_of(of, row);
            samples[-1] = samples[0];
            if (is_there)
                samples[beyond] = samples[beyond - 1];
        }
    }
}

/* ---- samples to pixels ---- */

/* Return row `y` of a chroma plane in the window's columns: in the ring, or interpolated in `wide`. */
static const uint8_t *chroma_row(const fd_baseline *baseline, const plane *of, int32_t y,
                                 uint8_t *wide) {
    const fd_steps *steps = baseline->steps;
    int32_t left = baseline->left, right = baseline->right;
    int32_t first = left / of->wider, count = (right - 1) / of->wider + 1 - first;
    int32_t row = y / of->taller;
    const uint8_t *near = row_of(of, row) + (first - of->left);
    if (of->wider == 1 && of->taller == 1)
        return near;
    if (!of->is_smooth) {
        for (int32_t i = 0; i < count * of->wider; i++)
            wide[i] = near[i / of->wider];
        return wide + left % of->wider;
    }
    int is_lower = y & 1;
    int32_t other = is_lower ? least(row + 1, of->height - 1) : most(row - 1, 0);
    const uint8_t *far = row_of(of, other) + (first - of->left);
    if (of->taller == 1)
        steps->widen(wide, near, (size_t)count);
    else if (of->wider == 1)
        steps->between(wide, near, far, is_lower, (size_t)count);
    else
        steps->widen_between(wide, near, far, (size_t)count);
    return wide + left % of->wider;
}

/* Grey pixels of 3 or 4 bytes. */
static void repeat(uint8_t *out, const uint8_t *grey, size_t count, size_t bytes) {
    if (bytes == 3) {
        for (size_t i = 0; i < count; i++)
            out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = grey[i];
        return;
    }
    for (size_t i = 0; i < count; i++) {
        out[4 * i] = out[4 * i + 1] = out[4 * i + 2] = grey[i];
        out[4 * i + 3] = 255;
    }
}

/* Convert the window's part of row `y` to 3 or 4 bytes per pixel. Bytes after it must not be written,
 * so its end is computed elsewhere, unless there is room. */
static void colour_row(fd_baseline *baseline, int32_t y, uint8_t *out, size_t bytes, int has_room) {
    const plane *planes = baseline->planes;
    size_t count = (size_t)(baseline->right - baseline->left);
    const uint8_t *luma = row_of(&planes[0], y) + (baseline->left - planes[0].left);
    if (baseline->frame.components == 1) {
        repeat(out, luma, count, bytes);
        return;
    }
    const uint8_t *cb = chroma_row(baseline, &planes[1], y, baseline->wide[0]);
    const uint8_t *cr = chroma_row(baseline, &planes[2], y, baseline->wide[1]);
    void (*colours)(uint8_t *, const uint8_t *, const uint8_t *, const uint8_t *,
                    size_t) = bytes == 3 ? baseline->steps->rgb : baseline->steps->rgbx;
    if (has_room) {
        colours(out, luma, cb, cr, count);
        return;
    }
    /* Leave three pixels: RGB is stored in pieces of 32 bytes, of which 24 count. */
    size_t direct = count < 3 ? 0 : (count - 3) / FD_COLOUR_STEP * FD_COLOUR_STEP;
    if (direct)
        colours(out, luma, cb, cr, direct);
    colours(baseline->pixels, luma + direct, cb + direct, cr + direct, count - direct);
    memcpy(out + bytes * direct, baseline->pixels, bytes * (count - direct));
}

static void hand_out(fd_baseline *baseline, const fd_target *target, int32_t y) {
    const fd_sink *sink = target->sink;
    int32_t row = y - baseline->top;
    size_t count = (size_t)(baseline->right - baseline->left);
    if (sink != NULL) {
        size_t stride = 4 * (count + 2 * MARGIN);
        uint8_t *out = baseline->pixels + (size_t)(row % (sink->rows_kept + 1)) * stride;
        colour_row(baseline, y, out, 4, 1);
        sink->row(sink->state, row, out);
        return;
    }
    uint8_t *out = target->out + row * target->stride;
    if (target->layout == FD_L)
        memcpy(out, row_of(&baseline->planes[0], y) + (baseline->left - baseline->planes[0].left),
               count);
    else
        colour_row(baseline, y, out, target->layout == FD_RGB ? 3 : 4, 0);
}

/* ---- the interface ---- */

/* Hand out the rows of pixels that are complete with row `y` of MCUs; `next` is the first of them. */
static int32_t hand_out_rows(fd_baseline *baseline, const fd_target *target, int32_t y,
                             int32_t next) {
    int32_t there = (y + 1) * baseline->mcu_height - baseline->looks_down;
    int32_t end = y + 1 == baseline->frame.mcus_down ? baseline->bottom
                                                     : least(there, baseline->bottom);
    if (baseline->sink != NULL) {
        baseline->sink->row_end(baseline->sink->state);
        return end;
    }
    extend(baseline, y);
    for (; next < end; next++)
        hand_out(baseline, target, next);
    return next;
}

/* Whether there is a long run of zeros in what was read since `begin`. */
static int has_zeros(const uint8_t *begin, const position *at) {
    const uint8_t *here = at->from + fd_bytes_read(&at->bits, at->from);
    return fd_has_zeros(begin, (size_t)(here - begin), FD_MANY_ZEROS);
}

static int decode_rows(fd_baseline *baseline, const fd_target *target) {
    const fd_frame *frame = &baseline->frame;
    const fd_scan *scan = &baseline->scan;
    int32_t next = baseline->top;
    position at = {.limit = scan->bytes + scan->ends[scan->count - 1] + 8};
    begin_interval(baseline, &at,
                   baseline->start == 0
                       ? 0
                       : (size_t)((int64_t)baseline->start * frame->mcus_across / frame->interval));
    const uint8_t *begin = at.from;
    int32_t end = baseline->end_row;
    int may_be = fd_may_be_zeros(frame), is_whole = end == frame->mcus_down;
    for (int32_t y = baseline->start; y < end; y++) {
        if (!decode_mcus(baseline, &at, y))
            return 0;
        if (y >= baseline->first_row && y < baseline->end_row)
            next = hand_out_rows(baseline, target, y, next);
        if (y + 1 == baseline->end_row && !(may_be && is_whole) && has_zeros(begin, &at)) {
            if (!may_be)
                return 0;
            end = frame->mcus_down; /* only the end tells whether they were data */
        }
    }
    return is_within(baseline, &at, end == frame->mcus_down || at.left == 0);
}

static int decode_progressive(fd_baseline *baseline, const fd_target *target) {
    int32_t next = baseline->top;
    for (int32_t y = 0; y < baseline->end_row; y++) {
        if (!fd_progressive_row(&baseline->progressive, y))
            return 0;
        for (int32_t x = 0; baseline->sink != NULL && x < baseline->frame.mcus_across; x++)
            give_blocks(baseline, x, y, baseline->blocks);
        if (y < baseline->first_row)
            continue;
        if (!transform_row(baseline, y))
            return 0;
        next = hand_out_rows(baseline, target, y, next);
    }
    int zeros = fd_progressive_zeros(&baseline->progressive);
    int reads_all = target->thorough || baseline->end_row == baseline->frame.mcus_down || zeros > 0;
    if (zeros < 0)
        return 0;
    return (!reads_all || read_rest(baseline)) &&
           fd_progressive_is_within(&baseline->progressive, reads_all);
}

/* Free the memory of a huge file. */
static void give_back(fd_room *room) {
    if (room->size > MOST_KEPT)
        fd_room_free(room);
}

int fd_baseline_decode(fd_baseline *baseline, const uint8_t *data, size_t size,
                       const fd_target *target) {
    const fd_limits *limits = &target->limits;
    const fd_frame *frame = &baseline->frame;
    baseline->sink = target->blocks;
    baseline->steps = fd_kernels_now()->steps;
    int is_done = fd_frame_read(&baseline->frame, data, size) &&
                  !(limits->pixels && (int64_t)frame->width * frame->height > limits->pixels) &&
                  plan(baseline, target);
    if (is_done && frame->is_progressive)
        is_done = begin_progressive(baseline, target, data, size) && make_room(baseline, target) &&
                  decode_progressive(baseline, target);
    else if (is_done)
        is_done = fd_scan_read(&baseline->scan, frame, data, size) && make_tables(baseline) &&
                  make_room(baseline, target) && decode_rows(baseline, target);
    give_back(&baseline->scan.bytes_room);
    give_back(&baseline->scan.ends_room);
    return is_done;
}
