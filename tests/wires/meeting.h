/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The folder in which the ranks and the harness meet while the wire is broken. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *folder;
static int rank, size;

static const char *file_of(const char *what)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s/%s", folder, what);
    return name;
}

static int exists(const char *what)
{
    return access(file_of(what), F_OK) == 0;
}

/* As long as the harness says so, rank 1 computes, and calls no function of MPI. */
static void compute_if_told(void)
{
    while (rank == 1 && exists("compute"))
        for (volatile int i = 0; i < 100000; i++)
            ;
}

/* Makes a file that holds the number of this process. It is complete when it has its name. */
static void announce(const char *what)
{
    char own[64], beside[4096];
    FILE *file;
    snprintf(own, sizeof own, "new-%d", rank);
    snprintf(beside, sizeof beside, "%s", file_of(own));
    file = fopen(beside, "w");
    if (!file || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0 || rename(beside, file_of(what)) != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static void begin(int *argc, char ***argv)
{
    char own[64];
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    folder = (*argv)[*argc - 1];
    snprintf(own, sizeof own, "rank-%d", rank);
    announce(own);
}

static const char *class_of(int error)
{
    int class;
    MPI_Error_class(error, &class);
    switch (class) {
    case MPI_SUCCESS:
        return "none";
    case MPI_ERR_OTHER:
        return "other";
    case MPIX_ERR_PROC_FAILED:
        return "failed";
    case MPIX_ERR_REVOKED:
        return "revoked";
    default:
        return "unexpected";
    }
}
