/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Common parts of the benchmarks: options, pinning, payloads that can be checked byte by byte, samples, and the printed table.
 * Portable C with MPI-3, so that any MPI's mpicc compiles it and figures can be compared. */
#ifndef MEND_BENCH_COMMON_H
#define MEND_BENCH_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZES_MAX = 64, CPUS_MAX = 256 };
enum format { TEXT, CSV, JSON };

struct bench {
    const char *name;
    const char *rate_unit; /* unit of the last column */
    int rank, ranks;
    size_t sizes[SIZES_MAX];
    int sizes_count;
    int iterations; /* 0: chosen by size */
    int warmup;     /* -1: a tenth of the iterations */
    int window;
    double seconds; /* the span of the average, if the benchmark is `timed`; 0: `iterations` determine it */
    int timed;
    int multiple; /* needs MPI_THREAD_MULTIPLE */
    int validate;
    int progress; /* a line on stderr for each size */
    enum format format;
    int cpus[CPUS_MAX];
    int cpus_count;
    int rows;
    long wrong_bytes;
};

static inline void bench_usage(const struct bench *b)
{
    fprintf(stderr,
            "usage: %s [--sizes 8,64K | --sizes FROM:TO] [--iterations N] [--warmup N] [--window N]\n"
            "          [--validate] [--format text|csv|json] [--pin CPU,CPU,...] [--progress]%s\n"
            "  --sizes      message sizes in bytes (K, M: binary); FROM:TO doubles\n"
            "  --validate   fill and check every byte of every message (slower)\n"
            "  --pin        rank r runs on the r-th CPU of the list, around and around\n"
            "  --progress   a line on stderr before each size, also where stderr is no terminal (as under mpiexec)\n"
            "%s",
            b->name, b->timed ? " [--seconds S]" : "",
            b->timed ? "  --seconds    the average is over S seconds, whatever the number of iterations\n" : "");
}

static inline _Noreturn void bench_fail(const struct bench *b, const char *what, const char *word)
{
    if (b->rank == 0) {
        fprintf(stderr, "%s: %s%s\n", b->name, what, word);
        bench_usage(b);
    }
    MPI_Finalize();
    exit(2);
}

/* A number with an optional K or M; -1 if it is none. */
static inline long bench_number(const char *text, char **end)
{
    errno = 0;
    long value = strtol(text, end, 10);
    if (errno != 0 || *end == text || value < 0)
        return -1;
    if (**end == 'K' || **end == 'k')
        return ++*end, value << 10;
    if (**end == 'M' || **end == 'm')
        return ++*end, value << 20;
    return value;
}

static inline void bench_sizes(struct bench *b, const char *text)
{
    char *end = NULL;
    b->sizes_count = 0;
    for (;;) {
        long from = bench_number(text, &end), to = from;
        if (from >= 0 && *end == ':')
            to = bench_number(end + 1, &end);
        if (from < 0 || to < 0)
            bench_fail(b, "not a list of sizes: ", text);
        for (long size = from; size <= to && b->sizes_count < SIZES_MAX; size = size ? size * 2 : 1)
            b->sizes[b->sizes_count++] = (size_t)size;
        if (*end == '\0')
            return;
        if (*end != ',')
            bench_fail(b, "not a list of sizes: ", text);
        text = end + 1;
    }
}

