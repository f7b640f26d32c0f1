/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 3
// mpiexec: --with-ft no
// Row CN3: a job that does not tolerate failures says so
// Row CN6: the calls of the extension are there all the same, and act as if nothing failed
#include <mpi-ext.h>
#include <mpi.h>
#include <stdio.h>

static int errors;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

int main(void)
{
    void *value = NULL;
    MPI_Group failed = MPI_GROUP_NULL, acknowledged = MPI_GROUP_NULL;
    int flag = -1, count = -1, rank, sum = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    expect("MPI_FT is known", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &value, &flag), MPI_SUCCESS);
    expect("and not set", flag, 0);
    expect("who failed", MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed), MPI_SUCCESS);
    expect("is nobody", failed == MPI_GROUP_EMPTY, 1);
    expect("acknowledging", MPIX_Comm_ack_failed(MPI_COMM_WORLD, 0, &count), MPI_SUCCESS);
    expect("is of nobody", count, 0);
    expect("acknowledging all", MPIX_Comm_failure_ack(MPI_COMM_WORLD), MPI_SUCCESS);
    expect("who is acknowledged", MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &acknowledged), MPI_SUCCESS);
    expect("nobody", acknowledged == MPI_GROUP_EMPTY, 1);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (errors == 0 && rank == 0)
        printf("No errors\n");
    return errors != 0;
}
