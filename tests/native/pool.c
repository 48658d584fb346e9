/* pool.c: many callers over one pool get what one decoder gives alone.
 *
 * For ThreadSanitizer and AddressSanitizer. From the repository's root:
 *
 *   cc -std=c11 -g -O1 -fsanitize=thread -Ifastdecode/native tests/native/pool.c \
 *       fastdecode/native/[!_]*.c -lpthread -lm -o /tmp/pool
 *   /tmp/pool tests/data/jpeg_kinds/gen_*.jpg
 *
 * Each file is decoded from its path, from memory, and cut in half, and cropped by a seed; a missing
 * file and a folder are among them. Ends with 0 and one line if all was as it should be. */
#undef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L

#include "fastdecode.h"
#include "must.h"

#include <errno.h>
#include <pthread.h>
#ifndef _WIN32
#include <signal.h>
#include <unistd.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, CALLERS = 6, ROUNDS = 6, SIDE = 40, SEEDS = 3, MOST_PIXELS = 1 << 20 };

#ifdef _WIN32
enum { FOLDER = EACCES }; /* as Python's open() has it */
#else
enum { FOLDER = EISDIR };
#endif

/* What an image must come to, each in three ways: whole, cut in half, resized. */
typedef struct {
    const char *path;
    uint8_t *data;
    size_t size;
    int status[3];
    uint64_t sum[3];
    size_t bytes;        /* of the whole image, as RGB */
    int planned[SEEDS];  /* whether fd_plan_sample has a plan, for each seed */
    int made[SEEDS];     /* the status of that */
    uint64_t cropped[SEEDS];
} image;

static image *images;
static size_t count;
static fd_pool *pool, *reading;
static atomic_int wrong;
static int plans, no_plans;

static const fd_pixels PIXELS = {
    .dtype = FD_FLOAT32,
    .channels = 3,
    .channels_first = 1,
    .scale = {0.5F, 1.0F, 2.0F},
    .bias = {1.0F, 0.0F, -1.0F},
};

static const fd_step STEPS[] = {
    {.kind = FD_BOX,
     .probability = 1,
     .area = {0.08, 1},
     .aspect = {-0.28, 0.28},
     .operation = {.kind = FD_CROP, .value = {0, 0, 0.75, 1.33}}},
    {.kind = FD_OPERATION,
     .probability = 1,
     .operation = {.kind = FD_RESIZE, .value = {SIDE, SIDE}}},
    {.kind = FD_OPERATION, .probability = 0.5, .operation = {.kind = FD_MIRROR}},
};
static const fd_program PROGRAM = {STEPS, sizeof STEPS / sizeof *STEPS};
static const fd_recipe RECIPE = {
    .program = &PROGRAM,
    .width = SIDE,
    .height = SIDE,
    .headroom = 1,
    .pixels = MOST_PIXELS,
};

static uint64_t sum_of(const uint8_t *bytes, size_t size) {
    uint64_t sum = 14695981039346656037U;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 1099511628211U;
    return sum;
}

static size_t result_size(const image *of, int way) {
    return way == 2 ? (size_t)3 * SIDE * SIDE * sizeof(float) : of->bytes;
}

/* Fill in what fd_pool_decode, or the two functions for one image, are to do. */
static void ask(fd_item *item, const image *of, int way) {
    item->wanted = 1;
    item->resized = way == 2;
    item->request = (fd_request){.reduce = 1, .layout = FD_RGB, .limits = {MOST_PIXELS, 100}};
    item->resize = (fd_resize){
        .right = item->header.width,
        .bottom = item->header.height,
        .in_right = item->header.width,
        .in_bottom = item->header.height,
        .canvas_width = SIDE,
        .canvas_height = SIDE,
        .width = SIDE,
        .height = SIDE,
        .flip = 1,
    };
    item->stride = 3 * (ptrdiff_t)item->header.width;
    memset(item->out, 0, result_size(of, way));
}

static void load(image *into, const char *path) {
    FILE *file = fopen(path, "rb");
    into->path = path;
    into->data = must(malloc(MOST_PIXELS));
    into->size = file ? fread(into->data, 1, MOST_PIXELS, file) : 0;
    if (file)
        fclose(file);
    if (into->size)
        into->data = must(realloc(into->data, into->size)); /* exactly, for ASan */
}

