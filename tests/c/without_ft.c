/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 3 4
// mpiexec: --with-ft no
// Row CN3: a job that does not tolerate failures says so
// Row CN6: the calls of the extension are there all the same, and act as if nothing failed
#include <mpi-ext.h>
#include <mpi.h>
#include <stdio.h>

static int errors, rank, size;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

static void nobody_has_failed(void)
{
    MPI_Group failed = MPI_GROUP_NULL, acknowledged = MPI_GROUP_NULL;
    int count = -1;
    expect("who failed", MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed), MPI_SUCCESS);
    expect("is nobody", failed == MPI_GROUP_EMPTY, 1);
    expect("acknowledging", MPIX_Comm_ack_failed(MPI_COMM_WORLD, 0, &count), MPI_SUCCESS);
    expect("is of nobody", count, 0);
    expect("acknowledging all", MPIX_Comm_failure_ack(MPI_COMM_WORLD), MPI_SUCCESS);
    expect("who is acknowledged", MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &acknowledged), MPI_SUCCESS);
    expect("nobody", acknowledged == MPI_GROUP_EMPTY, 1);
}

static void members_agree(MPI_Comm comm)
{
    MPI_Group failed = MPI_GROUP_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = ~(1 << rank), members = 0;
    expect("agreeing", MPIX_Comm_agree(comm, &flag), MPI_SUCCESS);
    expect("gives the bitwise AND", flag, ~((1 << size) - 1));
    flag = rank == size - 1 ? 5 : 7;
    expect("starting an agreement", MPIX_Comm_iagree(comm, &flag, &request), MPI_SUCCESS);
    expect("waiting for it", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("gives the AND too", flag, 5);
    expect("agreeing on the failed", MPIX_Comm_agree_failed(comm, &failed), MPI_SUCCESS);
    MPI_Group_size(failed, &members);
    expect("who are nobody", members, 0);
}

static void shrunk_is_a_duplicate(MPI_Comm comm, MPI_Comm shrunk)
{
    int result = -1, sum = 0;
    MPI_Comm_compare(comm, shrunk, &result);
    expect("a shrink keeps all members", result, MPI_CONGRUENT);
    expect("and is usable", MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, shrunk), MPI_SUCCESS);
    expect("by all", sum, size * (size - 1) / 2);
    MPI_Comm_free(&shrunk);
}

static void shrink_and_ishrink(MPI_Comm comm)
{
    MPI_Comm shrunk = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    expect("shrinking", MPIX_Comm_shrink(comm, &shrunk), MPI_SUCCESS);
    shrunk_is_a_duplicate(comm, shrunk);
    shrunk = MPI_COMM_NULL;
    expect("starting a shrink", MPIX_Comm_ishrink(comm, &shrunk, &request), MPI_SUCCESS);
    expect("waiting for it", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    shrunk_is_a_duplicate(comm, shrunk);
}

/* Rank 0 revokes while the others are in a barrier that it never enters. */
static void revoked_ones_are_repaired(void)
{
    MPI_Comm comm;
    int revoked = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    expect("nothing is revoked", MPIX_Comm_is_revoked(comm, &revoked) || revoked, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        expect("revoking", MPIX_Comm_revoke(comm), MPI_SUCCESS);
    else
        expect("a barrier that is revoked", MPI_Barrier(comm), MPIX_ERR_REVOKED);
    MPIX_Comm_is_revoked(comm, &revoked);
    expect("it is revoked", revoked, 1);
    expect("for ever", MPI_Barrier(comm), MPIX_ERR_REVOKED);
    members_agree(comm);
    shrink_and_ishrink(comm);
    MPI_Comm_free(&comm);
}

int main(void)
{
    void *value = NULL;
    int flag = -1, round;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    expect("MPI_FT is known", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &value, &flag), MPI_SUCCESS);
    expect("and not set", flag, 0);
    nobody_has_failed();
    members_agree(MPI_COMM_WORLD);
    shrink_and_ishrink(MPI_COMM_WORLD);
    for (round = 0; round < 20; round++)
        revoked_ones_are_repaired();
    nobody_has_failed();
    MPI_Finalize();
    if (errors == 0 && rank == 0)
        printf("No errors\n");
    return errors != 0;
}
