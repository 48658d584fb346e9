/* fastdecode.h: the native core. It decodes a JPEG or PNG to pixels or to a resized and normalised tensor,
 * or a batch of files to a batch of such tensors, with random crops, all without Python.
 *
 * Units: sizes and offsets are pixels or bytes as named; boxes are (left, top, right, bottom) with
 * right and bottom one past the end; strides are bytes. "Reduced pixels" are those of the image
 * after `reduce`: it then has ceil(width / reduce) by ceil(height / reduce) of them.
 *
 * Ownership: whoever creates an object destroys it. After a call has returned, the core keeps no
 * pointer to the caller's memory, except those in an fd_item.
 *
 * Threads: an fd_decoder or fd_resampler serves one thread at a time, an fd_pool any number. The
 * only global state is the choice of instructions and of decoders, and two counters.
 *
 * Errors: every function that can fail returns an fd_status; FD_OK is 0. The object keeps the
 * message until its next call. No function prints, exits or aborts.
 *
 * cffi reads the part between the two lines that begin with "// cffi".
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* All else is hidden (-fvisibility=hidden). */
#pragma GCC visibility push(default)

// cffi: from here

typedef enum {
    FD_OK = 0,
    FD_DAMAGED, /* the header is damaged, or truncated */
    FD_UNSUPPORTED, /* the core leaves such a file to others: because of its kind, or of damage */
    FD_TOO_LARGE, /* more pixels than the caller allows; of fd_add_restart_markers only */
    FD_NO_MEMORY,
    FD_IO, /* the file cannot be read: `message` is the system's, `code` is errno */
    FD_ARGUMENT /* an argument is invalid */
} fd_status;

/* FD_STORED is for PNG: samples as the file has them, of 16 bits if it has more than 8
 * of them, and an index of a palette in one byte. */
typedef enum { FD_L = 1, FD_RGB, FD_RGBA, FD_STORED } fd_layout;

typedef enum { FD_UINT8 = 1, FD_FLOAT32, FD_BFLOAT16 } fd_dtype;

#define FD_MESSAGE 200

/* The `sof` of a PNG, which has no such marker: of one that the core decodes, and of others, which are
 * interlaced, animated or too wide. */
#define FD_PNG 0
#define FD_OTHER_PNG 1
#define FD_PPM                                                                                     \
    2 /* pixels as they are, which only samples are made of: "P6", of 8 bits, without a comment */

/* Grey, YCbCr, RGB, CMYK or YCCK, a palette, any other: `Color` of types.py, in its order. */
typedef enum { FD_GREYS, FD_YCC, FD_COLOURS, FD_CMYK, FD_INDICES, FD_UNUSUAL } fd_colours;

/* The contents of a JPEG's segments, up to its first scan; or of a PNG's chunks. Offsets are in bytes, and
 * those of the end of a cut segment lie behind the file. */
typedef struct {
    int32_t width, height; /* stored pixels */
    int32_t components; /* 1, 3, 4; of a PNG also 2, and 1 for a palette */
    int32_t bits; /* per sample */
    int32_t
        sof; /* low byte of the SOF marker: 0xC0 baseline, 0xC2 progressive, …; FD_PNG or FD_PPM */
    int32_t restart_interval; /* MCUs; 0 is none */
    int32_t may_turn; /* there is EXIF, XMP or text, which may hold an orientation */
    int32_t ended; /* the last two bytes are an end marker; 1 for a PNG */
    int32_t colours; /* fd_colours */
    int32_t is_interlaced, is_animated; /* a PNG */
    int32_t exif_count; /* EXIF segments of a JPEG */
    uint8_t factors[4]; /* sampling factors of the first components, four bits each */
    size_t scan_offset; /* where the data of a JPEG's first scan begins */
    size_t frame; /* where the contents of a JPEG's frame header begin */
    size_t exif, exif_end; /* contents of a JPEG's first EXIF segment, */
    size_t xmp, xmp_end; /* and its last XMP packet; 0: there is none */
    const char *fault; /* what is damaged; NULL if nothing is. Static */
} fd_header;

