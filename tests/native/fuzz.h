/* fuzz.h: what fuzz.c offers to corpus.c and to libFuzzer. */
#ifndef FASTDECODE_FUZZ_H
#define FASTDECODE_FUZZ_H

#include "fastdecode.h"

enum { HEAD = 40, OPERATIONS = 6 };

/* What is allowed of each file; libFuzzer's inputs have to stay quick. */
extern fd_limits fuzz_limits;

/* Do with `data` what the HEAD bytes at `head` say; abort if a promise is broken. */
void fuzz_one(const uint8_t *head, const uint8_t *data, size_t size);

/* The last of the operations, in fuzz_crop.c, and what that keeps. */
void fuzz_crop(const uint8_t *head, const uint8_t *data, size_t size);
void fuzz_crop_end(void);

/* Give back what is kept between calls. */
void fuzz_end(void);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

#endif
