/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What repair costs while nothing fails: agreement and shrink beside MPI_Allreduce of 8 bytes and the creation of communicators, each in
 * a loop on all ranks. One row for each operation; the column of bytes is its number. With --dead, the last rank kills itself first, and
 * the operations run on the communicator that is left by a shrink, and on the one with the dead member, acknowledged. Needs the
 * extension for process failures (mpi-ext.h); a library without it measures the creation of communicators alone. 'Local': the parent has
 * the info key mpi_error_uniform = local, which other libraries ignore.
 *
 *   0 Allreduce of 8 bytes   1 Comm_dup and free          2 Comm_split and free   3 agree
 *   4 shrink                 5 Comm_dup and free, local   6 Comm_split and free, local   7 agree with a dead member   */
#include "common.h"
#include "repair.h"
#include <signal.h>

enum operation { ALLREDUCE, DUP, SPLIT, AGREE, SHRINK, DUP_LOCAL, SPLIT_LOCAL, AGREE_DEAD };

static MPI_Comm with_local_creation(MPI_Comm comm)
{
    MPI_Info info;
    MPI_Comm made;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_error_uniform", "local");
    MPI_Comm_dup_with_info(comm, info, &made);
    MPI_Info_free(&info);
    return made;
}

/* Returns the communicator that a shrink made, which is freed outside the timed part. */
static MPI_Comm once(enum operation which, MPI_Comm comm)
{
    long in = 1, out = 0;
    int flag = 1, rank;
    MPI_Comm made = MPI_COMM_NULL;
    switch (which) {
    case ALLREDUCE: MPI_Allreduce(&in, &out, 1, MPI_LONG, MPI_SUM, comm); break;
    case DUP:
    case DUP_LOCAL: MPI_Comm_dup(comm, &made); break;
    case SPLIT:
    case SPLIT_LOCAL:
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_split(comm, rank % 2, 0, &made);
        break;
#if HAS_REPAIR
    case AGREE:
    case AGREE_DEAD: MPIX_Comm_agree(comm, &flag); break;
    case SHRINK: MPIX_Comm_shrink(comm, &made); break;
#endif
    default: break;
    }
    (void)flag;
    if (which == SHRINK || made == MPI_COMM_NULL)
        return made;
    MPI_Comm_free(&made);
    return MPI_COMM_NULL;
}

static void measure(struct bench *b, enum operation which, MPI_Comm comm, size_t row)
{
    int count = bench_iterations(b, 0), warmup = bench_warmup(b, count);
    double *samples = bench_memory(b, sizeof *samples * (size_t)count);
    double sum = 0;
    for (int i = -warmup; i < count; i++) {
        double start = MPI_Wtime();
        MPI_Comm made = once(which, comm);
        double took = MPI_Wtime() - start;
        if (made != MPI_COMM_NULL)
            MPI_Comm_free(&made);
        if (i >= 0)
            sum += samples[i] = took;
    }
    double average = sum / count;
    bench_row(b, row, samples, count, average, 1 / average);
    free(samples);
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "repair", .rate_unit = "operations/s"};
    MPI_Comm comm = MPI_COMM_WORLD, local;
    int dead = 0;
    if (argc > 1 && strcmp(argv[argc - 1], "--dead") == 0) {
        dead = 1;
        argc--;
    }
    bench_begin(&b, &argc, &argv, "0");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#if HAS_REPAIR
    if (dead) {
        int size;
        if (b.rank == b.ranks - 1)
            raise(SIGKILL);
        do {
            MPIX_Comm_shrink(MPI_COMM_WORLD, &comm);
            MPI_Comm_size(comm, &size);
        } while (size == b.ranks);
        MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    }
#endif
    for (int which = ALLREDUCE; which < (HAS_REPAIR ? DUP_LOCAL : AGREE); which++)
        measure(&b, which, comm, (size_t)which);
    local = with_local_creation(comm);
    for (int which = DUP_LOCAL; which < AGREE_DEAD; which++)
        measure(&b, which, local, (size_t)which);
    MPI_Comm_free(&local);
    if (!dead)
        return bench_end(&b);
    if (HAS_REPAIR)
        measure(&b, AGREE_DEAD, MPI_COMM_WORLD, AGREE_DEAD);
    if (b.rank == 0 && b.format == JSON)
        printf("\n]\n");
    MPI_Finalize();
    return 0;
}
