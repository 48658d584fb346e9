/* sets.h: every set of instructions that can run here, one after another, for the tests in C. */
#include "fastdecode.h"

#include <stdlib.h>
#include <string.h>

/* Use the first set of a list of names, and move on to the next one. Returns 0 at the end of the list, with
 * the best set in use.
 *
 *   for (const char *sets = fd_instructions(); use_next(&sets);) */
static inline int use_next(const char **names) {
    char name[16] = "";
    size_t length = strcspn(*names, " ");

    memcpy(name, *names, length < sizeof name ? length : sizeof name - 1);
    *names += length + ((*names)[length] == ' ');
    if (fd_use_instructions(name) != FD_OK)
        abort(); /* a set that is listed cannot be used */
    return length > 0;
}

/* Use the set with this number, counted from the best one, again and again. */
static inline void use_number(unsigned number) {
    const char *names = fd_instructions();
    for (number %= 6; use_next(&names) && number > 0; number--)
        names = *names ? names : fd_instructions();
}