/* Decode one image in its three ways, alone. 0 if it is of no use here. */
static int expect(fd_decoder *decoder, image *of) {
    fd_item item = {.data = of->data, .size = of->size};
    if (fd_probe(of->data, of->size, &item.header) != FD_OK ||
        (int64_t)item.header.width * item.header.height > MOST_PIXELS)
        return 0;
    of->bytes = (size_t)item.header.width * (size_t)item.header.height * 3;
    for (int way = 0; way < 3; way++) {
        size_t size = way == 1 ? of->size / 2 : of->size;
        item.out = must(malloc(result_size(of, way)));
        if (way == 1 && fd_probe(of->data, size, &item.header) != FD_OK)
            of->status[way] = -1; /* as an item, it fails when it is opened */
        else {
            ask(&item, of, way);
            of->status[way] = way == 2 ? fd_decode_resized(decoder, of->data, size, &item.request,
                                                           &item.resize, NULL, 0, &PIXELS, item.out)
                                       : fd_decode(decoder, of->data, size, &item.request, item.out,
                                                   item.stride);
        }
        of->sum[way] = sum_of(item.out, result_size(of, way));
        free(item.out);
        fd_probe(of->data, of->size, &item.header);
    }
    return 1;
}

/* Crop it by each seed, alone. */
static void expect_crops(fd_decoder *decoder, image *of) {
    static float out[3 * SIDE * SIDE];
    fd_header header;
    fd_probe(of->data, of->size, &header);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fd_request request = {.limits = {MOST_PIXELS, 100}};
        fd_resize resize;
        fd_operation operations[FD_MOST_OPERATIONS];
        int32_t left = 0;
        uint64_t state = seed;
        of->planned[seed] = fd_plan_sample(&header, &state, &RECIPE, &request, &resize, operations,
                                           &left);
        if (of->planned[seed])
            of->made[seed] = fd_decode_resized(decoder, of->data, of->size, &request, &resize,
                                               operations, left, &PIXELS, out);
        of->cropped[seed] = sum_of((uint8_t *)out, sizeof out);
        *(of->planned[seed] ? &plans : &no_plans) += 1;
    }
}

static void complain(const char *what, const fd_item *item, int way) {
    atomic_fetch_add(&wrong, 1);
    fprintf(stderr, "%s: %s, way %d: status %d, %s\n", item->path ? item->path : "(memory)", what,
            way, (int)item->status, item->message);
}

static void check(const fd_item *item, const image *of, int way) {
    int status = of->status[way];
    if (status == -1 ? item->wanted || item->status == FD_OK : item->status != status)
        complain("another status", item, way);
    else if (status == FD_OK && sum_of(item->out, result_size(of, way)) != of->sum[way])
        complain("other pixels", item, way);
    else if ((item->status == FD_OK) != (item->message[0] == '\0'))
        complain("no words, or words for nothing", item, way);
}

/* Say where the images are, and behind them a folder and what is not there. */
static void take(fd_item *items, unsigned salt, int cut) {
    for (size_t i = 0; i < count; i++) {
        int half = cut && (i + salt) % 3 == 1, from_file = !half && (i + salt) % 2;
        items[i].path = from_file ? images[i].path : NULL;
        items[i].data = from_file ? NULL : images[i].data;
        items[i].size = half ? images[i].size / 2 : images[i].size;
        items[i].request.limits = (fd_limits){MOST_PIXELS, 100};
    }
    items[count].path = "/";
    items[count + 1].path = "/there/is/no/such.jpg";
}

/* One batch that is cropped. */
static void crop(unsigned salt) {
    size_t each = 3 * SIDE * SIDE, made = 0;
    fd_item *items = must(calloc(count + 2, sizeof *items));
    float *out = must(calloc(count + 2, each * sizeof *out));
    uint64_t *seeds = must(calloc(count + 2, sizeof *seeds));
    for (size_t i = 0; i < count; i++)
        seeds[i] = (i + salt) % SEEDS;
    take(items, salt, 0);
    fd_made done = fd_pool_make(reading, pool, items, count + 2, seeds, NULL, &RECIPE, &PIXELS, out,
                                (ptrdiff_t)(each * sizeof *out));
    for (size_t i = 0; i < count; i++) {
        const image *of = &images[i];
        int planned = of->planned[seeds[i]], good = planned && of->made[seeds[i]] == FD_OK;
        made += (size_t)good;
        if (items[i].wanted != planned || (planned && items[i].status != of->made[seeds[i]]))
            complain("another fate", &items[i], 3);
        else if (good &&
                 sum_of((uint8_t *)(out + i * each), each * sizeof *out) != of->cropped[seeds[i]])
            complain("other pixels", &items[i], 3);
    }
    if (done.made != made || items[count].status != FD_IO || items[count + 1].wanted)
        complain("not counted, or not refused", &items[count], 3);
    fd_items_free(items, count + 2);
    free(items);
    free(out);
    free(seeds);
}

