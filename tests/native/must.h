/* must.h: how the tests in C end if the core breaks a promise, or if there is no memory for them. */
#ifndef FASTDECODE_MUST_H
#define FASTDECODE_MUST_H

#include <stdio.h>
#include <stdlib.h>

/* A fuzzer keeps the input of which the program aborts. */
static inline _Noreturn void fail(const char *words) {
    fprintf(stderr, "%s: %s\n", __BASE_FILE__, words);
    abort();
}

static inline _Noreturn void fail_for(const char *name, const char *words) {
    fprintf(stderr, "%s: %s: %s\n", __BASE_FILE__, name, words);
    exit(1);
}

static inline void *must(void *memory) {
    if (memory == NULL)
        fail("no memory for the test itself");
    return memory;
}

#endif