/* A segment of a JPEG. Of an end marker, only `at` and `marker` have a meaning. */
typedef struct {
    size_t at, end; /* its marker, and what follows it */
    int32_t marker; /* its low byte */
    int32_t length; /* that it claims: its contents and two bytes */
} fd_segment;

#define FD_SCANS 500 /* more than any JPEG has: libjpeg-turbo's fuzzers use as many */

/* Where a scan of a JPEG is. */
typedef struct {
    size_t marker; /* its SOS, */
    size_t start, end; /* its data */
    size_t zeros; /* most zeros in a row that may be data */
    int64_t interval; /* MCUs between restart markers, 0 is none; */
    int64_t intervals; /* that it must have */
    int64_t has_only_bits; /* it has a single bit, without a code, for each block */
} fd_scan_place;

/* The scans of a JPEG, and what follows them. */
typedef struct {
    int32_t count; /* the walk ends behind FD_SCANS + 1 */
    int32_t most; /* more count as hostile in a file of this size */
    int32_t ended; /* an end marker follows */
    int32_t gap; /* there is a long run of zeros between two segments */
    int32_t begun; /* there is a part of each coefficient, */
    int32_t complete; /* and all bits of it */
    int32_t in_order; /* the restart markers count 0 to 7 (T.81, B.2.1) */
    fd_scan_place scans[FD_SCANS + 1];
} fd_stream;

/* The caller's limits; 0 is no limit. */
typedef struct {
    int64_t pixels; /* that the header promises */
    int32_t scans; /* in a progressive file; more are FD_UNSUPPORTED */
} fd_limits;

/* Which part of an image to decode, and how. */
typedef struct {
    int32_t left, top, right, bottom; /* reduced pixels; all 0 is the whole image */
    int32_t reduce; /* 1, 2, 4 or 8 */
    int32_t layout; /* fd_layout */
    int32_t thorough; /* of a progressive file, also decode the scans and rows that these pixels do
                       * not need, so that damage there is noticed */
    fd_limits limits;
} fd_request;

/* How a box is resized: with the core's own filter, a triangle whose result is rounded once, as are
 * OpenCV's; or with the result of one of Pillow's or torch's filters, byte by byte. */
typedef enum {
    FD_FILTER_OWN = 0,
    FD_FILTER_TRIANGLE, /* Pillow's BILINEAR */
    FD_FILTER_CUBIC,
    FD_FILTER_LANCZOS,
    FD_FILTER_HAMMING,
    FD_FILTER_BOX,
    FD_FILTER_TORCH_TRIANGLE, /* torch's antialiased "bilinear" of bytes, and its two others */
    FD_FILTER_TORCH_CUBIC,
    FD_FILTER_TORCH_LANCZOS,
    FD_FILTER_LINEAR, /* OpenCV's INTER_LINEAR, which is not antialiased */
    FD_FILTER_AREA, /* its INTER_AREA */
    FD_FILTER_NEAREST /* of FD_RESIZE alone */
} fd_resize_filter;

/* Resizes a box of the reduced image to a canvas, of which one rectangle is computed. */
typedef struct {
    double left, top, right, bottom; /* the box, in reduced pixels; edges may be fractions */
    int32_t in_left, in_top, in_right,
        in_bottom; /* pixels that may be read: the filter stops here */
    int32_t canvas_width, canvas_height; /* what the box is resized to */
    int32_t x, y, width, height; /* the rectangle, in pixels of the canvas, inside it */
    int32_t flip; /* mirror from left to right, as the last step */
    int32_t filter; /* fd_resize_filter */
} fd_resize;

/* The axes of a result that is cut into patches. */
typedef enum { FD_PATCHES, FD_PLANES, FD_REPEATS, FD_ROWS, FD_COLUMNS } fd_patch_axis;

#define FD_PATCH_AXES 5

