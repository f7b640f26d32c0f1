/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How much threads that are blocked in MPI_Recv slow down another thread of the same process: half a round trip between the main
 * threads of ranks 0 and 1, while N other threads of each rank wait for a message that comes at the end. Measured for a given
 * time, unless --iterations is given.
 *
 *   --blocked N         threads of each rank that are blocked (64) */
#include "common.h"
#include <pthread.h>
#include <time.h>

enum { BLOCKED_MAX = 4096, FIRST_TAG = 100, SAMPLES = 100 };

struct blocked {
    pthread_t thread;
    int peer, tag;
};

static int entered;

static void *block(void *argument)
{
    const struct blocked *self = argument;
    char byte;
    __atomic_add_fetch(&entered, 1, __ATOMIC_ACQ_REL);
    MPI_Recv(&byte, 1, MPI_CHAR, self->peer, self->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void pause_us(long us)
{
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&span, NULL);
}

static void begin_threads(const struct bench *b, struct blocked *threads, int count)
{
    for (int i = 0; i < count; i++) {
        threads[i].peer = 1 - b->rank;
        threads[i].tag = FIRST_TAG + i;
        if (pthread_create(&threads[i].thread, NULL, block, &threads[i]) != 0) {
            fprintf(stderr, "%s: thread %d cannot be made\n", b->name, i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    while (__atomic_load_n(&entered, __ATOMIC_ACQUIRE) < count)
        pause_us(100);
    /* Nothing shows that a thread has entered the call and sleeps; this is long enough for both. */
    pause_us(200000);
}

/* The other rank's threads get their message, then our own have ended too. */
static void end_threads(struct blocked *threads, int count)
{
    for (int i = 0; i < count; i++)
        MPI_Send("", 1, MPI_CHAR, threads[i].peer, threads[i].tag, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i].thread, NULL);
}

/* Removes --blocked from the command line, and returns its value; -1 if it is not a number. */
static int take(int *argc, char **argv)
{
    int remaining = 1;
    long blocked = 64;
    for (int i = 1; i < *argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--blocked") == 0 && i + 1 < *argc) {
            blocked = strtol(argv[++i], &end, 10);
            if (*end != '\0' || end == argv[i] || blocked < 0 || blocked > BLOCKED_MAX)
                blocked = -1;
        } else {
            argv[remaining++] = argv[i];
        }
    }
    argv[remaining] = NULL;
    *argc = remaining;
    return (int)blocked;
}

static void measure(struct bench *b)
{
    for (int s = 0; s < b->sizes_count; s++) {
        size_t size = b->sizes[s];
        int count = b->iterations > 0 ? b->iterations : SAMPLES, warmup = bench_warmup(b, count);
        unsigned char *data = bench_memory(b, size);
        double *samples = bench_memory(b, sizeof *samples * (size_t)count);
        bench_progress(b, s);
        bench_round_trips(b, data, size, 0, warmup, NULL);
        double average = bench_round_trips(b, data, size, warmup, count, samples);
        if (b->iterations == 0)
            average = bench_timed_round_trips(b, data, size, warmup + count);
        bench_row(b, size, samples, count, average, (double)size / average / 1e6);
        free(samples);
        free(data);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "blocked_threads", .rate_unit = "MB/s", .timed = 1, .seconds = 1, .multiple = 1};
    int blocked = take(&argc, argv);
    bench_begin(&b, &argc, &argv, "8");
    if (blocked < 0)
        bench_fail(&b, "not a number of threads for ", "--blocked");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    struct blocked *threads = bench_memory(&b, sizeof *threads * ((size_t)blocked + 1));
    if (b.rank < 2) {
        begin_threads(&b, threads, blocked);
        measure(&b);
        end_threads(threads, blocked);
    }
    free(threads);
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
