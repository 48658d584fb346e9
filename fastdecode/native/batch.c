/* batch.c: decodes many images in many threads.
 *
 * A pool has a queue of jobs; a job is the items of one call. All threads work on the oldest job,
 * one item at a time. The first thread that finds no item left removes the job from the queue, and
 * all go on to the next one. The job lies on its caller's stack, so the caller returns only after
 * the last thread has left the job. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* sigset_t */
#endif

#include "files.h"
#include "internal.h"
#include "room.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The items of one call, and the work to do on them. */
typedef struct job {
    struct job *next;
    enum { OPEN, DECODE, MAKE } what;
    fd_item *items;
    size_t count;
    const fd_pixels *pixels;
    const fd_recipe *recipe; /* of OPEN: if given, it leaves ranges of files to MAKE */
    const uint64_t *seeds; /* this and the next three are used only by MAKE */
    const fd_recorded *recorded;
    char *out;
    ptrdiff_t stride;
    atomic_size_t taken; /* items handed to threads; exceeds `count` at the end */
    int queued, threads; /* in the queue or not; threads at work. Under the lock */
} job;

/* What a thread makes when it is first needed, and keeps. */
typedef struct worker {
    fd_decoder *decoder;
    uint8_t *buffer;
    size_t capacity;
    fd_operation operations[FD_MOST_OPERATIONS]; /* of the item at hand */
} worker;

struct fd_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    job *first, *last;
    int ending;
    int count;
    pthread_t threads[];
};

static void settle(fd_item *item, fd_status status, int code, const char *words) {
    item->status = (int32_t)status;
    item->code = code;
    snprintf(item->message, sizeof item->message, "%s", words);
}

static void settle_errno(fd_item *item, int code) {
    char words[FD_MESSAGE];
    if (code == ENOMEM) {
        settle(item, FD_NO_MEMORY, 0, "there is no memory for the file");
        return;
    }
    fd_file_error(code, words, sizeof words);
    settle(item, FD_IO, code, words);
}

static int is_range(const fd_item *item) { return item->path == NULL && item->file > 0; }

/* ---- work on an item ---- */

static void open_item(fd_item *item) {
    memset(&item->header, 0, sizeof item->header);
    int failed = item->path != NULL ? fd_read_file(item) : is_range(item) ? fd_read_range(item) : 0;
    if (failed) {
        settle_errno(item, failed);
        return;
    }
    if (item->data == NULL) {
        settle(item, FD_ARGUMENT, 0, "neither a path nor data");
        return;
    }
    int status = fd_probe(item->data, item->size, &item->header);
    const char *fault = item->header.fault;
    settle(item, (fd_status)status, 0, fault ? fault : status ? "neither a JPEG nor a PNG" : "");
}

/* Decode an item, and do the operations that are drawn already. */
static void decode_item(fd_item *item, const job *at, worker *self, int32_t count) {
    if (item->data == NULL || item->out == NULL || (item->resized && at->pixels == NULL)) {
        settle(item, FD_ARGUMENT, 0, "nothing to decode, or nowhere to put it");
        return;
    }
    if (self->decoder == NULL && (self->decoder = fd_decoder_create()) == NULL) {
        settle(item, FD_NO_MEMORY, 0, "there is no memory for a decoder");
        return;
    }
    int status = item->resized ? fd_decode_resized(self->decoder, item->data, item->size,
                                                   &item->request, &item->resize, self->operations,
                                                   count, at->pixels, item->out)
                               : fd_decode(self->decoder, item->data, item->size, &item->request,
                                           item->out, item->stride);
    settle(item, (fd_status)status, 0, status == FD_OK ? "" : fd_decoder_message(self->decoder));
}

/* Plan the sample of an opened item, just before it is decoded. */
static void plan_sample(const job *at, size_t i, worker *self, int32_t *count) {
    fd_item *item = &at->items[i];
    uint64_t state = at->seeds == NULL ? 0 : at->seeds[i];
    item->wanted = item->status == FD_OK &&
                   (at->seeds == NULL
                        ? fd_plan_recorded(&item->header, &at->recorded[i], at->recipe,
                                           &item->request, &item->resize, self->operations, count)
                        : fd_plan_sample(&item->header, &state, at->recipe, &item->request,
                                         &item->resize, self->operations, count));
    if (item->wanted) {
        item->resized = 1;
        item->out = at->out == NULL ? NULL : at->out + (ptrdiff_t)i * at->stride;
        if (at->seeds == NULL && at->recorded[i].out != NULL)
            item->out = at->recorded[i].out;
    }
}

static void exchange_buffers(fd_item *item, worker *self) {
    uint8_t *buffer = item->buffer;
    size_t capacity = item->capacity;
    item->buffer = self->buffer;
    item->capacity = self->capacity;
    self->buffer = buffer;
    self->capacity = capacity;
}

/* Plan and decode an item. A range of a file, which was not opened before, goes through the buffer
 * of this thread: from there, unlike from one buffer of many, it is decoded out of the cache. */
static void make_item(const job *at, size_t i, worker *self) {
    fd_item *item = &at->items[i];
    int lent = is_range(item);
    if (lent) {
        exchange_buffers(item, self);
        open_item(item);
    }
    int32_t count = 0;
    plan_sample(at, i, self, &count);
    if (item->wanted)
        decode_item(item, at, self, count);
    if (lent && item->wanted && item->status == FD_OK) {
        exchange_buffers(item, self);
        item->data = NULL;
    } /* else it is read again: the item keeps the buffer */
}

