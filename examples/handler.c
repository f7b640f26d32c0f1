/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An error handler maintains the list of failed ranks; the program hardly checks the results of its calls. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { RANKS_MAX = 1024 };

static int rank, ranks, known, is_dead[RANKS_MAX];

/* Called before a call returns an error. Buffers, statuses and handles are final by then, and it may call MPI. */
static void on_error(MPI_Comm *comm, int *code, ...)
{
    MPI_Group members, failed;
    int class, count;
    MPI_Error_class(*code, &class);
    if (class != MPI_ERR_PROC_FAILED)
        MPI_Abort(*comm, 1); /* Any other error is a mistake of the program. */
    MPI_Comm_group(*comm, &members);
    MPIX_Comm_get_failed(*comm, &failed);
    MPI_Group_size(failed, &count);
    for (; known < count; known++) {
        int one;
        MPI_Group_translate_ranks(failed, 1, &known, members, &one);
        is_dead[one] = 1;
        printf("rank %d: rank %d has failed\n", rank, one);
    }
    if (failed != MPI_GROUP_EMPTY)
        MPI_Group_free(&failed);
    MPI_Group_free(&members);
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Errhandler_free(&handler); /* The communicator keeps it. */

    if (rank == 2)
        kill(getpid(), SIGKILL);

    /* Each rank sends its number to each other rank. A number that does not come is left out. */
    int sum = rank;
    for (int other = 0; other < ranks; other++)
        if (other != rank && !is_dead[other])
            MPI_Send(&rank, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++) {
        int got;
        if (other != rank && !is_dead[other] &&
            MPI_Recv(&got, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            sum += got;
    }
    printf("rank %d: the sum of the living is %d\n", rank, sum);
    MPI_Finalize();
    return 0;
}
