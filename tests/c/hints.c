/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 4
/* Hints of communicators (MPI-5.0 §7.4.4): which info keys Mend knows, and which communicators have them. */
#include "expect.h"
#include <string.h>

/* Whether the communicator has a hint with this value; NULL: whether it has no such hint. */
static int has(MPI_Comm comm, const char *key, const char *value)
{
    MPI_Info used = MPI_INFO_NULL;
    char found[MPI_MAX_INFO_VAL] = "";
    int length = sizeof found, flag = 0;
    expect("MPI_Comm_get_info", MPI_Comm_get_info(comm, &used), MPI_SUCCESS);
    MPI_Info_get_string(used, key, &length, found, &flag);
    MPI_Info_free(&used);
    return value ? flag && strcmp(found, value) == 0 : !flag;
}

static void set(MPI_Comm comm, const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    expect("MPI_Comm_set_info", MPI_Comm_set_info(comm, info), MPI_SUCCESS);
    MPI_Info_free(&info);
}

static int has_defaults(MPI_Comm comm)
{
    return has(comm, "mpi_error_range", "local") && has(comm, "mpi_error_uniform", "create") &&
           has(comm, "mpix_agree_uniform", "false");
}

/* Row IK4 */
static void hints_are_set_and_returned_and_unknown_ones_are_ignored(MPI_Comm comm)
{
    expect("the defaults", has_defaults(comm), 1);
    set(comm, "mpi_error_range", "group");
    expect("a hint", has(comm, "mpi_error_range", "group"), 1);
    set(comm, "mpi_error_uniform", "coll");
    expect("a value of which a part is kept", has(comm, "mpi_error_uniform", "create"), 1);
    set(comm, "mpix_error_uniform", "local");
    expect("in the other spelling", has(comm, "mpix_error_uniform", "local"), 1);
    expect("and in this one only", has(comm, "mpi_error_uniform", NULL), 1);
    expect("a hint that was not given stays", has(comm, "mpi_error_range", "group"), 1);
    set(comm, "mpix_agree_uniform", "true");
    expect("uniform agreements", has(comm, "mpix_agree_uniform", "true"), 1);
    set(comm, "mpi_error_range", "galaxy");
    set(comm, "mpi_error_uniform", "");
    set(comm, "mpix_agree_uniform", "perhaps");
    expect("unknown values are ignored",
           has(comm, "mpi_error_range", "group") && has(comm, "mpix_error_uniform", "local") && has(comm, "mpix_agree_uniform", "true"), 1);
    set(comm, "no_such_hint", "true");
    set(comm, "mpi_assert_no_any_tag", "true");
    expect("unknown keys are ignored", has(comm, "no_such_hint", NULL) && has(comm, "mpi_assert_no_any_tag", NULL), 1);
    expect("no info object", MPI_Comm_set_info(comm, MPI_INFO_NULL), MPI_SUCCESS);
    expect("changes nothing", has(comm, "mpi_error_range", "group"), 1);
    set(comm, "mpix_error_range", "universe");
    expect("the last value", has(comm, "mpix_error_range", "universe"), 1);
    set(comm, "mpi_error_range", "local");
    expect("the first spelling again", has(comm, "mpi_error_range", "local") && has(comm, "mpix_error_range", NULL), 1);
}

/* Row IK4 */
static void a_duplicate_has_the_hints_and_other_children_have_not(MPI_Comm parent)
{
    MPI_Comm child;
    MPI_Group group;
    set(parent, "mpi_error_range", "group");
    set(parent, "mpi_error_uniform", "local");
    MPI_Comm_dup(parent, &child);
    expect("a duplicate", has(child, "mpi_error_range", "group") && has(child, "mpi_error_uniform", "local"), 1);
    set(child, "mpi_error_range", "local");
    expect("has its own", has(parent, "mpi_error_range", "group"), 1);
    MPI_Comm_free(&child);
    MPI_Comm_split(parent, 0, 0, &child);
    expect("a split", has_defaults(child), 1);
    MPI_Comm_free(&child);
    MPI_Comm_group(parent, &group);
    MPI_Comm_create(parent, group, &child);
    expect("a communicator of a group", has_defaults(child), 1);
    MPI_Comm_free(&child);
    MPI_Group_free(&group);
}

static void a_duplicate_with_info_has_those_of_the_info_object_alone(MPI_Comm parent)
{
    MPI_Comm child = MPI_COMM_NULL, stale;
    MPI_Info info, used;
    int compared = -1, sum = 0, one = 1, size;
    MPI_Comm_size(parent, &size);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpix_error_range", "universe");
    MPI_Info_set(info, "mpi_assert_exact_length", "true");
    expect("MPI_Comm_dup_with_info", MPI_Comm_dup_with_info(parent, info, &child), MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_Comm_compare(parent, child, &compared);
    expect("the same members", compared, MPI_CONGRUENT);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, child);
    expect("a sum over it", sum, size);
    expect("the hint", has(child, "mpix_error_range", "universe"), 1);
    expect("the parent's are not inherited", has(child, "mpi_error_uniform", "create"), 1);
    expect("nor changed", has(parent, "mpi_error_range", "group"), 1);
    /* What get_info returns can be changed and given back. */
    MPI_Comm_get_info(child, &used);
    MPI_Info_set(used, "mpi_error_range", "local");
    MPI_Comm_set_info(child, used);
    MPI_Info_free(&used);
    expect("the newer spelling", has(child, "mpi_error_range", "local"), 1);
    MPI_Comm_free(&child);
    MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &child);
    expect("without an info object", has_defaults(child), 1);
    stale = child;
    MPI_Comm_free(&child);
    expect("of a freed communicator", class_of(MPI_Comm_get_info(stale, &used)), MPI_ERR_COMM);
    expect("nothing is returned", used == MPI_INFO_NULL, 1);
    expect("nor set", class_of(MPI_Comm_set_info(stale, MPI_INFO_NULL)), MPI_ERR_COMM);
    expect("nor duplicated", class_of(MPI_Comm_dup_with_info(stale, MPI_INFO_NULL, &child)), MPI_ERR_COMM);
    MPI_Info_create(&info);
    used = info;
    MPI_Info_free(&info);
    expect("with a freed info object", class_of(MPI_Comm_dup_with_info(parent, used, &child)), MPI_ERR_INFO);
    expect("set", class_of(MPI_Comm_set_info(parent, used)), MPI_ERR_INFO);
}

int main(void)
{
    MPI_Comm comm;
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    expect("of MPI_COMM_WORLD", has_defaults(MPI_COMM_WORLD) && has_defaults(MPI_COMM_SELF), 1);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    hints_are_set_and_returned_and_unknown_ones_are_ignored(comm);
    a_duplicate_has_the_hints_and_other_children_have_not(comm);
    a_duplicate_with_info_has_those_of_the_info_object_alone(comm);
    MPI_Comm_free(&comm);
    set(MPI_COMM_WORLD, "mpi_error_uniform", "local");
    expect("MPI_COMM_WORLD has its own", has(MPI_COMM_WORLD, "mpi_error_uniform", "local") && has_defaults(MPI_COMM_SELF), 1);
    set(MPI_COMM_WORLD, "mpi_error_uniform", "create");
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && all == 0)
        printf("No errors\n");
    return all != 0;
}
