/* errors.c: libjpeg's errors and warnings as messages, and which of them mean missing pixels. */
#include "internal.h"

#include <string.h>

#include <jerror.h>

static void keep_words(j_common_ptr jpeg, fd_errors *errors) {
    char words[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, words);
    snprintf(errors->message, sizeof errors->message, "%s", words);
}

static fd_status status_of(int code) {
    switch (code) {
    case JERR_OUT_OF_MEMORY:
        return FD_NO_MEMORY;
    case JERR_NO_BACKING_STORE:
    case JERR_IMAGE_TOO_BIG:
        return FD_TOO_LARGE;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_MISMATCHED_QUANT_TABLE: /* redefined between two scans: they cannot become one scan */
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return FD_UNSUPPORTED;
    default:
        return FD_DAMAGED;
    }
}

static void leave(j_common_ptr jpeg) {
    fd_errors *errors = (fd_errors *)jpeg->err;
    keep_words(jpeg, errors);
    errors->status = status_of(jpeg->err->msg_code);
    longjmp(errors->escape, 1);
}

/* Whether blocks were filled in: bits ran out, or a restart marker is missing. A missing end marker
 * (JWRN_JPEG_EOF) does not count, since all pixels may be there. */
static int says_missing(int code) { return code == JWRN_HIT_MARKER || code == JWRN_MUST_RESYNC; }

/* Keep the message of the worst warning: the first about missing pixels, else the first one. */
static void warn(j_common_ptr jpeg, int level) {
    fd_errors *errors = (fd_errors *)jpeg->err;
    if (level >= 0)
        return; /* a trace message */
    int missing = says_missing(jpeg->err->msg_code);
    if (errors->warnings++ == 0 || (missing && !errors->missing))
        keep_words(jpeg, errors);
    errors->missing |= missing;
}

static void say_nothing(j_common_ptr jpeg) { (void)jpeg; }

void fd_errors_begin(fd_errors *errors) {
    jpeg_std_error(&errors->jpeg);
    errors->jpeg.error_exit = leave;
    errors->jpeg.emit_message = warn;
    errors->jpeg.output_message = say_nothing;
    errors->status = FD_OK;
    errors->warnings = 0;
    errors->missing = 0;
    errors->message[0] = '\0';
}

fd_status fd_errors_note(fd_errors *errors, fd_status status, const char *words) {
    snprintf(errors->message, sizeof errors->message, "%s", words);
    errors->status = status;
    return status;
}

_Noreturn void fd_errors_leave(fd_errors *errors, fd_status status, const char *words) {
    fd_errors_note(errors, status, words);
    longjmp(errors->escape, 1);
}
