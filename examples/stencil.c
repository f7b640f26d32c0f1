/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Heat in a rod, by Jacobi's method: each rank has a part of the cells and exchanges edges with its neighbours. When ranks die, the others
 * shrink the communicator, fill the lost cells by a straight line between their neighbours, and go on: the method finds the
 * solution from any state. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CELLS = 64, CHECK_EVERY = 100 };

/* Cell 0 is kept at 0 degrees, cell CELLS + 1 at 100. A rank has the true values of cells first to last, and of one more at each side. */
static double heat[CELLS + 2];
static MPI_Comm comm;
static int rank, ranks, first, last;

/* Divides the cells among the ranks of the communicator. */
static void divide(void)
{
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    first = 1 + CELLS * rank / ranks;
    last = CELLS * (rank + 1) / ranks;
    heat[CELLS + 1] = 100;
}

static int exchange_edges(void)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    int code = MPI_Sendrecv(&heat[first], 1, MPI_DOUBLE, left, 0, &heat[last + 1], 1, MPI_DOUBLE, right, 0, comm,
                            MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return code;
    return MPI_Sendrecv(&heat[last], 1, MPI_DOUBLE, right, 0, &heat[first - 1], 1, MPI_DOUBLE, left, 0, comm,
                        MPI_STATUS_IGNORE);
}

/* Some iterations, then the largest change of the last one over all ranks. */
static int iterate(double *change)
{
    for (int i = 0; i < CHECK_EVERY; i++) {
        int code = exchange_edges();
        if (code != MPI_SUCCESS)
            return code;
        double before = heat[first - 1];
        *change = 0;
        for (int cell = first; cell <= last; cell++) {
            double old = heat[cell], moved;
            heat[cell] = (before + heat[cell + 1]) / 2;
            moved = heat[cell] > old ? heat[cell] - old : old - heat[cell];
            *change = moved > *change ? moved : *change;
            before = old;
        }
    }
    return MPI_Allreduce(MPI_IN_PLACE, change, 1, MPI_DOUBLE, MPI_MAX, comm);
}

/* All ranks get the values of all cells. Cells of dead ranks get those of a line between their living neighbours. */
static int collect(void)
{
    double mine[2 * (CELLS + 2)] = {0}, all[2 * (CELLS + 2)];
    double *is_known = all + CELLS + 2;
    for (int cell = first; cell <= last; cell++) {
        mine[cell] = heat[cell];
        mine[CELLS + 2 + cell] = 1;
    }
    int code = MPI_Allreduce(mine, all, 2 * (CELLS + 2), MPI_DOUBLE, MPI_SUM, comm);
    if (code != MPI_SUCCESS)
        return code;
    all[CELLS + 1] = 100;
    is_known[0] = is_known[CELLS + 1] = 1;
    for (int cell = 1, next; cell <= CELLS; cell = next) {
        for (next = cell; !is_known[next]; next++)
            ;
        for (int lost = cell; lost < next; lost++)
            all[lost] = all[cell - 1] + (all[next] - all[cell - 1]) * (lost - cell + 1) / (next - cell + 1);
        next += next == cell;
    }
    for (int cell = 1; cell <= CELLS; cell++)
        heat[cell] = all[cell];
    return MPI_SUCCESS;
}

/* The survivors get a communicator of their own. Whoever waits in the old one is interrupted first. All of them leave this function
 * together; if one of them found another failure in `collect`, all begin again. */
static void recover(void)
{
    int is_complete;
    do {
        MPI_Comm smaller;
        MPIX_Comm_revoke(comm);
        MPIX_Comm_shrink(comm, &smaller);
        if (comm != MPI_COMM_WORLD)
            MPI_Comm_free(&comm);
        comm = smaller;
        is_complete = collect() == MPI_SUCCESS;
        if (MPIX_Comm_agree(comm, &is_complete) != MPI_SUCCESS)
            is_complete = 0;
    } while (!is_complete);
    divide();
    if (rank == 0)
        printf("%d ranks go on\n", ranks);
}

int main(int argc, char **argv)
{
    double change = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    comm = MPI_COMM_WORLD;
    divide();
    int victim = argc > 1 ? atoi(argv[1]) : -1;
    for (int round = 0, is_over = 0; !is_over; round++) {
        if (rank == victim && ranks > 1 && comm == MPI_COMM_WORLD && round == 3)
            kill(getpid(), SIGKILL);
        int is_good = iterate(&change) == MPI_SUCCESS;
        if (!is_good)
            MPIX_Comm_revoke(comm); /* A neighbour that saw no error is interrupted, and comes here too. */
        /* An allreduce may succeed at some ranks alone; an agreement ends alike at all. */
        if (MPIX_Comm_agree(comm, &is_good) != MPI_SUCCESS || !is_good)
            recover();
        else
            is_over = change < 1e-6;
    }
    if (collect() == MPI_SUCCESS && rank == 0)
        printf("the middle of the rod has %.2f degrees\n", (heat[CELLS / 2] + heat[CELLS / 2 + 1]) / 2);
    MPI_Finalize();
    return 0;
}