/* How a result is cut into patches of `width` by `height` pixels: it has whole squares of `merge` by `merge`
 * of them. The patches of a square follow one another, row by row, and so do the squares. */
typedef struct {
    int32_t width, height; /* 0: it is one image */
    int32_t merge;
    int32_t repeats; /* how often each value is stored */
    int32_t order[FD_PATCH_AXES]; /* each fd_patch_axis, from the outermost to the innermost */
} fd_patches;

/* How a pixel value v (0 to 255) of channel c is stored: v for FD_UINT8, else v * scale[c] + bias[c],
 * multiplied and added in float32, each rounded; or table[256 * c + v]. FD_BFLOAT16 is the nearest one. */
typedef struct {
    int32_t dtype; /* fd_dtype */
    int32_t
        channels; /* 3; or 1, the first of them; or of bytes that are an image 4, with any fourth */
    int32_t
        channels_first; /* 1: (channels, height, width); 0: (height, width, channels); no gaps */
    float scale[3], bias[3];
    const float *table; /* NULL, or finite numbers */
    fd_patches patches; /* then `channels_first` has no meaning */
} fd_pixels;

/* ---- augmentations ---- */

typedef enum {
    FD_BRIGHTNESS = 1,
    FD_CONTRAST,
    FD_SATURATION,
    FD_HUE,
    FD_SHARPNESS,
    FD_GREY, /* the luminance in all channels */
    FD_INVERT,
    FD_SOLARIZE,
    FD_SOLARIZE_ADD,
    FD_POSTERIZE,
    FD_EQUALIZE,
    FD_AUTOCONTRAST,
    FD_BLUR,
    FD_BOX_BLUR, /* Pillow's Gaussian blur, which is made of boxes */
    FD_MIRROR, /* left to right */
    FD_TURN_OVER, /* top to bottom */
    FD_WARP,
    FD_ROTATE,
    FD_AFFINE,
    FD_PERMUTE,
    FD_MIX_BEGIN, /* keep the image; the mix is the image times `share` */
    FD_MIX_ADD, /* add the image times `share` to the mix, and go back to the image that was kept */
    FD_MIX_END, /* blend the image that was kept with the mix */
    FD_ERASE, /* of float32 results, after all others */
    FD_PERSPECTIVE,
    FD_RESIZE,
    FD_CROP,
    FD_PAD,
    /* The others have OpenCV's results. */
    FD_LEVELS,
    FD_SHIFT_COLOURS,
    FD_FILL,
    FD_NOISE,
    FD_MEAN_BLUR,
    FD_CLAHE,
    FD_CHANNELS,
    FD_GAMMA,
    FD_CONVOLVE,
    FD_MEDIAN,
    FD_DOWNSCALE, /* shrink the image and let it grow again, without interpolation */
    FD_LENS,
    FD_GRID,
    FD_ELASTIC
} fd_operation_kind;

/* Whose results an operation gives: Pillow's, those of torchvision's functions for tensors, or OpenCV's. */
typedef enum { FD_PILLOW = 0, FD_TORCHVISION, FD_OPENCV } fd_library;

/* What FD_ERASE writes: `level`, or normal numbers for each channel or value. */
typedef enum { FD_NOISE_NONE = 0, FD_NOISE_CHANNEL, FD_NOISE_PIXEL } fd_noise;

typedef enum { FD_NEAREST = 0, FD_BILINEAR, FD_BICUBIC } fd_filter;

/* What FD_PAD writes: `fill`, the nearest pixel, or a mirror image without or with the edge. */
typedef enum { FD_PAD_CONSTANT = 0, FD_PAD_EDGE, FD_PAD_REFLECT, FD_PAD_SYMMETRIC } fd_padding;

#define FD_VALUES 8

