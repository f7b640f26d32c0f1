/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 6 8
// mpiexec: --test-hooks
// env: MEND_TEST_MUTED=1
// expect-stderr: [E-JOB-015]
// timeout: 120
/* No notices of deaths are sent, and the dead are unconnected peers of the ranks that wait for them: ranks 2 and up are killed
 * immediately after MPI_Init. Every wait ends nevertheless, with the class of its row. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

static int errors;

static void check(const char *what, int code)
{
    if (code != MPI_ERR_PROC_FAILED && errors++ < 10)
        fprintf(stderr, "%s: %d\n", what, code);
}

int main(int argc, char **argv)
{
    int rank, number = 0, flag = 0, code, total = 0;
    MPI_Request request, both[2];
    MPI_Status statuses[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank >= 2)
        raise(SIGKILL);

    check("receive from anybody",
          MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    check("receive", MPI_Recv(&number, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    check("probe", MPI_Probe(3, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    do
        code = MPI_Iprobe(4, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    while (code == MPI_SUCCESS);
    check("immediate probe", code);
    MPI_Irecv(&number, 1, MPI_INT, 5, 1, MPI_COMM_WORLD, &request);
    do
        code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    while (code == MPI_SUCCESS && !flag);
    check("test", code);
    check("send", MPI_Ssend(&number, 1, MPI_INT, 5, 1, MPI_COMM_WORLD));
    MPI_Irecv(&number, 1, MPI_INT, 2, 2, MPI_COMM_WORLD, &both[0]);
    MPI_Irecv(&number, 1, MPI_INT, 3, 2, MPI_COMM_WORLD, &both[1]);
    if (MPI_Waitall(2, both, statuses) == MPI_ERR_IN_STATUS) {
        check("first of all", statuses[0].MPI_ERROR);
        check("second of all", statuses[1].MPI_ERROR);
    } else {
        check("all", MPI_SUCCESS);
    }
    check("barrier", MPI_Barrier(MPI_COMM_WORLD));

    /* The living ranks still exchange messages. */
    if (rank == 1) {
        MPI_Send(&errors, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&total, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (total + errors == 0)
            printf("No errors\n");
    }
    MPI_Finalize();
    return errors != 0;
}
