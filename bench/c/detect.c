/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Detection time: the last rank kills itself by SIGKILL while all others are in a call that depends on it. The program measures
 * the time from just before the kill to the return of each call, by a clock that all processes share. There is one death in each
 * run; `mend-bench detect` repeats it. Needs the extension for process failures (mpi-ext.h), and a launcher that does not end the
 * other ranks (Open MPI: --with-ft ulfm).
 *
 *   --call receive|wildcard|probe|barrier|allreduce|waitall    the call that the others are blocked in (receive)
 *   --touched MIB       memory that the victim has touched, in pages of 4 KiB (0)
 *   --delay US          how long the early ones have been blocked when the victim dies: every second survivor enters early, the
 *                       others just before (20000)
 *   --all-early         every survivor enters early: all are asleep when the victim dies
 *   --samples           a line for each survivor instead of the table: rank, microseconds, class */
#include "common.h"
#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif
#ifndef MPIX_ERR_PROC_FAILED
#ifdef MPI_ERR_PROC_FAILED
#define MPIX_ERR_PROC_FAILED MPI_ERR_PROC_FAILED
#else
#define MPIX_ERR_PROC_FAILED -1 /* an MPI without it: every class is wrong */
#endif
#endif
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <fcntl.h>

enum { RANKS_MAX = 1024, LATE_US = 300, MIB_MAX = 65536 };
static const char *const CALLS[] = {"receive", "wildcard", "probe", "barrier", "allreduce", "waitall"};
enum call { RECEIVE, WILDCARD, PROBE, BARRIER, ALLREDUCE, WAITALL, CALLS_COUNT };

/* Memory by which the ranks communicate without MPI. */
struct page {
    int ready;         /* survivors that are about to call, or wait for `late_enter` */
    int late_enter;    /* the late ones enter now */
    int64_t killed_ns; /* just before the kill */
    int ended;
    struct answer {
        int64_t returned_ns;
        int class;
    } answers[RANKS_MAX];
};

struct options {
    enum call call;
    int mebibytes, delay_us, all_early, samples;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void pause_us(long us)
{
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&span, NULL);
}