typedef struct {
    int32_t kind; /* fd_operation_kind */
    int32_t library; /* fd_library */
    int32_t filter; /* fd_filter of FD_WARP, FD_ROTATE, FD_AFFINE and FD_PERSPECTIVE;
                     * fd_resize_filter of FD_RESIZE; fd_padding of FD_PAD, and of the step that
                     * draws an FD_CROP */
    int32_t noise; /* fd_noise, for FD_ERASE */
    /* The numbers of the operation, or of the step that draws it: by place for fd_drawn, and by name, for the
     * kind of that name or those in the comment. A flag is 0 or 1. */
    union {
        double value[FD_VALUES];
        double
            amount; /* FD_BRIGHTNESS to FD_SHARPNESS: the factor; of FD_HUE the shift, -0.5 to 0.5 of the circle */
        double threshold; /* FD_SOLARIZE: the smallest value to invert */
        double lift; /* FD_SOLARIZE_ADD: what is added to values below 128 */
        double bits; /* FD_POSTERIZE: how many to keep, 0 to 8 */
        double without_white; /* FD_EQUALIZE of OpenCV: white pixels do not count */
        struct {
            double width; /* of the kernel, odd; 0: albumentations' for that sigma */
            double sigma_across, sigma_down;
            double height; /* odd; 0: the width */
        } blur;
        double sigma; /* FD_BOX_BLUR */
        double matrix[8]; /* FD_WARP (6 of them), FD_PERSPECTIVE: from the result to the source */
        struct {
            double degrees; /* counter-clockwise about a centre */
            double grows; /* 1: the result shows all of the image; 2: about another centre, too */
            double right, down; /* how far the centre is from the image's */
        } rotate;
        struct {
            double degrees; /* clockwise */
            double right, down, scale;
            double shear_across, shear_down; /* degrees */
            double centre_right, centre_down; /* how far the centre is from the image's */
        } affine;
        struct {
            double degrees; /* counter-clockwise */
            double right, down, scale_across;
            double shear_across, shear_down; /* degrees */
            double scale_down;
        } opencv_affine;
        struct {
            double others[7], padding;
        } outside; /* an fd_padding: FD_WARP, FD_AFFINE, FD_LENS, FD_GRID and FD_ELASTIC of OpenCV */
        double channels[3]; /* FD_PERMUTE: which one (0 to 2) becomes red, green and blue */
        double share; /* FD_MIX_BEGIN, FD_MIX_ADD; FD_MIX_END: of the mix in the result */
        struct {
            double left, top, width, height;
        } box; /* FD_ERASE; FD_CROP and FD_FILL: inside the image */
        struct {
            double width, height;
            double by_area; /* of a step: it becomes FD_FILTER_AREA where a side shrinks */
        } resize;
        struct {
            double left, top, right, bottom; /* pixels */
        } pad;
        struct {
            double factor, summand;
            double of_mean, of_grey_mean; /* shares of the mean level and of the grey image's */
        } levels; /* the sum of all four is truncated */
        struct {
            double hue, saturation, value; /* what is added; the circle of hues is 180 */
        } shift; /* FD_SHIFT_COLOURS */
        struct {
            double deviation, mean; /* of FD_NOISE_CHANNEL, a pixel's channels get the same */
        } normal; /* FD_NOISE */
        struct {
            double side; /* odd: of a square in which a line of pixels has weights */
            double degrees, direction; /* of the line; -1 to 1 */
            double right, down; /* its shift, -1 to 1 */
            double is_square; /* all of the square has weights */
        } mean_blur;
        struct {
            double limit, columns, rows; /* how many tiles there are across and down */
        } clahe;
        struct {
            double factor[3], summand[3];
        } scaling; /* FD_CHANNELS: of red, green and blue; truncated */
        double exponent; /* FD_GAMMA: of levels from 0 to 1 */
        struct {
            double share; /* of the sharpened or embossed image in the result */
            double strength; /* of a sharpened one: its lightness */
            double embosses;
        } convolve;
        double side; /* FD_MEDIAN: of a square, odd */
        double scale; /* FD_DOWNSCALE */
        struct {
            double distortion; /* albumentations' coefficient */
            double is_fisheye; /* of which lens it is; else a camera's */
        } lens;
        struct {
            double steps; /* of an axis */
            double change, range; /* of their lengths: the least one, and how much more */
            double fills; /* the grid fills the image */
        } grid;
        struct {
            double alpha, sigma;
            double is_joint, is_uniform; /* both axes move alike; the noise is uniform */
            double reach; /* the weights of the Gaussian on each side */
        } elastic;
        /* Of the steps that depend on the size. Pairs are across and down. */
        struct {
            double width; /* 0, as the height is: the longer side becomes `longest` */
            double height; /* 0: the shorter side gets the width */
            double longest; /* the longer side is at most this; 0: no limit */
        } scale_to;
        struct {
            double unused[2], narrowest, widest; /* width to height, if no drawn box fits */
        } box_limits;
        struct {
            double side[2], unused[2];
            double border[4]; /* left, top, right, bottom */
        } random_crop;
        struct {
            double lowest, highest; /* the height */
            double aspect; /* width to height */
        } sized_crop; /* FD_RANDOM_CROP */
        struct {
            double shorter, longer; /* most pixels of a side; of the longer one, 0 is no limit */
            double width, height; /* instead of those */
        } scale_by;
        struct {
            double width, height;
            double rounds_down; /* half of an odd margin */
        } central_crop;
        struct {
            double width, height; /* one may be 0 */
            double by_area; /* as of `resize` */
            double most; /* factor; 0: no limit */
        } fit;
        struct {
            double side[2]; /* at least */
            double multiple[2]; /* instead of that, if not 0 */
            double before[2]; /* the share of the padding at the left and the top; -1: random */
        } pad_to;
        double unit; /* FD_MULTIPLES */
        struct {
            double least, most;
        } hole[2];
        double reach; /* FD_PERSPECTIVE_CHANGE: of corners, in halves of the image */
    };
    uint8_t fill[4]; /* RGB of pixels from outside, for FD_PAD, too; if the last one is 1,
                       * torchvision blends it with pixels that are partly outside */
    float level[3]; /* this and the next for FD_ERASE */
    uint64_t seed; /* of the noise, an FD_GRID or an FD_ELASTIC */
} fd_operation;

