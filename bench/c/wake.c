/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How long a rank takes that waits for long: rank 1 waits in MPI_Recv for PAUSE_US, in which an MPI may let it sleep, and then answers a
 * message of rank 0, which polls. Half of the round trip; less the latency, it is the time to wake. */
#include "common.h"

int main(int argc, char **argv)
{
    struct bench b = {.name = "wake", .rate_unit = "MB/s"};
    bench_begin(&b, &argc, &argv, "8");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        size_t size = b.sizes[s];
        int iterations = bench_pauses(&b);
        bench_progress(&b, s);
        MPI_Barrier(MPI_COMM_WORLD);
        if (b.rank < 2) {
            unsigned char *data = bench_memory(&b, size);
            double *samples = bench_memory(&b, sizeof *samples * (size_t)iterations), sum = 0;
            int bytes = (int)size;
            for (int i = 0; i < iterations; i++) {
                double start = bench_pause(&b);
                if (b.rank == 0) {
                    MPI_Send(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
                    MPI_Recv(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                } else {
                    MPI_Recv(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Send(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
                }
                sum += samples[i] = (MPI_Wtime() - start) / 2;
            }
            bench_row(&b, size, samples, iterations, sum / iterations, (double)size * iterations / sum / 1e6);
            free(samples);
            free(data);
        }
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
