/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One rank dies, and the others go on: a call returns an error code, they ask which rank failed, and do its work themselves.
 *
 *     mpicc examples/survive.c -o survive && mpiexec -n 4 ./survive
 */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static const char *name_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class == MPI_SUCCESS           ? "success"
           : class == MPI_ERR_PROC_FAILED ? "MPI_ERR_PROC_FAILED"
                                          : "an error that was not expected";
}

/* Sets `dead` to 1 for each rank of WORLD that this process knows to have failed, and returns their number. */
static int who_failed(int *dead)
{
    MPI_Group world, failed;
    int size;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed);
    MPI_Group_size(failed, &size);
    memset(dead, 0, sizeof *dead * (size_t)ranks);
    for (int i = 0; i < size; i++) {
        int one;
        MPI_Group_translate_ranks(failed, 1, &i, world, &one);
        dead[one] = 1;
    }
    if (failed != MPI_GROUP_EMPTY)
        MPI_Group_free(&failed);
    MPI_Group_free(&world);
    return size;
}

/* The nearest rank that lives, to the left or to the right. */
static int neighbour(const int *dead, int step)
{
    int other = rank;
    do
        other = (other + step + ranks) % ranks;
    while (dead[other]);
    return other;
}

int main(int argc, char **argv)
{
    int dead[1024], code, got = 0, sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 3 || ranks > 1024)
        MPI_Abort(MPI_COMM_WORLD, 2);

    /* Without this line the first error would end this rank, as in every MPI program. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) {
        printf("rank 2 kills itself\n");
        fflush(stdout);
        kill(getpid(), SIGKILL);
    }

    /* No rank can pass a barrier that rank 2 does not enter. */
    code = MPI_Barrier(MPI_COMM_WORLD);
    int failed = who_failed(dead);
    printf("rank %d: the barrier returns %s; %d of %d ranks failed, rank 2 %s\n", rank, name_of(code), failed, ranks,
           dead[2] ? "among them" : "not among them");

    /* The living ranks exchange messages as before, in a ring without rank 2. */
    int left = neighbour(dead, -1), right = neighbour(dead, 1);
    sum = rank;
    for (int lap = 1, token = rank; lap < ranks - failed; lap++, token = got) {
        code = MPI_Sendrecv(&token, 1, MPI_INT, right, 0, &got, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 1);
        sum += got;
    }
    printf("rank %d: from %d, to %d; the sum of the living is %d\n", rank, left, right, sum);

    MPI_Finalize();
    return 0;
}