static void work_on(job *at, worker *self) {
    size_t i;
    while ((i = atomic_fetch_add_explicit(&at->taken, 1, memory_order_relaxed)) < at->count) {
        fd_item *item = &at->items[i];
        if (at->what == MAKE)
            make_item(at, i, self);
        else if (at->what == DECODE && item->wanted)
            decode_item(item, at, self, 0);
        else if (at->what == OPEN && !(at->recipe != NULL && is_range(item)))
            open_item(item);
    }
}

/* ---- threads ---- */

/* A thread, which holds the lock but while it waits or works:
 *
 *   wait for a job; enter it; take items by an atomic counter until there is none; leave it
 *   the first to leave takes the job off the queue, so nobody enters it any more
 *   the last to leave wakes the callers: of the job that is neither in the queue nor has a thread in it
 */
static void *run(void *argument) {
    fd_pool *pool = argument;
    worker self = {0};
    pthread_mutex_lock(&pool->lock);
    while (!pool->ending) {
        job *at = pool->first;
        if (at == NULL) {
            pthread_cond_wait(&pool->work, &pool->lock);
            continue;
        }
        at->threads++;
        pthread_mutex_unlock(&pool->lock);
        work_on(at, &self);
        pthread_mutex_lock(&pool->lock);
        if (at->queued) { /* then it is still the first in the queue */
            at->queued = 0;
            pool->first = at->next;
        }
        if (--at->threads == 0)
            pthread_cond_broadcast(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    fd_decoder_destroy(self.decoder);
    fd_aligned_free(self.buffer);
    return NULL;
}

#ifndef _WIN32
/* Leave signals to the caller's threads, except those of faults, which belong to their thread. New
 * threads inherit it. */
static void block_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}
#endif

static int start_threads(fd_pool *pool, int threads) {
#ifndef _WIN32
    sigset_t before;
    block_signals(&before);
#endif
    while (pool->count < threads &&
           pthread_create(&pool->threads[pool->count], NULL, run, pool) == 0)
        pool->count++;
#ifndef _WIN32
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    return pool->count == threads;
}

/* Add a job to the queue, and wait until it is done. */
static void do_job(fd_pool *pool, job *at) {
    if (at->count == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    if (pool->first == NULL)
        pool->first = at;
    else
        pool->last->next = at;
    pool->last = at;
    at->queued = 1;
    if (at->count < (size_t)pool->count)
        for (size_t i = 0; i < at->count; i++)
            pthread_cond_signal(&pool->work);
    else
        pthread_cond_broadcast(&pool->work);
    while (at->queued || at->threads)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

fd_pool *fd_pool_create(int threads) {
    if (threads < 1)
        return NULL;
    fd_pool *pool = malloc(sizeof *pool + (size_t)threads * sizeof(pthread_t));
    if (pool == NULL)
        return NULL;
    memset(pool, 0, sizeof *pool);
    if (pthread_mutex_init(&pool->lock, NULL) != 0)
        goto no_lock;
    if (pthread_cond_init(&pool->work, NULL) != 0)
        goto no_work;
    if (pthread_cond_init(&pool->finished, NULL) != 0)
        goto no_finished;
    if (start_threads(pool, threads))
        return pool;
    fd_pool_destroy(pool);
    return NULL;
no_finished:
    pthread_cond_destroy(&pool->work);
no_work:
    pthread_mutex_destroy(&pool->lock);
no_lock:
    free(pool);
    return NULL;
}

void fd_pool_destroy(fd_pool *pool) {
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void fd_pool_open(fd_pool *pool, fd_item *items, size_t count) {
    job at = {.what = OPEN, .items = items, .count = count};
    do_job(pool, &at);
}

void fd_pool_decode(fd_pool *pool, fd_item *items, size_t count, const fd_pixels *pixels) {
    job at = {.what = DECODE, .items = items, .count = count, .pixels = pixels};
    do_job(pool, &at);
}

fd_made fd_pool_make(fd_pool *reading, fd_pool *decoding, fd_item *items, size_t count,
                     const uint64_t *seeds, const fd_recorded *recorded, const fd_recipe *recipe,
                     const fd_pixels *pixels, void *out, ptrdiff_t stride) {
    job at = {.what = MAKE,
              .items = items,
              .count = count,
              .pixels = pixels,
              .recipe = recipe,
              .seeds = seeds,
              .recorded = recorded,
              .out = out,
              .stride = stride};
    fd_made done = {.made = 0};
    job opening = {.what = OPEN, .items = items, .count = count, .recipe = recipe};
    for (size_t i = 0; i < count; i++) {
        if (!is_range(&items[i])) { /* else there is nothing to open yet */
            do_job(reading, &opening);
            break;
        }
    }
    do_job(decoding, &at);
    for (size_t i = 0; i < count; i++) {
        done.made += items[i].wanted && items[i].status == FD_OK;
        done.held += items[i].capacity;
    }
    return done;
}

void fd_items_free(fd_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].data == items[i].buffer)
            items[i].data = NULL;
        fd_aligned_free(items[i].buffer);
        items[i].buffer = NULL;
        items[i].capacity = 0;
    }
}
