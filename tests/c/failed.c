/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 7
/* Which ranks failed, and which failures are acknowledged: rows of the sections CN and AK of docs/dev/semantics.md. */
#include "deaths.h"
#include <mpi-ext.h>

/* Row CN1: the classes have two names, a string, and are their own codes. */
static void classes_of_failures_have_two_names_and_a_string(void)
{
    const int classes[] = {MPI_ERR_PROC_FAILED, MPI_ERR_PROC_FAILED_PENDING, MPI_ERR_REVOKED};
    const int twins[] = {MPIX_ERR_PROC_FAILED, MPIX_ERR_PROC_FAILED_PENDING, MPIX_ERR_REVOKED};
    for (int at = 0; at < 3; at++) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int length = 0;
        expect("its MPIX name", twins[at], classes[at]);
        expect("its class", class_of(classes[at]), classes[at]);
        expect("its string", MPI_Error_string(classes[at], text, &length), MPI_SUCCESS);
        expect("is not empty", length > 8 && strlen(text) == (size_t)length, 1);
    }
}

/* Row CN3 */
static void the_attribute_says_that_failures_are_tolerated(void)
{
    int *tolerated = NULL, flag = 0;
    expect("the keys", MPIX_FT, MPI_FT);
    expect("Comm_get_attr", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &tolerated, &flag), MPI_SUCCESS);
    expect("MPI_FT is set", flag, 1);
    expect("and true", flag ? *tolerated : 0, 1);
}

/* Row CN4 */
static void macros_say_which_extensions_there_are(void)
{
#if defined(OMPI_HAVE_MPI_EXT) && defined(OMPI_HAVE_MPIX_COMM_GET_FAILED) && defined(OMPI_HAVE_MPIX_COMM_ACK_FAILED) && \
    defined(MEND_HAVE_MPI_EXT) && defined(MEND_HAVE_MPIX_COMM_GET_FAILED) && defined(MEND_HAVE_MPIX_COMM_ACK_FAILED)
    int macros = 1;
#else
    int macros = 0;
#endif
    expect("the macros", macros, 1);
}

/* Row AK2 */
static void nobody_known_is_the_empty_group_itself(MPI_Comm comm)
{
    MPI_Group group = MPI_GROUP_NULL;
    int acknowledged = -1, size;
    MPI_Comm_size(comm, &size);
    MPI_Comm_get_failed(comm, &group);
    expect("get_failed gives MPI_GROUP_EMPTY", group == MPI_GROUP_EMPTY, 1);
    group = MPI_GROUP_NULL;
    MPI_Comm_failure_get_acked(comm, &group);
    expect("get_acked gives MPI_GROUP_EMPTY", group == MPI_GROUP_EMPTY, 1);
    expect("ack_failed", MPI_Comm_ack_failed(comm, size, &acknowledged), MPI_SUCCESS);
    expect("acknowledges nobody", acknowledged, 0);
}

/* Stores the ranks in WORLD of the group's members, and returns their number. */
static int members(MPI_Group group, int *found)
{
    MPI_Group all;
    int size, places[64];
    MPI_Group_size(group, &size);
    for (int at = 0; at < size; at++)
        places[at] = at;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_translate_ranks(group, size, places, all, found);
    MPI_Group_free(&all);
    MPI_Group_free(&group);
    return size;
}

/* Rows AK1, AK11: exactly those that died, the earlier ones first. */
static void those_who_died_are_listed_in_order(void)
{
    MPI_Group group;
    int found[64];
    MPI_Comm_get_failed(MPI_COMM_WORLD, &group);
    expect("how many failed", members(group, found), ranks - alive);
    for (int at = 0; at < ranks - alive; at++)
        expect("who failed", found[at], ranks - 1 - at);
}

/* Row AK4: no member of `comm` is dead. */
static void members_alone_are_listed(MPI_Comm comm)
{
    expect("failures elsewhere", known(comm), 0);
    nobody_known_is_the_empty_group_itself(comm);
}

static int acknowledge(MPI_Comm comm, int count)
{
    int acknowledged = -1;
    expect("Comm_ack_failed", MPI_Comm_ack_failed(comm, count, &acknowledged), MPI_SUCCESS);
    return acknowledged;
}

static int acknowledged(MPI_Comm comm)
{
    MPI_Group group;
    int found[64];
    expect("Comm_failure_get_acked", MPI_Comm_failure_get_acked(comm, &group), MPI_SUCCESS);
    return members(group, found);
}

/* Row AK5, with two dead. */
static void acknowledging_goes_from_the_front_and_never_back(MPI_Comm comm)
{
    int none = -1;
    expect("none yet", acknowledge(comm, 0), 0);
    expect("a negative number", class_of(MPI_Comm_ack_failed(comm, -1, &none)), MPI_ERR_ARG);
    expect("more than there are ranks", class_of(MPI_Comm_ack_failed(comm, ranks + 1, &none)), MPI_ERR_ARG);
    expect("after errors", acknowledge(comm, 0), 0);
    expect("the first", acknowledge(comm, 1), 1);
    expect("its group", acknowledged(comm), 1);
    expect("none more", acknowledge(comm, 0), 1);
    expect("all", acknowledge(comm, ranks), 2);
    expect("never fewer", acknowledge(comm, 1), 2);
}

