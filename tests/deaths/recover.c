/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A loop of collective and point-to-point operations whose ranks are killed by SIGKILL at random moments: a timer of the kernel kills
 * them, at any instruction. The survivors revoke, agree, shrink and go on, until so many rounds are done. Arguments: the number of
 * rounds, a seed, the latest moment of a death in microseconds. Rank 0 lives, and prints how many have died, and how often it repaired. */
#include "death_timer.h"

#include <mpi-ext.h>
#include <string.h>

enum { TAG = 3, LONG = 30000 };
static int out[LONG], in[LONG];

static int ring(MPI_Comm comm, int me, int size, int count, int synchronous)
{
    MPI_Request request;
    MPI_Status status;
    int next = (me + 1) % size, last = (me + size - 1) % size, code, sent;
    for (int i = 0; i < count; i++)
        out[i] = me * 7 + i;
    code = MPI_Irecv(in, count, MPI_INT, last, TAG, comm, &request);
    if (code != MPI_SUCCESS)
        return code;
    sent = synchronous ? MPI_Ssend(out, count, MPI_INT, next, TAG, comm) : MPI_Send(out, count, MPI_INT, next, TAG, comm);
    if (sent != MPI_SUCCESS)
        MPIX_Comm_revoke(comm);
    code = MPI_Wait(&request, &status);
    for (int i = 0; code == MPI_SUCCESS && i < count; i++)
        expect("a byte of the ring", in[i], last * 7 + i);
    return sent != MPI_SUCCESS ? sent : code;
}

/* Rank 0 takes one message of each other. */
static int any_source(MPI_Comm comm, int me, int size)
{
    MPI_Status status;
    int code = MPI_SUCCESS;
    if (me != 0)
        return MPI_Send(&me, 1, MPI_INT, 0, TAG + 1, comm);
    for (int i = 1; i < size && code == MPI_SUCCESS; i++) {
        int got = -1;
        code = MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, TAG + 1, comm, &status);
        if (code == MPI_SUCCESS)
            expect("who sent it", got, status.MPI_SOURCE);
    }
    return code;
}

static int operation(MPI_Comm comm, int which)
{
    int me, size, one = 1, sum = 0, code;
    MPI_Comm made;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    switch (which) {
    case 0:
        code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (code == MPI_SUCCESS)
            expect("the sum", sum, size);
        return code;
    case 1: return ring(comm, me, size, 3, 0);
    case 2: return ring(comm, me, size, LONG, 0);
    case 3: return ring(comm, me, size, 100, 1);
    case 4: return any_source(comm, me, size);
    case 5: return MPI_Barrier(comm);
    default:
        code = which == 6 ? MPI_Comm_dup(comm, &made) : MPI_Comm_split(comm, me % 2, 0, &made);
        if (code == MPI_SUCCESS)
            MPI_Comm_free(&made);
        return code;
    }
}

static int is_failure(int code)
{
    return class_of(code) == MPI_ERR_PROC_FAILED || class_of(code) == MPI_ERR_REVOKED;
}

int main(int argc, char **argv)
{
    int rounds = begin_with_deaths(argc, argv, 1, 2), repairs = 0, ranks, left;
    MPI_Comm comm, made;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPIX_Comm_shrink(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < rounds; round++) {
        int code = operation(comm, round % 8), flag, agreed;
        if (code != MPI_SUCCESS) {
            expect("the class of an error", is_failure(code), 1);
            MPIX_Comm_revoke(comm);
        }
        flag = code == MPI_SUCCESS;
        agreed = MPIX_Comm_agree(comm, &flag);
        if (flag && agreed == MPI_SUCCESS)
            continue;
        expect("the class of an agreement", agreed == MPI_SUCCESS || class_of(agreed) == MPI_ERR_PROC_FAILED, 1);
        repairs++;
        expect("shrink", MPIX_Comm_shrink(comm, &made), MPI_SUCCESS);
        expect("free", MPI_Comm_free(&comm), MPI_SUCCESS);
        comm = made;
    }
    MPI_Comm_size(comm, &left);
    MPI_Comm_free(&comm);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        printf("no errors: %d deaths, %d repairs\n", ranks - left, repairs);
    return errors ? 120 : 0;
}
