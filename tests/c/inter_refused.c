/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4
/* What only the leaders of MPI_Intercomm_create are given, only they can refuse: the other members of their groups return, too. */
#include "expect.h"

enum { TAG = 7 };
static MPI_Comm pair;

/* Both pairs are given something wrong. */
static void is_refused(const char *what, MPI_Comm peer_comm, int remote_leader, int class)
{
    MPI_Comm made = MPI_COMM_WORLD;
    int code = MPI_Intercomm_create(pair, 0, peer_comm, remote_leader, TAG, &made);
    if (rank % 2 == 0)
        expect(what, class_of(code), class);
    else
        expect(what, code != MPI_SUCCESS, 1);
    expect(what, made == MPI_COMM_NULL, 1);
    expect(what, MPI_Barrier(pair), MPI_SUCCESS);
}

static MPI_Comm create(void)
{
    MPI_Comm made = MPI_COMM_NULL;
    int other = rank < 2 ? 2 : 0, remote = -1;
    expect("create", MPI_Intercomm_create(pair, 0, MPI_COMM_WORLD, other, TAG, &made), MPI_SUCCESS);
    MPI_Comm_remote_size(made, &remote);
    expect("its remote size", remote, 2);
    return made;
}

int main(int argc, char **argv)
{
    int all = -1;
    MPI_Comm inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
    int other = rank < 2 ? 2 : 0;
    inter = create();
    is_refused("no peer communicator", MPI_COMM_NULL, other, MPI_ERR_COMM);
    is_refused("an intercommunicator", inter, 0, MPI_ERR_COMM);
    is_refused("a negative rank", MPI_COMM_WORLD, -5, MPI_ERR_RANK);
    is_refused("nobody", MPI_COMM_WORLD, MPI_PROC_NULL, MPI_ERR_RANK);
    is_refused("a rank above all", MPI_COMM_WORLD, 4, MPI_ERR_RANK);
    is_refused("the leader itself", MPI_COMM_WORLD, rank, MPI_ERR_COMM);
    MPI_Comm_free(&inter);
    inter = create();
    MPI_Comm_free(&inter);
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
