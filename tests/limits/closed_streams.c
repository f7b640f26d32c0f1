/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Standard streams that the program was started without stay closed: no descriptor of the library takes their numbers, and what
 * the program prints is written nowhere. Exits with 0 if all is well; it may have no other way to say so. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int closed(int stream) { return fcntl(stream, F_GETFD) < 0 && errno == EBADF; }

/* Large enough that both ranks hold each other's memory. */
static int sent[1 << 16], received[1 << 16];

int main(int argc, char **argv) {
    int was_closed[3], rank, size, errors = 0;
    for (int stream = 0; stream < 3; stream++)
        was_closed[stream] = closed(stream);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 3; round++) {
        sent[0] = rank + round;
        MPI_Sendrecv(sent, 1 << 16, MPI_INT, (rank + 1) % size, 0, received, 1 << 16, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        errors += received[0] != (rank + size - 1) % size + round;
        for (int stream = 0; stream < 3; stream++)
            errors += closed(stream) != was_closed[stream];
        for (int stream = 1; stream < 3; stream++)
            if (was_closed[stream])
                errors += write(stream, "lost\n", 5) >= 0 || errno != EBADF;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0 && errors == 0 && !was_closed[1])
        printf("No errors\n");
    MPI_Finalize();
    return errors == 0 ? 0 : 9;
}
