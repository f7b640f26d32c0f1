/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Rank 0 sends to rank 1 with a window of messages in flight: megabytes a second, by size. Samples are windows. */
#include "common.h"

static double windows(struct bench *b, unsigned char *data, size_t size, int first, int count, double *samples)
{
    int bytes = (int)size, window = b->window;
    MPI_Request *requests = bench_memory(b, sizeof *requests * (size_t)window);
    double start = MPI_Wtime(), last = start;
    for (int i = first; i < first + count; i++) {
        for (int w = 0; w < window; w++) {
            unsigned char *slot = data + (b->validate ? (size_t)w * size : 0);
            if (b->rank == 0) {
                bench_fill(b, slot, size, i + w);
                MPI_Isend(slot, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[w]);
            } else {
                MPI_Irecv(slot, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[w]);
            }
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        if (b->rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int w = 0; w < window; w++)
                bench_check(b, data + (b->validate ? (size_t)w * size : 0), size, 0, i + w);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i - first] = now - last;
            last = now;
        }
    }
    free(requests);
    return (MPI_Wtime() - start) / count;
}

/* The average for `seconds`. */
static double timed_windows(struct bench *b, unsigned char *data, size_t size, int first)
{
    double start = MPI_Wtime();
    int done = 0;
    do
        windows(b, data, size, first + done++, 1, NULL);
    while (bench_goes_on(b, start));
    return (MPI_Wtime() - start) / done;
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "bandwidth", .rate_unit = "MB/s", .timed = 1};
    bench_begin(&b, &argc, &argv, "1:4M");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        size_t size = b.sizes[s];
        int count = bench_iterations(&b, size) / 32 + 4, warmup = bench_warmup(&b, count);
        bench_progress(&b, s);
        MPI_Barrier(MPI_COMM_WORLD);
        if (b.rank < 2) {
            unsigned char *data = bench_memory(&b, b.validate ? size * (size_t)b.window : size);
            double *samples = bench_memory(&b, sizeof *samples * (size_t)count);
            windows(&b, data, size, 0, warmup, NULL);
            double average = windows(&b, data, size, warmup, count, samples);
            if (b.seconds > 0)
                average = timed_windows(&b, data, size, warmup + count);
            bench_row(&b, size, samples, count, average, (double)size * b.window / average / 1e6);
            free(samples);
            free(data);
        }
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