/* A file that rank 0 makes and every rank maps; it has no name any more when the measurement begins. */
static struct page *share(struct bench *b)
{
    char path[256] = "";
    int file = -1, bad;
    if (b->rank == 0) {
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/mend-detect-XXXXXX", folder ? folder : "/tmp");
        file = mkstemp(path);
        if (file >= 0 && ftruncate(file, sizeof(struct page)) != 0)
            path[0] = '\0';
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (b->rank != 0)
        file = open(path, O_RDWR);
    void *map = file < 0 ? MAP_FAILED
                         : mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    int mine = map == MAP_FAILED;
    MPI_Allreduce(&mine, &bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (b->rank == 0)
        unlink(path);
    if (bad)
        bench_fail(b, "a file cannot be shared by all ranks: ", path);
    return map;
}

/* Removes the options of this program from the command line; `bench_begin` reads the rest. */
static int take(struct options *options, int *argc, char **argv, const char **wrong)
{
    int remaining = 1;
    for (int i = 1; i < *argc; i++) {
        char *end = NULL;
        int is_call = strcmp(argv[i], "--call") == 0, is_touched = strcmp(argv[i], "--touched") == 0;
        int is_delay = strcmp(argv[i], "--delay") == 0;
        if (strcmp(argv[i], "--samples") == 0) {
            options->samples = 1;
        } else if (strcmp(argv[i], "--all-early") == 0) {
            options->all_early = 1;
        } else if ((is_call || is_touched || is_delay) && i + 1 < *argc) {
            const char *value = argv[++i];
            int call = 0;
            while (is_call && call < CALLS_COUNT && strcmp(CALLS[call], value) != 0)
                call++;
            long number = is_call ? call : strtol(value, &end, 10);
            if (call == CALLS_COUNT || (!is_call && (*end != '\0' || end == value)) || number < 0 ||
                number > (is_touched ? MIB_MAX : 60000000))
                return *wrong = value, 0;
            *(is_call ? (int *)&options->call : is_touched ? &options->mebibytes : &options->delay_us) = (int)number;
        } else {
            argv[remaining++] = argv[i];
        }
    }
    argv[remaining] = NULL;
    *argc = remaining;
    return 1;
}

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* The class that the call returned; for a list of requests that of the one that names the victim. */
static int depend_on(enum call call, int victim, int64_t *returned)
{
    int data = 0, sum = 0, code = MPI_SUCCESS;
    MPI_Status status, statuses[2];
    MPI_Request requests[2];
    switch (call) {
    case RECEIVE:
        code = MPI_Recv(&data, 1, MPI_INT, victim, 1, MPI_COMM_WORLD, &status);
        break;
    case WILDCARD:
        code = MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
        break;
    case PROBE:
        code = MPI_Probe(victim, 1, MPI_COMM_WORLD, &status);
        break;
    case BARRIER:
        code = MPI_Barrier(MPI_COMM_WORLD);
        break;
    case ALLREDUCE:
        code = MPI_Allreduce(&data, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        /* The second never completes, as no rank sends it. */
        MPI_Irecv(&data, 1, MPI_INT, victim, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&sum, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[1]);
        code = MPI_Waitall(2, requests, statuses);
        *returned = now_ns();
        if (requests[1] != MPI_REQUEST_NULL) {
            MPI_Cancel(&requests[1]);
            MPI_Wait(&requests[1], &status);
        }
        if (class_of(code) != MPI_ERR_IN_STATUS || class_of(statuses[1].MPI_ERROR) != MPI_ERR_PENDING)
            return -1;
        return class_of(statuses[0].MPI_ERROR);
    }
    *returned = now_ns();
    return class_of(code);
}

static void die(struct page *page, const struct options *options, int survivors)
{
    size_t bytes = (size_t)options->mebibytes << 20;
    if (bytes > 0) {
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            MPI_Abort(MPI_COMM_WORLD, 1);
#ifdef MADV_NOHUGEPAGE
        madvise(memory, bytes, MADV_NOHUGEPAGE);
#endif
        for (size_t at = 0; at < bytes; at += 4096)
            memory[at] = 1;
    }
    while (__atomic_load_n(&page->ready, __ATOMIC_ACQUIRE) < survivors)
        pause_us(100);
    pause_us(options->delay_us);
    __atomic_store_n(&page->late_enter, 1, __ATOMIC_RELEASE);
    pause_us(LATE_US);
    __atomic_store_n(&page->killed_ns, now_ns(), __ATOMIC_RELEASE);
    kill(getpid(), SIGKILL);
}

static void survive(struct bench *b, struct page *page, const struct options *options)
{
    int64_t returned = 0;
    __atomic_add_fetch(&page->ready, 1, __ATOMIC_ACQ_REL);
    while (!options->all_early && b->rank % 2 == 1 && __atomic_load_n(&page->late_enter, __ATOMIC_ACQUIRE) == 0)
        pause_us(50);
    int class = depend_on(options->call, b->ranks - 1, &returned);
    page->answers[b->rank].returned_ns = returned;
    page->answers[b->rank].class = class;
    __atomic_add_fetch(&page->ended, 1, __ATOMIC_ACQ_REL);
}

/* Called by rank 0 only, after all have published their results. */
static void report(struct bench *b, struct page *page, const struct options *options)
{
    double samples[RANKS_MAX], sum = 0;
    int wrong = 0, survivors = b->ranks - 1;
    while (__atomic_load_n(&page->ended, __ATOMIC_ACQUIRE) < survivors)
        pause_us(100);
    int64_t killed = __atomic_load_n(&page->killed_ns, __ATOMIC_ACQUIRE);
    for (int rank = 0; rank < survivors; rank++) {
        const struct answer *answer = &page->answers[rank];
        /* A call that returned before the death did not return because of it. */
        int right = answer->class == MPIX_ERR_PROC_FAILED && killed != 0 && answer->returned_ns >= killed;
        samples[rank] = (double)(answer->returned_ns - killed) / 1e9;
        sum += samples[rank];
        wrong += !right;
        if (options->samples)
            printf("%d,%.3f,%s\n", rank, samples[rank] * 1e6, right ? "right" : "wrong");
    }
    if (!options->samples)
        bench_row(b, (size_t)options->mebibytes << 20, samples, survivors, sum / survivors, wrong);
    b->wrong_bytes = wrong;
}

int main(int argc, char **argv)
{
    struct options options = {.delay_us = 20000};
    struct bench b = {.name = "detect", .rate_unit = "wrong"};
    const char *wrong = "";
    int understood = take(&options, &argc, argv, &wrong);
    bench_begin(&b, &argc, &argv, "0");
    if (!understood)
        bench_fail(&b, "not understood: ", wrong);
    if (b.ranks < 2 || b.ranks > RANKS_MAX)
        bench_fail(&b, "needs 2 to 1024 ranks", "");
    static char name[32];
    snprintf(name, sizeof name, "detect_%s", CALLS[options.call]);
    b.name = name;
    struct page *page = share(&b);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (b.rank == b.ranks - 1)
        die(page, &options, b.ranks - 1);
    survive(&b, page, &options);
    if (b.rank == 0) {
        report(&b, page, &options);
        if (b.format == JSON && b.rows > 0)
            printf("\n]\n");
        if (b.wrong_bytes > 0)
            fprintf(stderr, "%s: %ld ranks were told something else than the truth\n", b.name, b.wrong_bytes);
        fflush(stdout);
    }
    MPI_Finalize();
    return b.wrong_bytes > 0;
}
