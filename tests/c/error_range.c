/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 4 8
/* The info keys about failures, with deaths: rows IK1 to IK3, RV10 and CC6 of docs/dev/semantics.md. The highest rank dies in each round. */
#include "deaths.h"

#include <mpi-ext.h>

/* Three ways to give a communicator a hint. */
enum { BY_SET_INFO, BY_DUP_WITH_INFO, BY_DUP, WAYS };
enum { TAG = 4 };

static MPI_Info info_of(const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    return info;
}

/* A communicator of ranks 0 to `last` with one hint, given in one of three ways. The others get MPI_COMM_NULL. */
static MPI_Comm with_hint(int how, int last, const char *key, const char *value)
{
    MPI_Comm part, made;
    MPI_Info info = info_of(key, value);
    MPI_Comm_split(MPI_COMM_WORLD, rank <= last ? 0 : MPI_UNDEFINED, rank, &part);
    made = part;
    if (part != MPI_COMM_NULL && how == BY_SET_INFO) {
        MPI_Comm_set_info(part, info);
    } else if (part != MPI_COMM_NULL) {
        MPI_Comm first;
        MPI_Comm_dup_with_info(part, info, &first);
        made = first;
        if (how == BY_DUP) {
            MPI_Comm_dup(first, &made);
            MPI_Comm_free(&first);
        }
        MPI_Comm_free(&part);
    }
    MPI_Info_free(&info);
    return made;
}

static int is_revoked(MPI_Comm comm)
{
    int flag = -1;
    expect("is_revoked", MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS);
    return flag;
}

/* Row RV10: where the failure revokes, the call that it ends raises RV, and finds the communicator revoked. Ranks wait for the dead, and
 * for the living. */
static void the_call_that_fails_finds_it_revoked(MPI_Comm comm)
{
    MPI_Request request;
    int token, got;
    MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, TAG, comm, &request);
    got = class_of(MPI_Recv(&token, 1, MPI_INT, rank % 2 ? (rank + 1) % alive : alive, TAG, comm, MPI_STATUS_IGNORE));
    expect("revoked when the call returns", is_revoked(comm), 1);
    expect("the class", got, MPI_ERR_REVOKED);
    expect("an older request", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
}

/* Row IK1: at all members, whatever they call. */
static void it_is_revoked(MPI_Comm comm)
{
    MPI_Comm made;
    expect("a collective", class_of(MPI_Barrier(comm)), MPI_ERR_REVOKED);
    expect("a creation", class_of(MPI_Comm_dup(comm, &made)), MPI_ERR_REVOKED);
    expect("revoked", is_revoked(comm), 1);
    expect("the dead is listed", known(comm), 1);
}

static void it_is_not_revoked(MPI_Comm comm)
{
    int token;
    expect("the class", class_of(MPI_Recv(&token, 1, MPI_INT, alive, TAG, comm, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    expect("not revoked", is_revoked(comm), 0);
}

/* Rows IK1 and IK2: of communicators without the dead. */
static void only_the_range_counts(MPI_Comm group, MPI_Comm universe)
{
    until_known(MPI_COMM_WORLD, 1);
    expect("revoked by any failure", is_revoked(universe), 1);
    expect("a collective then", class_of(MPI_Barrier(universe)), MPI_ERR_REVOKED);
    expect("not revoked, as the dead is no member", is_revoked(group), 0);
    expect("a collective then", MPI_Barrier(group), MPI_SUCCESS);
}

/* A hint that is set when a member is known to have failed revokes at once, at all members. */
static void a_hint_set_later_counts_for_failures_before(MPI_Comm comm)
{
    MPI_Info info = info_of("mpix_error_range", "group");
    expect("not revoked yet", is_revoked(comm), 0);
    meet();
    expect("set_info", MPI_Comm_set_info(comm, info), MPI_SUCCESS);
    MPI_Info_free(&info);
    expect("revoked", is_revoked(comm), 1);
    meet();
}

/* Rows SH1 and SH5: it works on what was revoked so, and what it makes has the defaults: the next failure does not revoke it. */
static void a_shrunk_one_has_no_hints(MPI_Comm comm)
{
    MPI_Comm made;
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL] = "";
    int length = sizeof value, flag = 0;
    expect("shrink", MPIX_Comm_shrink(comm, &made), MPI_SUCCESS);
    MPI_Comm_get_info(made, &info);
    MPI_Info_get_string(info, "mpi_error_range", &length, value, &flag);
    MPI_Info_free(&info);
    expect("its range is the default", flag && strcmp(value, "local") == 0, 1);
    expect("not revoked", is_revoked(made), 0);
    MPI_Comm_free(&made);
}

/* Rows IK3 and CC6: `local` leaves the agreement out, and changes nothing else. */
static void creations_without_agreement_work_and_fail(MPI_Comm comm, int has_dead)
{
    MPI_Comm made = MPI_COMM_WORLD;
    int got = class_of(MPI_Comm_dup(comm, &made));
    expect("dup with local outcome", got, has_dead ? MPI_ERR_PROC_FAILED : MPI_SUCCESS);
    expect("its handle", made == MPI_COMM_NULL, has_dead);
    if (!has_dead) {
        expect("its Barrier", MPI_Barrier(made), MPI_SUCCESS);
        MPI_Comm_free(&made);
    }
}

/* Row AG14: with `mpix_agree_uniform` the result is the same, failures too. */
static void uniform_agreements_agree(MPI_Comm comm, int wanted)
{
    int flag = ~(1 << rank);
    expect("agree", class_of(MPIX_Comm_agree(comm, &flag)), wanted);
    expect("its flag", flag, ~((1 << alive) - 1));
}

int main(void)
{
    const char *ranges[2] = {"mpi_error_range", "mpix_error_range"}, *uniforms[2] = {"mpi_error_uniform", "mpix_error_uniform"};
    MPI_Comm plain, later, in_range[WAYS], group[WAYS], universe[WAYS], local[WAYS], agreeing[WAYS];
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &plain);
    MPI_Comm_dup(MPI_COMM_WORLD, &later);
    for (int way = 0; way < WAYS; way++) {
        in_range[way] = with_hint(way, ranks - 1, ranges[way % 2], "group");
        group[way] = with_hint(way, ranks - 2, ranges[way % 2], "group");
        universe[way] = with_hint(way, ranks - 2, ranges[way % 2], "universe");
        local[way] = with_hint(way, ranks - 1, uniforms[way % 2], "local");
        agreeing[way] = with_hint(way, ranks - 1, "mpix_agree_uniform", "true");
        creations_without_agreement_work_and_fail(local[way], 0);
        uniform_agreements_agree(agreeing[way], MPI_SUCCESS);
    }
    meet();
    if (rank == --alive)
        die();
    the_call_that_fails_finds_it_revoked(in_range[rank % WAYS]);
    it_is_not_revoked(plain);
    for (int way = 0; way < WAYS; way++) {
        it_is_revoked(in_range[way]);
        only_the_range_counts(group[way], universe[way]);
        uniform_agreements_agree(agreeing[way], MPI_ERR_PROC_FAILED);
        MPIX_Comm_failure_ack(agreeing[way]);
        uniform_agreements_agree(agreeing[way], MPI_SUCCESS);
        creations_without_agreement_work_and_fail(local[way], 1);
        a_shrunk_one_has_no_hints(in_range[way]);
    }
    a_hint_set_later_counts_for_failures_before(later);
    return end();
}
