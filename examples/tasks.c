/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A manager hands out tasks. The task of a worker that dies goes to another worker. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { TASKS = 20, RANKS_MAX = 1024, NO_TASK = 0, STOP = -1 };

static int ranks, failed_before, todo[TASKS], left = TASKS;
static int task_of[RANKS_MAX], is_dead[RANKS_MAX];

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* Every worker without a task gets one, as long as there are any. A send to a worker that has just died may succeed or
 * return an error. Neither matters: the failure shows in the next receive, and the task is taken back there. */
static void hand_out(void)
{
    for (int worker = 1; worker < ranks && left > 0; worker++)
        if (!is_dead[worker] && task_of[worker] == NO_TASK) {
            task_of[worker] = todo[--left];
            MPI_Send(&task_of[worker], 1, MPI_INT, worker, 0, MPI_COMM_WORLD);
        }
}

/* Takes back the tasks of those that have failed since the last call, and acknowledges the failures: from then on receives
 * from MPI_ANY_SOURCE work again. */
static void on_failure(void)
{
    MPI_Group world, failed;
    int count, acknowledged;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed);
    MPI_Group_size(failed, &count);
    for (; failed_before < count; failed_before++) {
        int worker;
        MPI_Group_translate_ranks(failed, 1, &failed_before, world, &worker);
        printf("rank %d has failed with task %d\n", worker, task_of[worker]);
        is_dead[worker] = 1;
        if (task_of[worker] != NO_TASK)
            todo[left++] = task_of[worker];
    }
    MPIX_Comm_ack_failed(MPI_COMM_WORLD, count, &acknowledged);
    if (failed != MPI_GROUP_EMPTY)
        MPI_Group_free(&failed);
    MPI_Group_free(&world);
    if (count == ranks - 1)
        MPI_Abort(MPI_COMM_WORLD, 1); /* No worker is left. */
}

static void manage(void)
{
    int done = 0, sum = 0, stop = STOP, square;
    for (int task = TASKS; task > 0; task--)
        todo[TASKS - task] = task;
    while (done < TASKS) {
        MPI_Status status;
        hand_out();
        int code = MPI_Recv(&square, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
        if (code == MPI_SUCCESS) {
            sum += square;
            done++;
            task_of[status.MPI_SOURCE] = NO_TASK;
        } else if (class_of(code) == MPI_ERR_PROC_FAILED) {
            on_failure();
        } else {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    printf("%d tasks are done; the sum of the squares is %d\n", done, sum);
    for (int worker = 1; worker < ranks; worker++)
        if (!is_dead[worker])
            MPI_Send(&stop, 1, MPI_INT, worker, 0, MPI_COMM_WORLD);
}

static void work(int rank)
{
    int task;
    /* An error here means that the manager has failed: there is no more work. */
    while (MPI_Recv(&task, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && task != STOP) {
        int square = task * task;
        if (rank == 2)
            kill(getpid(), SIGKILL);
        MPI_Send(&square, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0)
        manage();
    else
        work(rank);
    MPI_Finalize();
    return 0;
}