/* A random program is a tree of steps, each followed by the steps inside it. */
typedef enum {
    FD_OPERATION = 1,
    FD_SEQUENCE, /* all inner steps in order */
    FD_SHUFFLE, /* all inner steps in random order */
    FD_CHOICE, /* `picks` different inner steps, by weight */
    FD_MIX, /* the mix of all inner steps, each done on the image as it was: torchvision's or timm's AugMix */
    FD_ERASURE, /* FD_ERASE of a random box: `area` and `aspect` */
    /* These depend on the size of the image so far. */
    FD_SCALE, /* resize to `scale_to` */
    FD_BOX, /* crop a random box of the whole, of `area` and `aspect` of width to height */
    FD_RANDOM_CROP, /* first pad to that size if `picks` is 1; if it is 2, together with the border. If it is
                     * 3, a `sized_crop` as far as the image goes */
    FD_SCALE_BY, /* resize by the largest factor with which the sides are in their limits. With a width and a
                  * height instead: by the largest one that fits, times a factor of `area`. If `picks` is 0,
                  * by that factor alone, and `resize.by_area` */
    FD_CENTRAL_CROP, /* if it is larger than the image: padded with black, or not possible if `picks` is 0 */
    FD_FIT, /* resize by one factor, so that the image just fits in that size or, if `picks` is 1, covers it */
    FD_PAD_TO, /* if `picks` is 1, pad to a square */
    FD_MULTIPLES, /* resize to multiples of `unit`, with at least area[0] and at most area[1] pixels */
    FD_HOLE, /* FD_FILL a random box: if `picks` is 1, of shares of the image, else of whole pixels */
    FD_PERSPECTIVE_CHANGE /* move the corners; as albumentations by normal shares of the image, with a
                           * deviation of `area` */
} fd_step_kind;

