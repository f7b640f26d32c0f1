/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The failures that this process knows of. */
#ifndef MEND_FAILED_H
#define MEND_FAILED_H

#include <mpi-ext.h>
#include <mpi.h>

/* How many members of WORLD have failed; `named`: whether `who` is one of them. */
static inline int failed_members(int who, int *named)
{
    MPI_Group world, failed;
    int size = -1, place = MPI_UNDEFINED;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed);
    MPI_Group_size(failed, &size);
    if (who >= 0)
        MPI_Group_translate_ranks(world, 1, &who, failed, &place);
    if (named)
        *named = place != MPI_UNDEFINED;
    if (failed != MPI_GROUP_EMPTY)
        MPI_Group_free(&failed);
    MPI_Group_free(&world);
    return size;
}

#endif
