/* files.h: reading the files of items; for batch.c. */
#pragma once

#include "fastdecode.h"

/* Read the file at `path` into the item's buffer, whole, and set `data` and `size`. Only regular files
 * are read. Returns an errno. */
int fd_read_file(fd_item *item);

/* Read the item's range of an open file. Unlike an access to a mapping, this notices if the file was
 * cut. Returns an errno. */
int fd_read_range(fd_item *item);

/* The system's words for an errno. */
void fd_file_error(int code, char *words, size_t size);