/* value[at] of an operation becomes start + or - range * a number between 0 and 1. */
typedef struct {
    int32_t at;
    int32_t copied; /* which other value is the same; -1: none */
    int32_t is_whole; /* the product is truncated to an integer */
    int32_t is_rounded; /* the sum is rounded to an integer */
    int32_t is_cut; /* it is truncated to one */
    int32_t either_sign; /* the product is subtracted as often as it is added; else it is added */
    int32_t
        of; /* start and range are in: 0: pixels or levels, 1: widths, 2: heights of the image */
    double start, range;
    double mean, deviation; /* of the number; a negative deviation: it is uniform */
} fd_drawn;

typedef struct {
    int32_t kind; /* fd_step_kind */
    int32_t inner; /* how many of the following steps are inside it, at any depth */
    int32_t picks; /* FD_CHOICE */
    int32_t drawn_count;
    const fd_drawn *drawn; /* FD_OPERATION: its random values */
    double probability; /* that it is done */
    double weight; /* inside an FD_CHOICE */
    double alpha; /* FD_MIX: of the Dirichlet and beta distributions of its weights */
    /* FD_ERASURE: the smallest and largest share of the area, and logarithm of height to width;
     * FD_BOX: of width to height. */
    double area[2], aspect[2];
    fd_operation operation; /* of an FD_MIX only the library */
} fd_step;

typedef struct {
    const fd_step *steps;
    int32_t count;
} fd_program;

#define FD_MOST_OPERATIONS 48

/* How each image of a batch becomes a sample, depending on its size and a seed. */
typedef struct {
    const fd_program *program; /* from the whole image to the result */
    int32_t width, height; /* of the result */
    double headroom; /* the reduced box is at least this many times larger than
                      * the size it is resized to; 0: no reduction */
    int64_t pixels; /* images with more are not made */
    int32_t upright; /* nor are those with an Exif segment */
} fd_recipe;

/* A sample whose random values have been drawn: the size of its image, and what is done to it. If it has a place
 * of its own in `out`, its result has another size than the recipe's. */
typedef struct {
    int32_t width, height;
    int32_t count;
    const fd_operation *operations;
    void *out;
    int32_t out_width, out_height;
} fd_recorded;

typedef struct fd_decoder fd_decoder;
typedef struct fd_resampler fd_resampler;
typedef struct fd_pool fd_pool;

/* ---- structure.c: what a file says of itself ---- */

/* Read the header of `data` (`size` bytes). FD_UNSUPPORTED if it is neither a JPEG nor a PNG. On failure
 * `header` is not complete. */
int fd_probe(const uint8_t *data, size_t size, fd_header *header);

/* Find the first segment, or end marker, of a JPEG from `at` on; the first one is at 2. Stray bytes and
 * fill bytes may precede it, and markers without a segment. Returns 0 if there is none: it is empty then,
 * at the end. */
int fd_next_segment(const uint8_t *data, size_t size, size_t at, fd_segment *found);

/* Walk over the scans of a JPEG. FD_UNSUPPORTED if fd_probe does not read it. */
int fd_read_scans(const uint8_t *data, size_t size, fd_stream *stream);

/* ---- decode.c: one image ---- */

/* Create a decoder, which reuses its memory (some hundred KB to some MB) from image to image; NULL
 * if there is not enough memory. The caller destroys it. */
fd_decoder *fd_decoder_create(void);
void fd_decoder_destroy(fd_decoder *decoder);

/* The message of this decoder's last failure; static. */
const char *fd_decoder_message(const fd_decoder *decoder);

/* Decode the part of the JPEG at `data` that `request` names into `out`. Its rows lie `stride` bytes
 * apart (negative: upwards), with 1, 3, 4 bytes per pixel for L, RGB, RGBA. Only pixels of
 * `out` are written; after a failure, some of them may be. The pixels equal those of a full decode. */
