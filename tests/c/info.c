/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 3
// mpiexec: --initial-errhandler mpi_errors_return
/* Info objects (MPI-5.0 chapter 10), before MPI_Init, in several threads, and after MPI_Finalize; the start of the program in
 * MPI_INFO_ENV (MPI-5.0 §11.2.1). */
#include "expect.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };

static int count(MPI_Info info)
{
    int keys = -1;
    expect("MPI_Info_get_nkeys", MPI_Info_get_nkeys(info, &keys), MPI_SUCCESS);
    return keys;
}

/* The value of a key; NULL: it is not there. */
static const char *value_of(MPI_Info info, const char *key)
{
    static _Thread_local char value[MPI_MAX_INFO_VAL];
    int length = sizeof value, flag = -1;
    strcpy(value, "unread");
    expect("MPI_Info_get_string", MPI_Info_get_string(info, key, &length, value, &flag), MPI_SUCCESS);
    expect("its length", length, flag ? (int)strlen(value) + 1 : (int)sizeof value);
    expect("without the key the buffer stays", flag || strcmp(value, "unread") == 0, 1);
    return flag ? value : NULL;
}

static int has(MPI_Info info, const char *key, const char *value)
{
    const char *found = value_of(info, key);
    return found != NULL && strcmp(found, value) == 0;
}

static void keys_and_values(void)
{
    MPI_Info info = MPI_INFO_NULL, twin = MPI_INFO_NULL;
    char key[MPI_MAX_INFO_KEY] = "";
    expect("MPI_Info_create", MPI_Info_create(&info), MPI_SUCCESS);
    expect("an object", info != MPI_INFO_NULL, 1);
    expect("keys of a new one", count(info), 0);
    expect("a key", MPI_Info_set(info, "soft", "2:8"), MPI_SUCCESS);
    expect("another", MPI_Info_set(info, "wdir", " /tmp "), MPI_SUCCESS);
    expect("an empty value", MPI_Info_set(info, "host", ""), MPI_SUCCESS);
    expect("keys", count(info), 3);
    expect("a value", has(info, "soft", "2:8"), 1);
    expect("blanks stay", has(info, "wdir", " /tmp "), 1);
    expect("an empty value", has(info, "host", ""), 1);
    expect("upper case is another key", value_of(info, "SOFT") == NULL, 1);
    expect("MPI_Info_dup", MPI_Info_dup(info, &twin), MPI_SUCCESS);
    expect("a new value", MPI_Info_set(info, "soft", "4"), MPI_SUCCESS);
    expect("replaces the old one", has(info, "soft", "4") && count(info) == 3, 1);
    expect("a key goes", MPI_Info_delete(info, "wdir"), MPI_SUCCESS);
    const char *names[] = {"soft", "wdir", "host"};
    for (int n = 0; n < 3; n++) {
        expect("MPI_Info_get_nthkey", MPI_Info_get_nthkey(twin, n, key), MPI_SUCCESS);
        expect("the keys are in order", strcmp(key, names[n]), 0);
    }
    MPI_Info_get_nthkey(info, 1, key);
    expect("the others move up", strcmp(key, "host"), 0);
    expect("a duplicate keeps what it got", has(twin, "soft", "2:8") && has(twin, "wdir", " /tmp "), 1);
    expect("MPI_Info_free", MPI_Info_free(&info), MPI_SUCCESS);
    expect("makes null", info == MPI_INFO_NULL, 1);
    expect("a duplicate lives on", count(twin), 3);
    MPI_Info_free(&twin);
}

static void buffers_of_all_lengths(void)
{
    MPI_Info info;
    char value[16];
    int length, flag;
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    for (int room = 0; room < 8; room++) {
        memset(value, '#', sizeof value);
        length = room;
        MPI_Info_get_string(info, "key", &length, room ? value : NULL, &flag);
        int written = room < 6 ? room : 6;
        expect("found", flag, 1);
        expect("the length that is needed", length, 6);
        expect("a zero at the end", written == 0 || value[written - 1] == 0, 1);
        expect("the beginning", memcmp(value, "value", written > 0 ? written - 1 : 0), 0);
        expect("no byte behind", value[written], '#');
        /* The older calls do not count the zero. */
        memset(value, '#', sizeof value);
        MPI_Info_get(info, "key", room, value, &flag);
        written = room < 5 ? room : 5;
        expect("found by MPI_Info_get", flag, 1);
        expect("its beginning and zero", memcmp(value, "value", written) == 0 && value[written] == 0, 1);
        expect("no byte behind it", value[written + 1], '#');
    }
    length = -1;
    MPI_Info_get_valuelen(info, "key", &length, &flag);
    expect("MPI_Info_get_valuelen", flag == 1 && length == 5, 1);
    MPI_Info_get_valuelen(info, "other", &length, &flag);
    expect("of no key", flag == 0 && length == 5, 1);
    MPI_Info_get(info, "other", 15, value, &flag);
    expect("MPI_Info_get of no key", flag == 0 && strcmp(value, "value") == 0, 1);
    MPI_Info_free(&info);
}

