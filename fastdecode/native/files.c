/* files.c: reads files into the memory of items, on POSIX and on Windows. */
#ifndef _WIN32
#undef _GNU_SOURCE /* else strerror_r is not that of POSIX */
#undef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "files.h"

#include "room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
#include <io.h>
#include <windows.h>
#else
#include <unistd.h>
#endif

enum {
    ZEROS = 16,            /* bytes after the end of a file, which a decoder may read */
    GRAIN = 64 << 10,      /* bytes: buffer sizes are multiples of it */
    MUCH = 8 << 20,        /* bytes: a buffer this much larger than needed may be too large */
    LARGEST_FILE = 1 << 30 /* bytes */
};

/* ---- what the systems do differently ---- */

#ifdef _WIN32

typedef struct __stat64 file_facts;
#define facts_of _fstat64
#define is_regular(facts) (((facts).st_mode & _S_IFMT) == _S_IFREG)
#define is_folder(facts) (((facts).st_mode & _S_IFMT) == _S_IFDIR)
#define close_file _close

/* Open a path in UTF-8. One that is made absolute and begins with a prefix may have any length. */
static int open_file(const char *path) {
    static const wchar_t PREFIX[] = L"\\\\?\\", SERVERS[] = L"\\\\?\\UNC";
    enum { BEFORE = sizeof SERVERS / sizeof *SERVERS - 1 };
    int file = -1, failed = ENOENT;
    int given = MultiByteToWideChar(CP_UTF8, 0, path, -1, NULL, 0);
    wchar_t *wide = malloc((size_t)given * sizeof *wide);
    if (wide == NULL || MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, given) == 0) {
        free(wide);
        return -(wide == NULL ? ENOMEM : EINVAL);
    }
    DWORD length = GetFullPathNameW(wide, 0, NULL, NULL);
    wchar_t *whole = malloc((BEFORE + (size_t)length) * sizeof *whole);
    if (whole != NULL && GetFullPathNameW(wide, length, whole + BEFORE, NULL) != 0) {
        wchar_t *from = whole + BEFORE;
        if (from[0] != L'\\') { /* a drive */
            from -= wcslen(PREFIX);
            memcpy(from, PREFIX, sizeof PREFIX - sizeof *PREFIX);
        } else if (from[2] != L'?' && from[2] != L'.') { /* else it has a prefix */
            from = whole + 1; /* the last one of two backslashes stays */
            memcpy(from, SERVERS, sizeof SERVERS - sizeof *SERVERS);
        }
        file = _wopen(from, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
        failed = errno;
    }
    free(whole);
    free(wide);
    return file < 0 ? -failed : file;
}

static int prepare(int file) {
    (void)file;
    return 0;
}

static int64_t read_some(int file, uint8_t *to, size_t size) {
    return _read(file, to, (unsigned)(size < INT32_MAX ? size : INT32_MAX));
}

static int64_t read_at(int file, uint8_t *to, size_t size, int64_t offset) {
    OVERLAPPED place = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD got = 0, wanted = size < INT32_MAX ? (DWORD)size : INT32_MAX;
    if (ReadFile((HANDLE)_get_osfhandle(file), to, wanted, &got, &place))
        return got;
    errno = EIO;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : -1;
}

void fd_file_error(int code, char *words, size_t size) {
    if (strerror_s(words, size, code) != 0)
        snprintf(words, size, "error %d", code);
}

#else

typedef struct stat file_facts;
#define facts_of fstat
#define is_regular(facts) S_ISREG((facts).st_mode)
#define is_folder(facts) S_ISDIR((facts).st_mode)
#define close_file close
#define read_some read
#define read_at pread

/* Open without blocking: a FIFO may have replaced the listed file. */
static int open_file(const char *path) {
    int file;
    do
        file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (file < 0 && errno == EINTR);
    return file < 0 ? -errno : file;
}

/* Block from here on: the medium may be slow. */
static int prepare(int file) { return fcntl(file, F_SETFL, 0) != 0 ? errno : 0; }

void fd_file_error(int code, char *words, size_t size) {
    if (strerror_r(code, words, size) != 0)
        snprintf(words, size, "error %d", code);
}

#endif

/* ---- reading ---- */

/* Grow the item's buffer to hold `size` bytes of a file, keeping its first `kept` bytes. */
static int reserve(fd_item *item, size_t size, size_t kept) {
    size_t needed = size + ZEROS + 1; /* one more byte, in which read() finds the end */
    size_t capacity = item->capacity;
    if (needed <= capacity && (capacity / 4 <= needed || capacity - needed <= MUCH))
        return 0;
    capacity = (needed + GRAIN - 1) / GRAIN * GRAIN;
    /* Where it is not aligned, reading at an odd offset takes more than twice as long. */
    void *buffer = fd_aligned(capacity);
    if (buffer == NULL)
        return ENOMEM;
    if (kept)
        memcpy(buffer, item->buffer, kept);
    fd_aligned_free(item->buffer);
    item->buffer = buffer;
    item->capacity = capacity;
    return 0;
}

/* Read an open file to its end, whatever size it claims to have. */
static int read_all(fd_item *item, int file) {
    file_facts facts;
    if (facts_of(file, &facts) != 0)
        return errno;
    if (!is_regular(facts)) /* a FIFO blocks, /dev/zero has no end */
        return is_folder(facts) ? EISDIR : EINVAL;
    int failed = prepare(file);
    if (failed)
        return failed;
    if (facts.st_size > LARGEST_FILE)
        return EFBIG;
    failed = reserve(item, (size_t)facts.st_size, 0);
    size_t size = 0;
    while (!failed) {
        size_t room = item->capacity - ZEROS - size;
        int64_t got = room ? read_some(file, item->buffer + size, room) : 0;
        if (got > 0) {
            size += (size_t)got;
        } else if (got < 0) {
            failed = errno == EINTR ? 0 : errno;
        } else if (room) {
            break;
        } else {
            failed = size >= LARGEST_FILE ? EFBIG : reserve(item, 2 * size, size);
        }
    }
    if (failed)
        return failed;
    memset(item->buffer + size, 0, ZEROS);
    item->data = item->buffer;
    item->size = size;
    return 0;
}

int fd_read_file(fd_item *item) {
    item->data = NULL;
    item->size = 0;
    int file = open_file(item->path);
    if (file < 0)
        return -file;
    int failed = read_all(item, file);
    close_file(file);
    return failed;
}

int fd_read_range(fd_item *item) {
    int failed = item->size > LARGEST_FILE ? EFBIG : reserve(item, item->size, 0);
    size_t size = 0;
    item->data = NULL;
    while (!failed && size < item->size) {
        int64_t got = read_at(item->file, item->buffer + size, item->size - size,
                              item->offset + (int64_t)size);
        if (got > 0)
            size += (size_t)got;
        else if (got == 0)
            failed = ENODATA;
        else
            failed = errno == EINTR ? 0 : errno;
    }
    if (failed)
        return failed;
    memset(item->buffer + size, 0, ZEROS);
    item->data = item->buffer;
    return 0;
}
