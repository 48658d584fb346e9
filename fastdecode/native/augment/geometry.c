/* geometry.c: where operations move pixels to: the sizes of results, and the matrices of warps. */
#include "operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

/* ---- matrices ---- */

/* Python's round(value, 15). */
static double rounded(double value) {
    char digits[40];

    snprintf(digits, sizeof digits, "%.15f", value);
    return strtod(digits, NULL);
}

/* An angle from 0 up to 360 degrees. */
double fd_angle_of(double degrees) {
    double angle = fmod(degrees, 360.0);

    return angle < 0.0 ? angle + 360.0 : angle;
}

/* Set the matrix that turns an image about a point. */
void fd_set_rotation(double m[6], double angle, double x, double y) {
    double radians = -(angle * (PI / 180.0));

    m[0] = m[4] = rounded(cos(radians));
    m[1] = rounded(sin(radians));
    m[3] = rounded(-sin(radians));
    m[2] = m[0] * -x + m[1] * -y + x;
    m[5] = m[3] * -x + m[4] * -y + y;
}

static void turned_size(const fd_operation *how, int32_t *width, int32_t *height) {
    double angle = fd_angle_of(how->rotate.degrees), w = *width, h = *height, m[6];
    const double corners[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    double left = HUGE_VAL, right = -HUGE_VAL, top = HUGE_VAL, bottom = -HUGE_VAL;

    if (fmod(angle, 90.0) == 0.0 && how->rotate.grows != 2.0) {
        *width = (int32_t)(fmod(angle, 180.0) == 0.0 ? w : h);
        *height = (int32_t)(fmod(angle, 180.0) == 0.0 ? h : w);
        return;
    }
    fd_set_rotation(m, angle, w / 2.0 + how->rotate.right, h / 2.0 + how->rotate.down);
    for (int i = 0; i < 4; i++) {
        double x = m[0] * corners[i][0] + m[1] * corners[i][1] + m[2];
        double y = m[3] * corners[i][0] + m[4] * corners[i][1] + m[5];
        left = fmin(left, x);
        right = fmax(right, x);
        top = fmin(top, y);
        bottom = fmax(bottom, y);
    }
    *width = (int32_t)(ceil(right) - floor(left));
    *height = (int32_t)(ceil(bottom) - floor(top));
}

/* Forwards, about the centre, a pixel goes to [a b; d e] (x, y) + (right, down); warps need the inverse, by
 * Cramer's rule.
 *
 * albumentations': about the centre, first scale, then turn counter-clockwise, shear, and move. */
static int set_opencv_affine(double m[6], const fd_operation *how, double x, double y) {
    const double degree = PI / 180.0, wider = how->opencv_affine.scale_across;
    const double higher = how->opencv_affine.scale_down;
    double turn = how->opencv_affine.degrees * degree, c = cos(turn), s = sin(turn);
    double shear_x = tan(how->opencv_affine.shear_across * degree);
    double shear_y = tan(how->opencv_affine.shear_down * degree);
    double a = (c - shear_x * s) * wider, b = (s + shear_x * c) * higher;
    double d = (shear_y * c - s) * wider, e = (shear_y * s + c) * higher, whole = a * e - b * d;
    double right = -x - how->opencv_affine.right, below = -y - how->opencv_affine.down;

    m[0] = e / whole;
    m[1] = -b / whole;
    m[3] = -d / whole;
    m[4] = a / whole;
    m[2] = m[0] * right + m[1] * below + x;
    m[5] = m[3] * right + m[4] * below + y;
    return fabs(whole) > 1e-9;
}

/* torchvision's: the matrix of its documentation, inverted, in the order of operations of its v2. */
static int set_affine(double m[6], const fd_operation *how, double x, double y) {
    const double degree = PI / 180.0, scale = how->affine.scale;
    double turn = how->affine.degrees * degree, shear_y = how->affine.shear_down * degree;
    double shear_x = tan(how->affine.shear_across * degree);
    x += how->affine.centre_right;
    y += how->affine.centre_down;
    double right = x + how->affine.right, below = y + how->affine.down;
    double a = cos(turn - shear_y) / cos(shear_y), c = sin(turn - shear_y) / cos(shear_y);

    m[0] = (cos(turn) - c * shear_x) / scale;
    m[1] = (a * shear_x + sin(turn)) / scale;
    m[3] = -c / scale;
    m[4] = a / scale;
    m[2] = x - m[0] * right - m[1] * below;
    m[5] = y - m[3] * right - m[4] * below;
    return scale > 0.0;
}

int fd_set_affine(double m[6], const fd_operation *how, double x, double y) {
    int is_good = how->library == FD_OPENCV ? set_opencv_affine(m, how, x, y)
                                            : set_affine(m, how, x, y);

    for (int i = 0; i < 6; i++)
        is_good &= fabs(m[i]) < FD_LARGEST_NUMBER;
    return is_good;
}

/* ---- sizes ---- */

enum { LARGEST_SIDE = 65500, MOST = 1 << 30 /* of a size that is only a step to another one */ };

static int is_whole(double number, double least, double most) {
    return number >= least && number <= most && number == rint(number);
}

/* Whether the box of an operation lies in an image; it may be empty. */
static int is_inside(const fd_operation *of, double width, double height) {
    return is_whole(of->box.left, 0, width) && is_whole(of->box.top, 0, height) &&
           is_whole(of->box.width, 0, width - of->box.left) &&
           is_whole(of->box.height, 0, height - of->box.top);
}

int fd_resized_by(const fd_operation *operation, int32_t *width, int32_t *height) {
    double across = *width, down = *height;

    if (operation->kind == FD_ROTATE && operation->rotate.grows != 0.0) {
        if (*width > LARGEST_SIDE || *height > LARGEST_SIDE ||
            !(fabs(operation->rotate.degrees) < FD_LARGEST_NUMBER) || /* NaN, too */
            !(fabs(operation->rotate.right) < FD_LARGEST_NUMBER) ||
            !(fabs(operation->rotate.down) < FD_LARGEST_NUMBER))
            return 0;
        turned_size(operation, width, height);
        across = *width;
        down = *height;
    } else if (operation->kind == FD_RESIZE) {
        int grows = operation->resize.width > across || operation->resize.height > down;
        int shrinks = operation->resize.width < across || operation->resize.height < down;
        if (operation->filter == FD_FILTER_AREA && grows && shrinks)
            return 0; /* OpenCV then interpolates in yet another way */
        across = operation->resize.width;
        down = operation->resize.height;
    } else if (operation->kind == FD_FILL) {
        return is_inside(operation, across, down);
    } else if (operation->kind == FD_CROP) {
        if (!is_inside(operation, across, down))
            return 0;
        across = operation->box.width;
        down = operation->box.height;
    } else if (operation->kind == FD_PAD) {
        for (int i = 0; i < 4; i++)
            if (!is_whole(operation->value[i], 0, LARGEST_SIDE))
                return 0;
        across += operation->pad.left + operation->pad.right;
        down += operation->pad.top + operation->pad.bottom;
    }
    if (!is_whole(across, 1, MOST) || !is_whole(down, 1, MOST))
        return 0;
    *width = (int32_t)across;
    *height = (int32_t)down;
    return 1;
}