/* Row AK6: the acknowledged failures stay the same when another rank dies. */
static void what_is_acknowledged_grows_by_acknowledging_alone(MPI_Comm comm, int before)
{
    expect("before", acknowledged(comm), before);
    expect("Comm_failure_ack", MPI_Comm_failure_ack(comm), MPI_SUCCESS);
    expect("after", acknowledged(comm), ranks - alive);
}

/* Row AK3: a failure is known when an error names it, without an earlier call of get_failed. */
static void whoever_an_error_names_is_known(MPI_Comm comm)
{
    int word = 0, victim = alive - 1;
    meet();
    if (rank == victim)
        die();
    expect("a receive from the dying",
           class_of(MPI_Recv(&word, 1, MPI_INT, victim, 1, comm, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    expect("is known by then", has_failed(comm, victim), 1);
    alive--;
}

/* Row AK8: an acknowledgement does not change operations that name a dead rank, nor collectives. */
static void acknowledging_helps_neither_named_receives_nor_collectives(MPI_Comm comm)
{
    int word = 0;
    MPI_Comm_failure_ack(comm);
    expect("a receive from the dead", class_of(MPI_Recv(&word, 1, MPI_INT, ranks - 1, 1, comm, MPI_STATUS_IGNORE)),
           MPI_ERR_PROC_FAILED);
    expect("a synchronous send to the dead", class_of(MPI_Ssend(&word, 1, MPI_INT, ranks - 1, 1, comm)),
           MPI_ERR_PROC_FAILED);
    expect("a barrier with the dead", class_of(MPI_Barrier(comm)), MPI_ERR_PROC_FAILED);
    meet();
}

/* Calls the four functions under each of their names. */
static void every_name_leads_to_the_same(MPI_Comm comm)
{
    int (*const get[])(MPI_Comm, MPI_Group *) = {MPI_Comm_get_failed, MPIX_Comm_get_failed, PMPI_Comm_get_failed,
                                                 PMPIX_Comm_get_failed, MPI_Comm_failure_get_acked,
                                                 MPIX_Comm_failure_get_acked, PMPI_Comm_failure_get_acked,
                                                 PMPIX_Comm_failure_get_acked};
    int (*const ack[])(MPI_Comm) = {MPI_Comm_failure_ack, MPIX_Comm_failure_ack, PMPI_Comm_failure_ack,
                                    PMPIX_Comm_failure_ack};
    int (*const count[])(MPI_Comm, int, int *) = {MPI_Comm_ack_failed, MPIX_Comm_ack_failed, PMPI_Comm_ack_failed,
                                                  PMPIX_Comm_ack_failed};
    for (int at = 0; at < 4; at++) {
        int number = -1;
        expect("failure_ack", ack[at](comm), MPI_SUCCESS);
        expect("ack_failed", count[at](comm, 0, &number), MPI_SUCCESS);
        expect("its number", number, ranks - alive);
    }
    for (int at = 0; at < 8; at++) {
        MPI_Group group;
        int found[64];
        expect("a group of the failed", get[at](comm, &group), MPI_SUCCESS);
        expect("its size", members(group, found), ranks - alive);
    }
}

/* Row CC7: dead ranks stay members for every local call. */
static void the_dead_keep_their_ranks(MPI_Comm one, MPI_Comm another)
{
    MPI_Group all, dead, living;
    int result = -1, size = -1, last = ranks - 1, at = -1;
    MPI_Comm_compare(one, another, &result);
    expect("Comm_compare", result, MPI_CONGRUENT);
    MPI_Comm_size(one, &size);
    expect("Comm_size", size, ranks);
    MPI_Comm_group(one, &all);
    MPI_Comm_get_failed(one, &dead);
    MPI_Group_difference(all, dead, &living);
    MPI_Group_size(living, &size);
    expect("the size of the difference", size, alive);
    MPI_Group_translate_ranks(all, 1, &last, living, &at);
    expect("the dead among the living", at, MPI_UNDEFINED);
    MPI_Group_translate_ranks(all, 1, &last, dead, &at);
    expect("the dead among the dead", at, 0);
    MPI_Group_free(&all);
    MPI_Group_free(&dead);
    MPI_Group_free(&living);
}

int main(void)
{
    MPI_Comm first, second, low;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &low);
    classes_of_failures_have_two_names_and_a_string();
    the_attribute_says_that_failures_are_tolerated();
    macros_say_which_extensions_there_are();
    nobody_known_is_the_empty_group_itself(MPI_COMM_WORLD);
    meet();
    lose_one();
    those_who_died_are_listed_in_order();
    if (rank == 0)
        members_alone_are_listed(low);
    members_alone_are_listed(MPI_COMM_SELF);
    what_is_acknowledged_grows_by_acknowledging_alone(second, 0);
    meet();
    whoever_an_error_names_is_known(first);
    those_who_died_are_listed_in_order();
    acknowledging_goes_from_the_front_and_never_back(first);
    what_is_acknowledged_grows_by_acknowledging_alone(second, 1);
    meet();
    acknowledging_helps_neither_named_receives_nor_collectives(second);
    every_name_leads_to_the_same(second);
    the_dead_keep_their_ranks(first, second);
    meet();
    MPI_Comm_free(&second);
    MPI_Comm_free(&first);
    MPI_Comm_free(&low);
    return end();
}
