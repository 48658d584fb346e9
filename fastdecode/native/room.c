/* room.c: memory that starts at a cache line. */
#include "room.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

#ifdef _WIN32
#include <malloc.h>
void *fd_aligned(size_t size) { return _aligned_malloc(size, LINE); }
void fd_aligned_free(void *memory) { _aligned_free(memory); }
#else
void *fd_aligned(size_t size) { return aligned_alloc(LINE, size); }
void fd_aligned_free(void *memory) { free(memory); }
#endif

void *fd_room_for(fd_room *room, size_t size) {
    if (room->size < size) {
        fd_room_free(room);
        size = (size + size / 4 + LINE - 1) / LINE * LINE; /* for a slightly larger next image */
        room->memory = fd_aligned(size);
        if (room->memory == NULL)
            return NULL;
        room->size = size;
        memset(room->memory, 0, size);
    }
    return room->memory;
}

void fd_room_free(fd_room *room) {
    fd_aligned_free(room->memory);
    *room = (fd_room){NULL, 0};
}