static void wrong_arguments(void)
{
    MPI_Info info, stale, null = MPI_INFO_NULL, env = MPI_INFO_ENV;
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1], small[8];
    int number = 4, flag;
    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    MPI_Info_create(&info);
    key[MPI_MAX_INFO_KEY] = 0;
    expect("a long key", class_of(MPI_Info_set(info, key, "v")), MPI_ERR_INFO_KEY);
    expect("is not asked for", class_of(MPI_Info_get_valuelen(info, key, &number, &flag)), MPI_ERR_INFO_KEY);
    key[MPI_MAX_INFO_KEY - 1] = 0;
    value[MPI_MAX_INFO_VAL] = 0;
    expect("a long value", class_of(MPI_Info_set(info, key, value)), MPI_ERR_INFO_VALUE);
    expect("is not set", count(info), 0);
    value[MPI_MAX_INFO_VAL - 1] = 0;
    expect("the longest ones", MPI_Info_set(info, key, value), MPI_SUCCESS);
    expect("are read again", has(info, key, value), 1);
    expect("an empty key", class_of(MPI_Info_set(info, "", "v")), MPI_ERR_INFO_KEY);
    expect("deleting what is not there", class_of(MPI_Info_delete(info, "other")), MPI_ERR_INFO_NOKEY);
    expect("key -1", class_of(MPI_Info_get_nthkey(info, -1, key)), MPI_ERR_ARG);
    expect("key 1 of 1", class_of(MPI_Info_get_nthkey(info, 1, key)), MPI_ERR_ARG);
    number = -1;
    expect("a negative length", class_of(MPI_Info_get_string(info, "k", &number, small, &flag)), MPI_ERR_ARG);
    expect("and in the older call", class_of(MPI_Info_get(info, "k", -1, small, &flag)), MPI_ERR_ARG);
    expect("no key", class_of(MPI_Info_set(info, NULL, "v")), MPI_ERR_ARG);
    stale = info;
    MPI_Info_free(&info);
    expect("a freed one", class_of(MPI_Info_set(stale, "k", "v")), MPI_ERR_INFO);
    expect("is not freed again", class_of(MPI_Info_free(&stale)), MPI_ERR_INFO);
    MPI_Info_create(&info);
    expect("nor is the next one, by its handle", class_of(MPI_Info_free(&stale)), MPI_ERR_INFO);
    MPI_Info_free(&info);
    expect("MPI_INFO_NULL", class_of(MPI_Info_get_nkeys(MPI_INFO_NULL, &number)), MPI_ERR_INFO);
    expect("is not duplicated", class_of(MPI_Info_dup(MPI_INFO_NULL, &info)), MPI_ERR_INFO);
    expect("nor freed", class_of(MPI_Info_free(&null)), MPI_ERR_INFO);
    expect("MPI_INFO_ENV is not changed", class_of(MPI_Info_set(MPI_INFO_ENV, "k", "v")), MPI_ERR_INFO);
    expect("nor freed", class_of(MPI_Info_free(&env)) == MPI_ERR_INFO && env == MPI_INFO_ENV, 1);
}

static void how_the_program_was_started(int ranks, char **argv)
{
    char number[16], *own[] = {"ocean", "-n", "five", NULL};
    MPI_Info info;
    snprintf(number, sizeof number, "%d", ranks);
    expect("command", has(MPI_INFO_ENV, "command", argv[0]), 1);
    expect("argv, without arguments", value_of(MPI_INFO_ENV, "argv") == NULL, 1);
    expect("maxprocs", has(MPI_INFO_ENV, "maxprocs", number), 1);
    expect("host", value_of(MPI_INFO_ENV, "host") != NULL, 1);
    expect("arch", value_of(MPI_INFO_ENV, "arch") != NULL, 1);
    expect("wdir", value_of(MPI_INFO_ENV, "wdir")[0], '/');
    /* Row CN7 */
    expect("the handler", has(MPI_INFO_ENV, "mpi_initial_errhandler", "mpi_errors_return"), 1);
    expect("MPI_Info_create_env", MPI_Info_create_env(0, NULL, &info), MPI_SUCCESS);
    expect("has the same keys", count(info), count(MPI_INFO_ENV));
    expect("and can be changed", MPI_Info_set(info, "command", "x"), MPI_SUCCESS);
    expect("which MPI_INFO_ENV is not", has(MPI_INFO_ENV, "command", argv[0]), 1);
    MPI_Info_free(&info);
    MPI_Info_create_env(3, own, &info);
    expect("with other arguments", has(info, "command", "ocean") && has(info, "argv", "-n five"), 1);
    MPI_Info_free(&info);
    MPI_Info_dup(MPI_INFO_ENV, &info);
    expect("a copy of MPI_INFO_ENV", has(info, "maxprocs", number), 1);
    MPI_Info_free(&info);
}

static void *many(void *shared)
{
    for (int i = 0; i < 2000; i++) {
        MPI_Info info, twin;
        char word[16];
        snprintf(word, sizeof word, "%d", i);
        MPI_Info_dup(*(MPI_Info *)shared, &info);
        MPI_Info_set(info, "own", word);
        MPI_Info_dup(info, &twin);
        MPI_Info_free(&info);
        expect("keys of a thread's own", has(twin, "own", word) && has(twin, "shared", "yes"), 1);
        MPI_Info_free(&twin);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    MPI_Info shared;
    MPI_Info_create(&shared);
    MPI_Info_set(shared, "shared", "yes");
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, many, &shared);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    MPI_Info_free(&shared);
}

int main(int argc, char **argv)
{
    int ranks = 0, provided, all = 0;
    MPI_Info early, late;
    keys_and_values();
    wrong_arguments();
    MPI_Info_create(&early);
    MPI_Info_set(early, "before", "MPI_Init");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect("one from before MPI_Init", has(early, "before", "MPI_Init"), 1);
    expect("as an integer and back", MPI_Info_fromint(MPI_Info_toint(early)) == early, 1);
    keys_and_values();
    buffers_of_all_lengths();
    wrong_arguments();
    how_the_program_was_started(ranks, argv);
    threads();
    MPI_Info_create(&late);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    expect("one from before MPI_Finalize", count(late), 0);
    MPI_Info_free(&late);
    MPI_Info_free(&early);
    keys_and_values();
    if (rank == 0 && all == 0 && errors == 0)
        printf("No errors\n");
    return errors != 0;
}