static inline void bench_cpus(struct bench *b, const char *text)
{
    char *end = NULL;
    for (b->cpus_count = 0; b->cpus_count < CPUS_MAX; text = end + 1) {
        long cpu = bench_number(text, &end);
        if (cpu < 0 || cpu >= CPU_SETSIZE || (*end != ',' && *end != '\0'))
            bench_fail(b, "not a list of CPUs: ", text);
        b->cpus[b->cpus_count++] = (int)cpu;
        if (*end == '\0')
            break;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(b->cpus[b->rank % b->cpus_count], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        bench_fail(b, "cannot pin: ", strerror(errno));
}

static inline int bench_count(const struct bench *b, const char *option, const char *text)
{
    char *end = NULL;
    long value = bench_number(text, &end);
    if (value < 0 || value > 1000000000 || *end != '\0')
        bench_fail(b, "not a number for ", option);
    return (int)value;
}

static inline double bench_seconds(const struct bench *b, const char *text)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (!b->timed)
        bench_fail(b, "is not measured by time: ", b->name);
    if (end == text || *end != '\0' || !(seconds > 0 && seconds <= 3600))
        bench_fail(b, "not a number of seconds up to 3600: ", text);
    return seconds;
}

static inline void bench_init(struct bench *b, int *argc, char ***argv)
{
    int provided = MPI_THREAD_MULTIPLE;
    if (b->multiple)
        MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(argc, argv);
    if (provided != MPI_THREAD_MULTIPLE)
        bench_fail(b, "this MPI has no MPI_THREAD_MULTIPLE", "");
}

/* Initialises MPI and reads the options. */
static inline void bench_begin(struct bench *b, int *argc, char ***argv, const char *default_sizes)
{
    bench_init(b, argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
    b->warmup = -1;
    if (b->window == 0)
        b->window = 64;
    bench_sizes(b, default_sizes);
    for (int i = 1; i < *argc; i++) {
        const char *option = (*argv)[i];
        if (strcmp(option, "--validate") == 0) {
            b->validate = 1;
            continue;
        }
        if (strcmp(option, "--progress") == 0) {
            b->progress = 1;
            continue;
        }
        if (strcmp(option, "--help") == 0)
            bench_fail(b, "options", "");
        if (i + 1 == *argc)
            bench_fail(b, "unknown option, or its value is missing: ", option);
        const char *value = (*argv)[++i];
        if (strcmp(option, "--sizes") == 0)
            bench_sizes(b, value);
        else if (strcmp(option, "--iterations") == 0)
            b->iterations = bench_count(b, option, value);
        else if (strcmp(option, "--warmup") == 0)
            b->warmup = bench_count(b, option, value);
        else if (strcmp(option, "--window") == 0)
            b->window = bench_count(b, option, value);
        else if (strcmp(option, "--seconds") == 0)
            b->seconds = bench_seconds(b, value);
        else if (strcmp(option, "--pin") == 0)
            bench_cpus(b, value);
        else if (strcmp(option, "--format") == 0 && strcmp(value, "text") == 0)
            b->format = TEXT;
        else if (strcmp(option, "--format") == 0 && strcmp(value, "csv") == 0)
            b->format = CSV;
        else if (strcmp(option, "--format") == 0 && strcmp(value, "json") == 0)
            b->format = JSON;
        else
            bench_fail(b, "unknown option: ", option);
    }
    if (b->window == 0)
        bench_fail(b, "a window of 0 messages", "");
}

/* How many iterations to make at this size: fewer for large messages. */
static inline int bench_iterations(const struct bench *b, size_t size)
{
    if (b->iterations > 0)
        return b->iterations;
    return size <= 8192 ? 10000 : size <= 131072 ? 2000 : 300;
}

static inline int bench_warmup(const struct bench *b, int iterations)
{
    return b->warmup >= 0 ? b->warmup : iterations / 10 + 1;
}

/* Rank 0 computes for so long while rank 1 waits: longer than an MPI polls. */
enum { PAUSE_US = 10000 };

/* Returns when the pause has ended, which is at once at the other ranks. */
static inline double bench_pause(const struct bench *b)
{
    double now = MPI_Wtime(), end = now + PAUSE_US / 1e6;
    while (b->rank == 0 && now < end)
        now = MPI_Wtime();
    return now;
}

static inline int bench_pauses(const struct bench *b)
{
    return b->iterations > 0 ? b->iterations : 100;
}

static inline void *bench_memory(const struct bench *b, size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes > 0 ? bytes : 1) != 0) {
        fprintf(stderr, "%s: no memory for %zu bytes\n", b->name, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* Every byte depends on the sender, the iteration and its position. */
static inline unsigned char bench_byte(int sender, int iteration, size_t at)
{
    uint64_t x = at * 0x9e3779b97f4a7c15u + (uint64_t)iteration * 0xbf58476d1ce4e5b9u + (uint64_t)sender;
    return (unsigned char)((x ^ x >> 29 ^ x >> 47) + (uint64_t)sender * 29);
}

static inline void bench_fill(const struct bench *b, unsigned char *data, size_t bytes, int iteration)
{
    if (b->validate)
        for (size_t i = 0; i < bytes; i++)
            data[i] = bench_byte(b->rank, iteration, i);
}

static inline void bench_check(struct bench *b, unsigned char *data, size_t bytes, int sender, int iteration)
{
    if (!b->validate)
        return;
    for (size_t i = 0; i < bytes; i++)
        b->wrong_bytes += data[i] != bench_byte(sender, iteration, i);
    memset(data, 0xa5, bytes);
}

/* `count` round trips between ranks 0 and 1; returns half of one in seconds, and the same of each in `samples`. */
static inline double bench_round_trips(struct bench *b, unsigned char *data, size_t size, int first, int count,
                                       double *samples)
{
    int bytes = (int)size;
    double start = MPI_Wtime(), last = start;
    for (int i = first; i < first + count; i++) {
        if (b->rank == 0) {
            bench_fill(b, data, size, i);
            MPI_Send(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, 1, i);
        } else {
            MPI_Recv(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, 0, i);
            bench_fill(b, data, size, i);
            MPI_Send(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i - first] = (now - last) / 2;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / 2 / count;
}

/* Whether ranks 0 and 1 go on: rank 0 looks at its clock and tells rank 1. */
static inline int bench_goes_on(const struct bench *b, double start)
{
    char on = 0;
    if (b->rank == 0) {
        on = MPI_Wtime() - start < b->seconds;
        MPI_Send(&on, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&on, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return on;
}

/* The same for `seconds`, in batches that grow: so the message whether to go on costs nothing if round trips are short, and the
 * end is not much too late if they are long. */
static inline double bench_timed_round_trips(struct bench *b, unsigned char *data, size_t size, int first)
{
    double start = MPI_Wtime();
    int done = 0, batch = 1;
    do {
        bench_round_trips(b, data, size, first + done, batch, NULL);
        done += batch;
        batch = batch < 64 ? 2 * batch : 100;
    } while (bench_goes_on(b, start));
    return (MPI_Wtime() - start) / 2 / done;
}

static inline void bench_progress(const struct bench *b, int done)
{
    if (b->rank != 0)
        return;
    if (b->progress) {
        if (done < b->sizes_count)
            fprintf(stderr, "%s: %d of %d: %zu bytes\n", b->name, done + 1, b->sizes_count, b->sizes[done]);
    } else if (isatty(STDERR_FILENO))
        fprintf(stderr, done < b->sizes_count ? "\r%s: %d of %d sizes " : "\r\033[K", b->name, done, b->sizes_count);
}

static inline int bench_less(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline void bench_header(const struct bench *b)
{
    if (b->format == CSV)
        printf("benchmark,ranks,bytes,iterations,min_us,avg_us,p50_us,p99_us,rate,rate_unit\n");
    else if (b->format == JSON)
        printf("[\n");
    else
        printf("# %s, %d ranks%s\n%10s %10s %12s %12s %12s %12s %14s\n", b->name, b->ranks,
               b->validate ? ", every byte checked" : "", "bytes", "iterations", "min us", "avg us", "p50 us", "p99 us",
               b->rate_unit);
}

/* One row, on rank 0: `samples` in seconds, sorted here; `average` in seconds; `rate` in the benchmark's unit. */
static inline void bench_row(struct bench *b, size_t size, double *samples, int count, double average, double rate)
{
    if (b->rank != 0)
        return;
    if (b->rows++ == 0)
        bench_header(b);
    qsort(samples, (size_t)count, sizeof *samples, bench_less);
    double min = samples[0] * 1e6, p50 = samples[count / 2] * 1e6, p99 = samples[(int)((count - 1) * 0.99)] * 1e6;
    double avg = average * 1e6;
    if (b->format == CSV)
        printf("%s,%d,%zu,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%s\n", b->name, b->ranks, size, count, min, avg, p50, p99, rate,
               b->rate_unit);
    else if (b->format == JSON)
        printf("%s  {\"benchmark\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"iterations\": %d, \"min_us\": %.3f, "
               "\"avg_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"rate\": %.3f, \"rate_unit\": \"%s\"}",
               b->rows > 1 ? ",\n" : "", b->name, b->ranks, size, count, min, avg, p50, p99, rate, b->rate_unit);
    else
        printf("%10zu %10d %12.3f %12.3f %12.3f %12.3f %14.2f\n", size, count, min, avg, p50, p99, rate);
    fflush(stdout);
}

/* Ends MPI. The program's exit code: 1 where a byte was wrong. */
static inline int bench_end(struct bench *b)
{
    long wrong = 0;
    MPI_Reduce(&b->wrong_bytes, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (b->rank == 0 && b->format == JSON && b->rows > 0)
        printf("\n]\n");
    if (b->rank == 0 && wrong > 0)
        fprintf(stderr, "%s: %ld bytes were wrong\n", b->name, wrong);
    MPI_Finalize();
    return b->wrong_bytes > 0 || wrong > 0 ? 1 : 0;
}

#endif
