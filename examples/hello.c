/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The first program: every rank says hello, a ball goes round the ring, and all add up their numbers.
 *
 *     mpicc examples/hello.c -o hello && mpiexec -n 4 ./hello
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, length, sum = 0, ball = 0;
    char name[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    printf("hello from rank %d of %d on %s\n", rank, size, name);

    /* The ball starts at rank 0; everybody adds one to it and throws it to the right. */
    if (rank == 0) {
        int thrown = 1;
        MPI_Sendrecv(&thrown, 1, MPI_INT, (rank + 1) % size, 0, &ball, 1, MPI_INT, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&ball, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        ball += 1;
        MPI_Send(&ball, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }

    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("the ball came back as %d, the sum of all ranks is %d\n", ball, sum);
    MPI_Finalize();
    return 0;
}
