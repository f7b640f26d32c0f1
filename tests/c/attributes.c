/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 3
/* The predefined attributes of communicators (MPI-5.0 §7.7.3, §9.1.2, §11.10), by both calls that read them; keys that do not exist. */
#include "expect.h"
#include <mpi-ext.h>

static MPI_Comm comm;

/* The int of a predefined attribute. */
static int of(int key)
{
    int *value = NULL, *old = NULL, flag = -1, old_flag = -1;
    expect("MPI_Comm_get_attr", MPI_Comm_get_attr(comm, key, &value, &flag), MPI_SUCCESS);
    expect("MPI_Attr_get", MPI_Attr_get(comm, key, &old, &old_flag), MPI_SUCCESS);
    expect("is set", flag == 1 && value != NULL, 1);
    expect("both calls give one address", old_flag == 1 && old == value, 1);
    return value ? *value : -12345;
}

static void predefined(int ranks)
{
    int added = -1;
    expect("MPI_TAG_UB", of(MPI_TAG_UB), 2147483647);
    expect("MPI_HOST", of(MPI_HOST), MPI_PROC_NULL);
    expect("MPI_IO", of(MPI_IO), MPI_ANY_SOURCE);
    expect("MPI_WTIME_IS_GLOBAL", of(MPI_WTIME_IS_GLOBAL), 0);
    expect("MPI_UNIVERSE_SIZE", of(MPI_UNIVERSE_SIZE), ranks);
    expect("MPI_APPNUM", of(MPI_APPNUM), 0);
    /* Row CN3 */
    expect("MPI_FT", of(MPI_FT), 1);
    expect("MPIX_FT", MPIX_FT, MPI_FT);
    int before = of(MPI_LASTUSEDCODE);
    MPI_Add_error_class(&added);
    expect("MPI_LASTUSEDCODE", of(MPI_LASTUSEDCODE), added);
    expect("grows", added > before, 1);
    MPI_Remove_error_class(added);
}

static void no_such_key(void)
{
    int *value = NULL, flag = -1;
    const int keys[] = {MPI_KEYVAL_INVALID, -1, 500, 508, 549, 551, MPI_WIN_BASE, 1 << 30};
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++) {
        expect("a key that does not exist", class_of(MPI_Comm_get_attr(comm, keys[i], &value, &flag)), MPI_ERR_KEYVAL);
        expect("in the older call", class_of(MPI_Attr_get(comm, keys[i], &value, &flag)), MPI_ERR_KEYVAL);
    }
    expect("of no communicator", class_of(MPI_Comm_get_attr(MPI_COMM_NULL, MPI_TAG_UB, &value, &flag)), MPI_ERR_COMM);
    expect("to nowhere", class_of(MPI_Comm_get_attr(comm, MPI_TAG_UB, NULL, &flag)), MPI_ERR_ARG);
}

int main(void)
{
    int ranks, all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm = MPI_COMM_WORLD;
    predefined(ranks);
    no_such_key();
    comm = MPI_COMM_SELF;
    predefined(ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    predefined(ranks);
    no_such_key();
    MPI_Comm_free(&comm);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && all == 0)
        printf("No errors\n");
    return all != 0;
}
