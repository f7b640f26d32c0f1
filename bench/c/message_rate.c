/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Small messages from each rank of the first half to one rank of the second, with a window of messages in flight: messages a
 * second of all pairs together, by size. Samples are windows of rank 0. */
#include "common.h"

static double windows(struct bench *b, unsigned char *data, size_t size, int first, int count, double *samples)
{
    int half = b->ranks / 2, sender = b->rank < half, peer = sender ? b->rank + half : b->rank - half;
    int bytes = (int)size;
    MPI_Request *requests = bench_memory(b, sizeof *requests * (size_t)b->window);
    double start = MPI_Wtime(), last = start;
    for (int i = first; i < first + count; i++) {
        for (int w = 0; w < b->window; w++) {
            unsigned char *slot = data + (size_t)w * size;
            if (sender) {
                bench_fill(b, slot, size, i + w);
                MPI_Isend(slot, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[w]);
            } else {
                MPI_Irecv(slot, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[w]);
            }
        }
        MPI_Waitall(b->window, requests, MPI_STATUSES_IGNORE);
        if (sender) {
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int w = 0; w < b->window; w++)
                bench_check(b, data + (size_t)w * size, size, peer, i + w);
            MPI_Send(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
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

int main(int argc, char **argv)
{
    struct bench b = {.name = "message_rate", .rate_unit = "messages/s"};
    bench_begin(&b, &argc, &argv, "0,1,8,64,512");
    int pairs = b.ranks / 2;
    if (pairs == 0)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        size_t size = b.sizes[s];
        int count = bench_iterations(&b, size) / 10 + 1, warmup = bench_warmup(&b, count);
        double slowest = 0, average = 0;
        unsigned char *data = bench_memory(&b, size * (size_t)b.window);
        double *samples = bench_memory(&b, sizeof *samples * (size_t)count);
        bench_progress(&b, s);
        MPI_Barrier(MPI_COMM_WORLD);
        if (b.rank < 2 * pairs) {
            windows(&b, data, size, 0, warmup, NULL);
            average = windows(&b, data, size, warmup, count, samples);
        }
        MPI_Reduce(&average, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        bench_row(&b, size, samples, count, average, (double)b.window * pairs / slowest);
        free(samples);
        free(data);
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