/* One batch: every image in one of the ways. */
static void batch(fd_item *items, unsigned salt) {
    take(items, salt, 1);
    fd_pool_open(pool, items, count + 2);
    if (items[count].status != FD_IO || items[count].code != FOLDER)
        complain("not refused", &items[count], 0);
    if (items[count + 1].status != FD_IO || items[count + 1].code != ENOENT)
        complain("not refused", &items[count + 1], 0);
    for (size_t i = 0; i < count; i++) {
        int way = (int)((i + salt) % 3);
        items[i].wanted = items[i].status == FD_OK;
        items[i].out = must(realloc(items[i].out, result_size(&images[i], way)));
        if (items[i].wanted)
            ask(&items[i], &images[i], way);
    }
    fd_pool_decode(pool, items, count + 2, &PIXELS);
    for (size_t i = 0; i < count; i++)
        check(&items[i], &images[i], (int)((i + salt) % 3));
}

/* A caller that has its items worked on in batches, and between them one at a time. */
static void *call(void *argument) {
    unsigned number = (unsigned)(size_t)argument;
    fd_item *items = must(calloc(count + 2, sizeof *items));
    for (unsigned round = 0; round < ROUNDS; round++) {
        batch(items, number + round);
        crop(number + round);
        size_t i = (number + round) % count;
        fd_item one = {.path = images[i].path};
        fd_pool_open(pool, &one, 1);
        if (one.status != FD_OK || one.size != images[i].size)
            complain("not opened alone", &one, 0);
        fd_items_free(&one, 1);
        fd_pool_open(pool, NULL, 0);
    }
    fd_items_free(items, count + 2);
    for (size_t i = 0; i < count; i++)
        free(items[i].out);
    free(items);
    return NULL;
}

#ifdef _WIN32
static void signals_are_left_alone(void) {} /* it has none */
#else
/* A signal that this thread blocks finds no other: it stays pending. */
static void signals_are_left_alone(void) {
    sigset_t one, pending;
    fd_pool *quiet = must(fd_pool_create(THREADS));
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR1); /* would end the process */
    sigpending(&pending);
    if (!sigismember(&pending, SIGUSR1))
        atomic_fetch_add(&wrong, 1);
    int number;
    sigwait(&one, &number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    fd_pool_destroy(quiet);
}
#endif

int main(int argc, char **argv) {
    pthread_t callers[CALLERS];
    fd_decoder *decoder = must(fd_decoder_create());
    images = must(calloc((size_t)argc + 1, sizeof *images));
    for (int i = 1; i < argc; i++) {
        load(&images[count], argv[i]);
        if (expect(decoder, &images[count]))
            expect_crops(decoder, &images[count++]);
        else
            free(images[count].data);
    }
    fd_decoder_destroy(decoder);
    signals_are_left_alone();
    for (int threads = 1; threads <= THREADS && count; threads += THREADS - 1) {
        pool = must(fd_pool_create(threads));
        reading = must(fd_pool_create(threads));
        for (size_t i = 0; i < CALLERS; i++)
            if (pthread_create(&callers[i], NULL, call, (void *)i) != 0)
                exit(2);
        for (size_t i = 0; i < CALLERS; i++)
            pthread_join(callers[i], NULL);
        fd_pool_destroy(pool);
        fd_pool_destroy(reading);
    }
    printf("%zu images, %d callers, %d threads: %d wrong; %d crops, %d left\n", count, CALLERS,
           THREADS, wrong, plans, no_plans);
    for (size_t i = 0; i < count; i++)
        free(images[i].data);
    free(images);
    return wrong != 0 || plans == 0 || no_plans == 0;
}
