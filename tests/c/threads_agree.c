/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3
// timeout: 60
/* A thread of rank 0 waits in an agreement; another one receives from any source on a communicator whose other member has left. The
 * first thread can still send what the second one waits for, and does when it has agreed. */
#include "expect.h"

#include <mpi-ext.h>
#include <pthread.h>
#include <unistd.h>

enum { TAG = 3, NEVER = 4, VALUE = 77 };
static MPI_Comm ours, pair;

static void *agrees_and_sends(void *unused)
{
    int flag = 1, value = VALUE;
    (void)unused;
    expect("agree", MPIX_Comm_agree(ours, &flag), MPI_SUCCESS);
    expect("send to itself", MPI_Send(&value, 1, MPI_INT, 0, TAG, pair), MPI_SUCCESS);
    return NULL;
}

static void two_threads(void)
{
    int value = -1;
    pthread_t agreeing;
    expect("rank 2 leaves", class_of(MPI_Recv(&value, 1, MPI_INT, 1, NEVER, pair, MPI_STATUS_IGNORE)), MPI_ERR_OTHER);
    if (pthread_create(&agreeing, NULL, agrees_and_sends, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    /* Long enough for the other thread to look for crossed recoveries, though the test does not depend on it. */
    usleep(300000);
    expect("go", MPI_Send(&value, 1, MPI_INT, 1, TAG, ours), MPI_SUCCESS);
    expect("receive", MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, pair, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("its value", value, VALUE);
    pthread_join(agreeing, NULL);
}

int main(int argc, char **argv)
{
    int provided, value = 0, flag = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 2 ? MPI_UNDEFINED : 0, rank, &ours);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, rank, &pair);
    if (rank == 0)
        two_threads();
    if (rank == 1) {
        expect("go", MPI_Recv(&value, 1, MPI_INT, 0, TAG, ours, MPI_STATUS_IGNORE), MPI_SUCCESS);
        /* Likewise: the receive of rank 0 shall come before the agreement. */
        usleep(100000);
        expect("agree", MPIX_Comm_agree(ours, &flag), MPI_SUCCESS);
        /* Rank 1 knows the errors of rank 0. */
        MPI_Recv(&value, 1, MPI_INT, 0, TAG, ours, MPI_STATUS_IGNORE);
        if (value == 0 && errors == 0)
            printf("No errors\n");
    }
    if (rank == 0)
        MPI_Send(&errors, 1, MPI_INT, 1, TAG, ours);
    MPI_Finalize();
    return errors != 0;
}
