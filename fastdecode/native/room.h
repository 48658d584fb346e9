/* room.h: memory that is kept from image to image. */
#pragma once

#include <stddef.h>

/* Memory that grows and never shrinks. Zeroed before its first use. */
typedef struct {
    void *memory;
    size_t size;
} fd_room;

/* Return `size` bytes that start at a cache line; old contents may be lost. NULL: no memory. */
void *fd_room_for(fd_room *room, size_t size);

void fd_room_free(fd_room *room);

/* The same without keeping: `size` is a multiple of a cache line. */
void *fd_aligned(size_t size);
void fd_aligned_free(void *memory);