int fd_decode(fd_decoder *decoder, const uint8_t *data, size_t size, const fd_request *request,
              uint8_t *out, ptrdiff_t stride);

/* Decode only what `resize` needs of the JPEG at `data`, apply `count` operations to the result, and
 * write (3, height, width) or (height, width, 3) values, or patches, to `out` in the form of `pixels`; the
 * size is that after the operations. Without operations there is no image in between. Only reduce and limits of
 * `request` are used. */
int fd_decode_resized(fd_decoder *decoder, const uint8_t *data, size_t size,
                      const fd_request *request, const fd_resize *resize,
                      const fd_operation *operations, int32_t count, const fd_pixels *pixels,
                      void *out);

/* ---- restart_markers.c: lossless repack ---- */

/* Rewrite the JPEG at `data` as baseline with a restart marker after each row of MCUs and optimised
 * Huffman tables. Coefficients and all APPn and COM markers stay the same; data after the end marker
 * (an MPO's other images) is dropped. FD_UNSUPPORTED if the core does not decode the file, for
 * whatever reason. The caller owns `*out` (`*out_size` bytes), and frees it with fd_free. */
int fd_add_restart_markers(const uint8_t *data, size_t size, const fd_limits *limits, uint8_t **out,
                           size_t *out_size);
void fd_free(void *memory);

/* ---- resample.c: antialiased resizing ---- */

fd_resampler *fd_resampler_create(void);
void fd_resampler_destroy(fd_resampler *resampler);

/* Do the same with pixels in memory: `height` rows of `width` RGB pixels, `stride` bytes apart. Each has 3
 * bytes, or 4 `channels`, of which the fourth may be anything. FD_ARGUMENT if `resize` does not fit them, or an operation is not possible; then nothing is
 * written. */
int fd_resize_rgb(fd_resampler *resampler, const uint8_t *rgb, int32_t width, int32_t height,
                  int32_t channels, ptrdiff_t stride, const fd_resize *resize,
                  const fd_operation *operations, int32_t count, const fd_pixels *pixels,
                  void *out);

/* Names of the instruction sets that can run here, best first, separated by spaces, such as
 * "avx2 sse2 plain". */
const char *fd_instructions(void);

/* Use one of them in all threads from now on ("" is the best one); for tests. FD_ARGUMENT if it
 * cannot run here. */
int fd_use_instructions(const char *name);

/* ---- augment.c and program.c: augmentations ---- */

typedef struct fd_augmenter fd_augmenter;

/* Draw the operations of a sample with the random numbers that follow `*state`, which moves on. The
 * size is that of the image, and becomes that of the result. FD_ARGUMENT if the steps are no tree, draw
 * too many operations, or are not possible for an image of this size. */
int fd_draw_operations(const fd_program *program, int32_t *width, int32_t *height, uint64_t *state,
                       fd_operation operations[FD_MOST_OPERATIONS], int32_t *count);

/* Set a resize of an image of this size to the first of `count` operations that it can do: those that
 * crop or mirror, and one that resizes. Crops come before what gives the same after them, such as the
 * border of an image. It then reads and computes only what the others need. Those are moved to the front;
 * returns their number. */
int32_t fd_fold(int32_t width, int32_t height, fd_resize *resize, fd_operation *operations,
                int32_t count);

/* Replace a size by that of an operation's result. Returns 0 if it is not possible. */
int fd_resized_by(const fd_operation *operation, int32_t *width, int32_t *height);

fd_augmenter *fd_augmenter_create(void);
void fd_augmenter_destroy(fd_augmenter *augmenter);

/* Apply `count` operations in order to `height` rows of `width` RGB pixels without gaps, and write the
 * result in the same form to `out`, which may be `rgb` itself and has the size that fd_draw_operations
 * tells. FD_ARGUMENT if an operation is not possible; then nothing is written. */
int fd_augment_rgb(fd_augmenter *augmenter, const uint8_t *rgb, int32_t width, int32_t height,
                   const fd_operation *operations, size_t count, uint8_t *out);

