/* judge.h: what libjpeg-turbo makes of a JPEG, for the tests that compare the core with it. */
#ifndef FASTDECODE_JUDGE_H
#define FASTDECODE_JUDGE_H

#include "fastdecode.h"

/* Decode the part of the image that `request` names to rows of its layout, as fd_decode does. Returns
 * whether libjpeg-turbo did so without an error or a warning. */
int judge(const uint8_t *data, size_t size, const fd_request *request, uint8_t *out,
          ptrdiff_t stride);

#endif
