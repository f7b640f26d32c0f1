/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
/* A rank without a free file descriptor cannot connect to another one: both get an error class, and both go on. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { LIMIT = 64 };
    int rank, error, class, opened = 0, word = 0, files[LIMIT];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = LIMIT;
        setrlimit(RLIMIT_NOFILE, &limit);
        while (opened < LIMIT && (files[opened] = open("/dev/null", O_RDONLY)) >= 0)
            opened++;
        error = MPI_Ssend(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        while (opened > 0)
            close(files[--opened]);
    } else {
        error = MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Error_class(error, &class);
    if (class != MPI_ERR_OTHER)
        fprintf(stderr, "rank %d: class %d\n", rank, class);
    else if (rank == 0)
        printf("No errors\n");
    MPI_Finalize();
    return class != MPI_ERR_OTHER;
}
