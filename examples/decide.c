/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One rank decides. All ranks share the blocks of a computation; after each step rank 0 tells them which ranks are alive and
 * whether the step counts. A step in which a rank died is repeated, and its blocks are divided among the living ranks. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BLOCKS = 12, STEPS = 3, RANKS_MAX = 1024 };

/* The message of rank 0 to the others after each step. */
struct decision {
    int again, total, alive[RANKS_MAX];
};

static int rank, ranks;

/* The sum of this rank's blocks, which are dealt to the living ranks one after another. */
static int compute(int step, const int *alive)
{
    int sum = 0, living = 0, place = 0;
    for (int each = 0; each < ranks; each++) {
        if (each == rank)
            place = living;
        living += alive[each];
    }
    for (int block = place; block < BLOCKS; block += living)
        sum += block + step;
    return sum;
}

/* Rank 0 receives from each living rank by its number, so no acknowledgement is needed. */
static void decide(int own, struct decision *decision)
{
    int part;
    decision->again = 0;
    decision->total = own;
    for (int other = 1; other < ranks; other++) {
        if (!decision->alive[other])
            continue;
        if (MPI_Recv(&part, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
            decision->total += part;
        } else {
            decision->alive[other] = 0;
            decision->again = 1;
        }
    }
    /* A rank that dies from here on is noticed in the next step. */
    for (int other = 1; other < ranks; other++)
        if (decision->alive[other])
            MPI_Send(decision, sizeof *decision, MPI_BYTE, other, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static struct decision decision;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int each = 0; each < ranks; each++)
        decision.alive[each] = 1;

    for (int step = 0; step < STEPS; step += !decision.again) {
        int part = compute(step, decision.alive);
        if (rank == 2 && step == 1)
            kill(getpid(), SIGKILL);
        if (rank == 0) {
            decide(part, &decision);
            printf("step %d: ", step);
            if (decision.again)
                printf("a rank has failed, so the step is done again\n");
            else
                printf("the total is %d\n", decision.total);
        } else {
            /* Without rank 0 no rank decides: the job ends. */
            if (MPI_Send(&part, 1, MPI_INT, 0, 0, MPI_COMM_WORLD) != MPI_SUCCESS ||
                MPI_Recv(&decision, sizeof decision, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Finalize();
    return 0;
}
