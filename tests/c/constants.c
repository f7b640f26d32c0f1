/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1
/* The header agrees with the standard ABI where programs rely on it: values, layouts, use in constant expressions. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

_Static_assert(sizeof(MPI_Status) == 32 && _Alignof(MPI_Status) == 4, "a status is eight ints");
_Static_assert(offsetof(MPI_Status, MPI_ERROR) == 8, "the error is the third");
_Static_assert(sizeof(MPI_Count) == 8 && sizeof(MPI_Offset) == 8 && sizeof(MPI_Aint) == sizeof(void *), "64 bits");
_Static_assert(sizeof(MPI_Comm) == sizeof(void *) && sizeof(MPI_Fint) == 4, "handles are pointers");
_Static_assert(MPI_VERSION == 5 && MPI_SUBVERSION == 0 && MPI_ABI_VERSION == 1, "versions");
_Static_assert(MPI_ANY_SOURCE == -1 && MPI_ANY_TAG == -2 && MPI_PROC_NULL == -3 && MPI_ROOT == -4, "ranks");
_Static_assert(MPI_UNDEFINED == -32766 && MPI_KEYVAL_INVALID == 0 && MPI_TAG_UB == 501, "numbers");
_Static_assert(MPI_ERR_TRUNCATE == 15 && MPI_ERR_IN_STATUS == 19 && MPI_ERR_LASTCODE == 16383, "classes");
_Static_assert(MPI_ERR_PROC_FAILED == 101 && MPIX_ERR_PROC_FAILED == 101 && MPI_ERR_REVOKED == 103, "faults");
_Static_assert(MPI_THREAD_SINGLE < MPI_THREAD_FUNNELED && MPI_THREAD_SERIALIZED < MPI_THREAD_MULTIPLE, "levels");
_Static_assert(MPI_MAX_ERROR_STRING == 512 && MPI_MAX_PROCESSOR_NAME == 256, "lengths");

/* In switches, as array sizes, as initial values. */
static char room[MPI_MAX_OBJECT_NAME];
static MPI_Comm standing = MPI_COMM_WORLD;

static const char *named(int class)
{
    switch (class) {
    case MPI_SUCCESS: return "good";
    case MPI_ERR_PROC_FAILED: return "failed";
    case MPI_ERR_REVOKED: return "revoked";
    default: return "other";
    }
}

int main(void)
{
    int errors = 0, major = 0, minor = -1, size = -1;
    MPI_Abi_get_version(&major, &minor);
    errors += major != 1 || minor != 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_size(standing, &size);
    errors += size != 1 || sizeof room != 128 || named(MPI_ERR_REVOKED)[0] != 'r';
    errors += (intptr_t)MPI_COMM_WORLD != 0x101 || (intptr_t)MPI_INT != 0x209 || (intptr_t)MPI_SUM != 0x21;
    errors += (intptr_t)MPI_BOTTOM != 0 || (intptr_t)MPI_IN_PLACE != 1 || MPI_STATUS_IGNORE != NULL;
    errors += (intptr_t)MPI_REQUEST_NULL != 0x180 || (intptr_t)MPI_ERRORS_RETURN != 0x143;
    if (errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
