/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* cut FOLDER: all ranks exchange messages until a call fails, while the harness cuts the wire between some of them for good. Each rank prints the
 * class of its error. When all have had one, they revoke, agree and shrink, and those that are still there print how many they are. */
#include "meeting.h"

enum { LONG = 100000, LONG_EVERY = 4, RANKS_MAX = 8 };

static int sent[LONG], got[RANKS_MAX][LONG];

/* Each rank gets a number of each other one, and now and then many. All receives are started at once: so each rank that is cut from one waits
 * for that one, also if a rank that it can reach has had its error and sends no more. */
static int exchange(int number)
{
    MPI_Request requests[2 * RANKS_MAX];
    int error = MPI_SUCCESS, count = number % LONG_EVERY == 0 ? LONG : 1, started = 0;
    for (int i = 0; i < count; i++)
        sent[i] = number + i;
    for (int other = 0; other < size && error == MPI_SUCCESS; other++)
        if (other != rank)
            error = MPI_Irecv(got[other], count, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[started++]);
    for (int other = 0; other < size && error == MPI_SUCCESS; other++)
        if (other != rank)
            error = MPI_Isend(sent, count, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[started++]);
    if (error != MPI_SUCCESS)
        return error;
    // Not MPI_Waitall: it would wait for a rank that has had its error.
    for (int left = started, index; left > 0 && error == MPI_SUCCESS; left--)
        error = MPI_Waitany(started, requests, &index, MPI_STATUS_IGNORE);
    for (int other = 0; other < size && error == MPI_SUCCESS; other++)
        for (int i = 0; i < count && other != rank; i++)
            if (got[other][i] != number + i)
                MPI_Abort(MPI_COMM_WORLD, 1);
    return error;
}

/* Waits until each rank has had its error: the ranks cannot tell each other, and the first that repairs may be the end of another one. */
static void meet(void)
{
    char name[64];
    snprintf(name, sizeof name, "failed-%d", rank);
    announce(name);
    for (int other = 0; other < size; other++) {
        snprintf(name, sizeof name, "failed-%d", other);
        while (!exists(name))
            usleep(1000);
    }
}

int main(int argc, char **argv)
{
    int error = MPI_SUCCESS, flag = 1, left;
    MPI_Comm rest;
    begin(&argc, &argv);
    for (int number = 0; error == MPI_SUCCESS; number++) {
        compute_if_told();
        error = exchange(number);
        if (number == 0 && rank == 0 && error == MPI_SUCCESS)
            announce("running");
    }
    printf("rank %d: error %s\n", rank, class_of(error));
    fflush(stdout);
    meet();
    error = MPIX_Comm_revoke(MPI_COMM_WORLD);
    if (error != MPI_SUCCESS)
        printf("rank %d: revoke: %s\n", rank, class_of(error));
    error = MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    printf("rank %d: agreed: %s\n", rank, class_of(error));
    error = MPIX_Comm_shrink(MPI_COMM_WORLD, &rest);
    if (error != MPI_SUCCESS)
        printf("rank %d: shrink: %s\n", rank, class_of(error));
    MPI_Comm_size(rest, &left);
    flag = 1;
    error = MPIX_Comm_agree(rest, &flag);
    printf("rank %d: goes on as one of %d: %s\n", rank, left, class_of(error));
    MPI_Finalize();
    return 0;
}
