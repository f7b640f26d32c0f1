/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A loop that splits a communicator, connects the halves by an intercommunicator, uses it and merges them, while ranks are killed by
 * SIGKILL: a timer of the kernel kills them, at any instruction. Each creation has the same result at all survivors. Whoever has failed
 * to create frees the local communicator at once, while others still vote. Arguments: the number of rounds, a seed, the latest moment of
 * a death in microseconds. Rank 0 lives, and prints how many have died, and how often it repaired. */
#include "death_timer.h"

#include <mpi-ext.h>
#include <string.h>

enum { TAG = 3, ALL_MADE = 2, NONE_MADE = 1 };

static int is_failure(int code)
{
    return class_of(code) == MPI_ERR_PROC_FAILED || class_of(code) == MPI_ERR_REVOKED;
}

/* Row CC1: whether a creation had the same result everywhere, and which. `all` has all that took part. */
static int made_everywhere(const char *what, MPI_Comm all, int code, MPI_Comm made)
{
    int flag = code == MPI_SUCCESS ? ALL_MADE : NONE_MADE, agreed;
    expect(what, code == MPI_SUCCESS || is_failure(code), 1);
    expect("its handle", made != MPI_COMM_NULL, code == MPI_SUCCESS);
    agreed = MPIX_Comm_agree(all, &flag);
    expect("the class of an agreement", agreed == MPI_SUCCESS || class_of(agreed) == MPI_ERR_PROC_FAILED, 1);
    expect("the same everywhere", flag == ALL_MADE || flag == NONE_MADE, 1);
    return flag == ALL_MADE;
}

/* Messages between the groups; whoever fails revokes, so that nobody waits. */
static int messages(MPI_Comm inter)
{
    int me, others, got = -1, any = (int)draw(2), code = MPI_SUCCESS;
    MPI_Request request;
    MPI_Status status;
    MPI_Comm_rank(inter, &me);
    MPI_Comm_remote_size(inter, &others);
    for (int other = 0; other < others && code == MPI_SUCCESS; other++) {
        code = MPI_Irecv(&got, 1, MPI_INT, any ? MPI_ANY_SOURCE : other, TAG, inter, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Send(&me, 1, MPI_INT, other, TAG, inter);
        if (code != MPI_SUCCESS)
            MPIX_Comm_revoke(inter);
        code = MPI_Wait(&request, &status);
        if (class_of(code) == MPI_ERR_PROC_FAILED_PENDING) {
            MPIX_Comm_revoke(inter);
            code = MPI_Wait(&request, &status);
        }
        if (code == MPI_SUCCESS)
            expect("who sent it", got, status.MPI_SOURCE);
        else
            MPIX_Comm_revoke(inter);
    }
    return code;
}

/* Rows AG9, SH10, DY6 on an intercommunicator that may have failed members. */
static void use(MPI_Comm all, MPI_Comm inter, int side)
{
    int flag = side ? 6 : 3, code, size = 0, remote = 0;
    MPI_Comm made = MPI_COMM_WORLD, shrunk = MPI_COMM_WORLD;
    code = messages(inter);
    expect("the class of a message", code == MPI_SUCCESS || is_failure(code), 1);
    code = MPIX_Comm_agree(inter, &flag);
    expect("the class of agree", code == MPI_SUCCESS || class_of(code) == MPI_ERR_PROC_FAILED, 1);
    expect("the flag of the others", flag == (side ? 3 : 6) || flag == -1, 1);
    expect("shrink", MPIX_Comm_shrink(inter, &shrunk), MPI_SUCCESS);
    if (shrunk != MPI_COMM_NULL) {
        MPI_Comm_size(shrunk, &size);
        MPI_Comm_remote_size(shrunk, &remote);
        expect("both have members", size > 0 && remote > 0, 1);
        code = MPI_Intercomm_merge(shrunk, side, &made);
        expect("merge", code == MPI_SUCCESS || is_failure(code), 1);
        expect("its handle", made != MPI_COMM_NULL, code == MPI_SUCCESS);
        if (code == MPI_SUCCESS) {
            code = MPI_Barrier(made);
            expect("a barrier", code == MPI_SUCCESS || is_failure(code), 1);
            MPI_Comm_free(&made);
        }
        MPI_Comm_free(&shrunk);
    }
    code = MPI_Intercomm_merge(inter, 0, &made);
    if (made_everywhere("merge", all, code, made) && made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
}

/* One round over the survivors. Whether it was without a failure. */
static int connect(MPI_Comm all)
{
    int me, size, side, leader, other, code;
    MPI_Comm local = MPI_COMM_WORLD, inter = MPI_COMM_WORLD;
    MPI_Comm_rank(all, &me);
    MPI_Comm_size(all, &size);
    side = me % 2;
    code = MPI_Comm_split(all, side, me, &local);
    if (!made_everywhere("split", all, code, local))
        return 0;
    /* The first ones lead, or the second ones where there are any. */
    leader = size > 3 ? (int)(size % 2) : 0;
    other = 2 * leader + 1 - side;
    code = MPI_Intercomm_create(local, leader, all, other, TAG, &inter);
    if (code != MPI_SUCCESS)
        MPI_Comm_free(&local);
    if (!made_everywhere("intercomm_create", all, code, inter))
        return 0;
    use(all, inter, side);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
    return 1;
}

int main(int argc, char **argv)
{
    int rounds = begin_with_deaths(argc, argv, 1, 3), repairs = 0, ranks, left;
    MPI_Comm all, made;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPIX_Comm_shrink(MPI_COMM_WORLD, &all);
    MPI_Comm_size(all, &left);
    for (int round = 0; round < rounds && left > 1; round++) {
        int ok = connect(all);
        int flag = ok, agreed = MPIX_Comm_agree(all, &flag);
        if (flag && agreed == MPI_SUCCESS)
            continue;
        repairs++;
        expect("shrink", MPIX_Comm_shrink(all, &made), MPI_SUCCESS);
        expect("free", MPI_Comm_free(&all), MPI_SUCCESS);
        all = made;
        MPI_Comm_size(all, &left);
    }
    MPI_Comm_free(&all);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        printf("no errors: %d deaths, %d repairs\n", ranks - left, repairs);
    return errors ? 120 : 0;
}
