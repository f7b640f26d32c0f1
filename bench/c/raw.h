/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What lies below an MPI, measured as latency.c, bandwidth.c, message_rate.c and wake.c measure the MPI: `PROGRAM latency|bandwidth|
 * message_rate|wake OPTIONS`. Any MPI starts the two processes; messages go through the five functions of a channel, which
 * raw_socket.c and raw_fabric.c define. All messages of a run are equally long. */
#ifndef MEND_BENCH_RAW_H
#define MEND_BENCH_RAW_H

#include "common.h"

/* Connects ranks 0 and 1, for messages of `size` bytes, of which at most `window` are outstanding in `data`. */
static void channel_open(struct bench *b, unsigned char *data, size_t data_bytes, size_t size);
/* Starts a receive; receives are filled in the order of their starts. */
static void channel_receive(struct bench *b, unsigned char *data, size_t size);
/* Starts a send. */
static void channel_send(struct bench *b, const unsigned char *data, size_t size);
/* Waits for all receives (or all sends) that were started. */
static void channel_wait(struct bench *b, int receives);
/* Waits for all receives as a process does that does not poll; only of `wake`. */
static void channel_sleep(struct bench *b);
static void channel_close(void);

static _Noreturn void raw_fail(const struct bench *b, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", b->name, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Half a round trip in seconds. The next receive is started before the send, as in an MPI that has one buffer for messages to come. */
static double raw_round_trips(struct bench *b, unsigned char *data, size_t size, int count, double *samples)
{
    unsigned char *in = data, *out = data + size;
    double start = MPI_Wtime(), last = start;
    for (int i = 0; i < count; i++) {
        if (b->rank == 0) {
            channel_receive(b, in, size);
            channel_send(b, out, size);
            channel_wait(b, 0);
            channel_wait(b, 1);
        } else {
            channel_receive(b, in, size);
            channel_wait(b, 1);
            channel_send(b, out, size);
            channel_wait(b, 0);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i] = (now - last) / 2;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / 2 / count;
}

/* A window of messages from rank 0 to rank 1 and one message back, in seconds. */
static double raw_windows(struct bench *b, unsigned char *data, size_t size, int count, double *samples)
{
    double start = MPI_Wtime(), last = start;
    for (int i = 0; i < count; i++) {
        if (b->rank == 0) {
            channel_receive(b, data + size, size);
            for (int w = 0; w < b->window; w++)
                channel_send(b, data, size);
            channel_wait(b, 0);
            channel_wait(b, 1);
        } else {
            for (int w = 0; w < b->window; w++)
                channel_receive(b, data, size);
            channel_wait(b, 1);
            channel_send(b, data + size, size);
            channel_wait(b, 0);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i] = now - last;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / count;
}

/* The sum of half the round trips in seconds: rank 1 sleeps until the message comes. */
static double raw_wakes(struct bench *b, unsigned char *data, size_t size, int count, double *samples)
{
    unsigned char *in = data, *out = data + size;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        channel_receive(b, in, size);
        double start = bench_pause(b);
        if (b->rank == 0) {
            channel_send(b, out, size);
            channel_wait(b, 0);
            channel_wait(b, 1);
        } else {
            channel_sleep(b);
            channel_send(b, out, size);
            channel_wait(b, 0);
        }
        sum += samples[i] = (MPI_Wtime() - start) / 2;
    }
    return sum;
}

static void raw_measure(struct bench *b, size_t size)
{
    int is_latency = strcmp(b->name, "latency") == 0, is_rate = strcmp(b->name, "message_rate") == 0;
    int is_wake = strcmp(b->name, "wake") == 0;
    int count = bench_iterations(b, size);
    count = is_wake ? bench_pauses(b) : is_latency ? count : is_rate ? count / 10 + 1 : count / 32 + 4;
    int warmup = bench_warmup(b, count);
    unsigned char *data = bench_memory(b, 2 * size);
    double *samples = bench_memory(b, sizeof *samples * (size_t)count);
    double (*run)(struct bench *, unsigned char *, size_t, int, double *) = is_latency ? raw_round_trips : raw_windows;
    channel_open(b, data, 2 * size, size);
    MPI_Barrier(MPI_COMM_WORLD);
    double average;
    if (is_wake) {
        average = raw_wakes(b, data, size, count, samples) / count;
    } else {
        run(b, data, size, warmup, NULL);
        average = run(b, data, size, count, is_latency ? NULL : samples);
    }
    if (is_latency)
        run(b, data, size, count, samples);
    MPI_Barrier(MPI_COMM_WORLD);
    channel_close();
    double messages = is_latency || is_wake ? 1 : b->window;
    double rate = is_rate ? messages / average : (double)size * messages / average / 1e6;
    bench_row(b, size, samples, count, average, rate);
    free(samples);
    free(data);
}

static int raw_main(int argc, char **argv)
{
    struct bench b = {.name = "latency", .rate_unit = "MB/s"};
    if (argc > 1 && argv[1][0] != '-') {
        b.name = argv[1];
        argv[1] = argv[0];
        argv++, argc--;
    }
    if (strcmp(b.name, "message_rate") == 0)
        b.rate_unit = "messages/s";
    bench_begin(&b, &argc, &argv, "8,64K,1M,4M");
    if (b.ranks != 2)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        bench_progress(&b, s);
        raw_measure(&b, b.sizes[s]);
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}

#endif
