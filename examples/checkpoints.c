/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checkpoints in memory: each block of the computation has an owner and a buddy, another rank that has a copy of it. When a rank dies,
 * the buddies of its blocks become their owners, all ranks return to the last checkpoint, and the result is the same as without a
 * death. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 12, LENGTH = 1000, STEPS = 40, CHECKPOINT_EVERY = 5, RANKS_MAX = 1024 };

/* By rank in MPI_COMM_WORLD, alike at all ranks. */
static int owner[BLOCKS], buddy[BLOCKS], is_dead[RANKS_MAX];
/* The blocks that this rank owns; their last checkpoint, also of those that it keeps; and the checkpoint that is being made. */
static long now[BLOCKS][LENGTH], saved[BLOCKS][LENGTH], coming[BLOCKS][LENGTH];
static int step, saved_step, me, world_size;
static MPI_Comm comm;

/* The next living rank, around and around. */
static int living_after(int rank)
{
    do
        rank = (rank + 1) % world_size;
    while (is_dead[rank]);
    return rank;
}

static int rank_in_comm(int rank_in_world)
{
    MPI_Group world, group;
    int rank;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(comm, &group);
    MPI_Group_translate_ranks(world, 1, &rank_in_world, group, &rank);
    MPI_Group_free(&world);
    MPI_Group_free(&group);
    return rank;
}

/* One step needs the sum over all blocks. */
static int compute(void)
{
    long sum = 0;
    for (int block = 0; block < BLOCKS; block++)
        if (owner[block] == me)
            sum += now[block][step % LENGTH];
    int code = MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, comm);
    for (int block = 0; block < BLOCKS && code == MPI_SUCCESS; block++)
        for (int at = 0; owner[block] == me && at < LENGTH; at++)
            now[block][at] = (now[block][at] * 3 + sum + block + at) % 1000003;
    return code;
}

/* Copies go from owners to buddies. The checkpoint counts when all ranks have agreed that it is complete: then each rank has either
 * this checkpoint or, if any is missing, the one before. */
static int checkpoint(void)
{
    MPI_Request requests[2 * BLOCKS];
    int count = 0, is_complete = 1;
    for (int block = 0; block < BLOCKS; block++) {
        if (buddy[block] == me && owner[block] != me)
            MPI_Irecv(coming[block], LENGTH, MPI_LONG, rank_in_comm(owner[block]), block, comm, &requests[count++]);
        if (owner[block] == me) {
            memcpy(coming[block], now[block], sizeof now[block]);
            if (buddy[block] != me) /* else this is the last living rank */
                MPI_Isend(coming[block], LENGTH, MPI_LONG, rank_in_comm(buddy[block]), block, comm, &requests[count++]);
        }
    }
    if (MPI_Waitall(count, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
        is_complete = 0;
        MPIX_Comm_revoke(comm); /* Those that wait for this rank are interrupted. */
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    }
    int code = MPIX_Comm_agree(comm, &is_complete);
    if (code != MPI_SUCCESS || !is_complete)
        return MPIX_ERR_PROC_FAILED;
    memcpy(saved, coming, sizeof saved);
    saved_step = step;
    return MPI_SUCCESS;
}

/* Buddies become owners; everybody returns to the last checkpoint. */
static void recover(void)
{
    MPI_Comm smaller;
    MPIX_Comm_revoke(comm);
    MPIX_Comm_shrink(comm, &smaller);
    if (comm != MPI_COMM_WORLD)
        MPI_Comm_free(&comm);
    comm = smaller;
    for (int rank = 0; rank < world_size; rank++)
        is_dead[rank] = rank_in_comm(rank) == MPI_UNDEFINED;
    for (int block = 0; block < BLOCKS; block++) {
        if (is_dead[owner[block]] && is_dead[buddy[block]])
            MPI_Abort(MPI_COMM_WORLD, 3); /* Both died between two checkpoints. */
        if (is_dead[owner[block]])
            owner[block] = buddy[block];
        buddy[block] = living_after(owner[block]);
    }
    step = saved_step;
    memcpy(now, saved, sizeof now);
    if (rank_in_comm(me) == 0)
        printf("back to step %d\n", step);
}

int main(int argc, char **argv)
{
    long sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    comm = MPI_COMM_WORLD;
    int victim = argc > 1 ? atoi(argv[1]) : -1;
    for (int block = 0; block < BLOCKS; block++) {
        owner[block] = block % world_size;
        buddy[block] = living_after(owner[block]);
        for (int at = 0; at < LENGTH; at++)
            now[block][at] = saved[block][at] = block * LENGTH + at;
    }
    for (int is_new = 1;;) {
        /* A checkpoint after every few steps, and after each recovery, since buddies have changed. With the last one all end together. */
        int code = is_new || step % CHECKPOINT_EVERY == 0 ? checkpoint() : MPI_SUCCESS;
        if (code == MPI_SUCCESS && step == STEPS)
            break;
        if (me == victim && step == 17 && comm == MPI_COMM_WORLD)
            kill(getpid(), SIGKILL);
        if (code == MPI_SUCCESS)
            code = compute();
        is_new = code != MPI_SUCCESS;
        if (is_new)
            recover();
        else
            step++;
    }
    for (int block = 0; block < BLOCKS; block++)
        for (int at = 0; owner[block] == me && at < LENGTH; at++)
            sum += now[block][at];
    if (MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, comm) == MPI_SUCCESS && rank_in_comm(me) == 0)
        printf("the sum after %d steps is %ld\n", STEPS, sum);
    MPI_Finalize();
    return 0;
}