/* ---- plan.c: choosing what to decode ---- */

/* Plan a sample: fill in reduce and layout of `request`, all of `resize`, and the operations
 * that follow it. The random numbers are those of SplitMix64 after `*state`, which moves on. Returns 0,
 * and changes nothing else, if fastdecode.torch would not decode such an image in this core: CMYK,
 * arithmetic coding, no end marker; or if its program is not possible for it. */
int fd_plan_sample(const fd_header *header, uint64_t *state, const fd_recipe *recipe,
                   fd_request *request, fd_resize *resize,
                   fd_operation operations[FD_MOST_OPERATIONS], int32_t *count);

/* Do the same for a sample that is recorded, of which the recipe's program says nothing. Returns 0 also if
 * the image has another size by now, or its result another one than is expected. */
int fd_plan_recorded(const fd_header *header, const fd_recorded *recorded, const fd_recipe *recipe,
                     fd_request *request, fd_resize *resize,
                     fd_operation operations[FD_MOST_OPERATIONS], int32_t *count);

/* ---- batch.c: many images, many threads ---- */

/* One image of a batch. Zero it before its first use; it keeps `buffer` from batch to batch. */
typedef struct {
    /* Set by the caller, for fd_pool_open. */
    const char *path; /* file to read, or NULL: the bytes are at `data` */
    const uint8_t *data; /* with a path or a file: fd_pool_open makes it point into `buffer` */
    size_t size;
    int32_t file; /* an open file, from which `size` bytes at `offset` are read; 0 is none */
    int64_t offset;
    /* Set by fd_pool_open. */
    fd_header header;
    /* Set by the caller, for fd_pool_decode. */
    int32_t wanted; /* 0: skip this item */
    int32_t resized; /* 1: fd_decode_resized; 0: fd_decode, to `out` and `stride` */
    fd_request request;
    fd_resize resize;
    void *out;
    ptrdiff_t stride;
    /* Set by both functions. */
    int32_t status; /* fd_status; an item that failed does not touch the others */
    int32_t code; /* errno of FD_IO */
    char message[FD_MESSAGE];
    /* The core's own memory, into which it reads a file. */
    uint8_t *buffer;
    size_t capacity;
} fd_item;

/* Start `threads` threads (at least 1) that wait for work; NULL if they cannot be started. They do
 * not survive a fork: the child must create a new pool, and must not destroy this one. */
fd_pool *fd_pool_create(int threads);

/* End the threads after they have finished their current work. */
void fd_pool_destroy(fd_pool *pool);

/* Read each item's file, if it names one, and its header. Returns when all items are done. Several
 * threads may call at once; the pool then serves their calls in order. */
void fd_pool_open(fd_pool *pool, fd_item *items, size_t count);

/* Decode each item with `wanted`, in the same way; `pixels` applies to those that are resized. */
void fd_pool_decode(fd_pool *pool, fd_item *items, size_t count, const fd_pixels *pixels);

/* The result of fd_pool_make. */
typedef struct {
    size_t made; /* items that were made */
    size_t held; /* total capacity of their buffers, in bytes */
} fd_made;

/* Open the items in the threads of `reading`. Then make, in the threads of `decoding`, the sample that
 * fd_plan_sample plans for the seed of each item, at `out` + its number * `stride`; or without seeds the
 * one that is `recorded` for it, there or at its own place. An item with a plan has `wanted` set, and its plan in `request` and
 * `resize`; other items stay as fd_pool_open left them. */
fd_made fd_pool_make(fd_pool *reading, fd_pool *decoding, fd_item *items, size_t count,
                     const uint64_t *seeds, const fd_recorded *recorded, const fd_recipe *recipe,
                     const fd_pixels *pixels, void *out, ptrdiff_t stride);

/* Free the buffers of the items. The caller owns the items themselves. */
void fd_items_free(fd_item *items, size_t count);

// cffi: to here

#pragma GCC visibility pop
