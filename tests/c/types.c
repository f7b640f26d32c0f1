/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
/* Every predefined type of C: its size, a message of it, and every operation on it compared with C's own arithmetic, bit for bit;
 * long double and, with gcc, REAL*2 and REAL*16 too. Two ranks, so that each element is combined once. */
#include <complex.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { N = 1000 };
static int rank, errors;

static void wrong(const char *type, const char *what, int at)
{
    if (errors++ < 10)
        fprintf(stderr, "rank %d: %s: %s, element %d\n", rank, type, what, at);
}

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A message of the type, whose extent is `bytes`: the first and last byte of each element arrive. */
static void exchange(const char *name, MPI_Datatype type, size_t bytes, size_t data_bytes)
{
    unsigned char *sent = malloc(N * bytes), *got = malloc(N * bytes);
    MPI_Status status;
    int count = -1;
    for (size_t i = 0; i < N * bytes; i++)
        sent[i] = (unsigned char)(i * 7 + 1);
    memset(got, 0, N * bytes);
    MPI_Sendrecv(sent, N, type, !rank, 5, got, N, type, !rank, 5, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, type, &count);
    if (count != N)
        wrong(name, "wrong count", count);
    for (size_t i = 0; i < N; i++)
        if (got[i * bytes] != sent[i * bytes])
            wrong(name, "the first byte did not arrive", (int)i);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if ((size_t)count != N * data_bytes)
        wrong(name, "wrong number of bytes", count);
    free(sent);
    free(got);
}

/* One operation on N random elements: both ranks draw both sides, so each knows the answer. */
#define CHECK(NAME, TYPE, MPI_TYPE, OP, RANDOM, EXPRESSION, SAME)                                                        \
    do {                                                                                                                \
        static TYPE sides[2][N], result[N];                                                                             \
        uint64_t state = 42;                                                                                            \
        memset(sides, 0, sizeof sides);                                                                                 \
        for (int i = 0; i < N; i++) {                                                                                   \
            sides[0][i] = (TYPE)(RANDOM);                                                                               \
            sides[1][i] = (TYPE)(RANDOM);                                                                               \
        }                                                                                                               \
        MPI_Allreduce(sides[rank], result, N, MPI_TYPE, OP, MPI_COMM_WORLD);                                            \
        for (int i = 0; i < N; i++) {                                                                                   \
            TYPE a = sides[0][i], b = sides[1][i], wanted = (TYPE)(EXPRESSION), got = result[i];                        \
            if (!(SAME))                                                                                                \
                wrong(NAME, #OP, i);                                                                                    \
        }                                                                                                               \
    } while (0)

#define EQUAL (got == wanted)

#define REAL_NUMBERS(NAME, TYPE, MPI_TYPE, RANDOM)                                                                       \
    CHECK(NAME, TYPE, MPI_TYPE, MPI_MIN, RANDOM, a < b ? a : b, EQUAL);                                                  \
    CHECK(NAME, TYPE, MPI_TYPE, MPI_MAX, RANDOM, a > b ? a : b, EQUAL);                                                  \
    CHECK(NAME, TYPE, MPI_TYPE, MPI_SUM, RANDOM, a + b, EQUAL);                                                          \
    CHECK(NAME, TYPE, MPI_TYPE, MPI_PROD, RANDOM, a *b, EQUAL)

#define INTEGER(TYPE, MPI_TYPE)                                                                                          \
    do {                                                                                                                \
        exchange(#MPI_TYPE, MPI_TYPE, sizeof(TYPE), sizeof(TYPE));                                                        \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_MIN, draw(&state), a < b ? a : b, EQUAL);                                  \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_MAX, draw(&state), a > b ? a : b, EQUAL);                                  \
        /* Nothing overflows: the standard does not define that, and Open MPI's chars saturate.*/                         \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_SUM, (TYPE)draw(&state) / 2, a + b, EQUAL);                                \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_PROD, draw(&state) % 12, a *b, EQUAL);                                     \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_BAND, draw(&state), a &b, EQUAL);                                          \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_BOR, draw(&state), a | b, EQUAL);                                          \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_BXOR, draw(&state), a ^ b, EQUAL);                                         \
    } while (0)

#define LOGICAL(TYPE, MPI_TYPE, RANDOM)                                                                                  \
    do {                                                                                                                \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_LAND, RANDOM, a && b, EQUAL);                                              \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_LOR, RANDOM, a || b, EQUAL);                                               \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_LXOR, RANDOM, !a != !b, EQUAL);                                            \
    } while (0)

/* Numbers of all sizes, with a full significand. */
static long double random_real(uint64_t *state, int reach)
{
    long double significand = (long double)(int64_t)draw(state);
    return ldexpl(significand, (int)(draw(state) % (uint64_t)(2 * reach)) - reach - 63);
}

#define FLOATING(TYPE, MPI_TYPE, REACH)                                                                                  \
    do {                                                                                                                \
        exchange(#MPI_TYPE, MPI_TYPE, sizeof(TYPE), sizeof(TYPE));                                                        \
        REAL_NUMBERS(#MPI_TYPE, TYPE, MPI_TYPE, random_real(&state, REACH));                                            \
    } while (0)

#define COMPLEX(TYPE, REAL, MPI_TYPE)                                                                                    \
    do {                                                                                                                \
        exchange(#MPI_TYPE, MPI_TYPE, sizeof(TYPE), sizeof(TYPE));                                                        \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_SUM,                                                                       \
              (REAL)random_real(&state, 9) + (REAL)random_real(&state, 9) * (TYPE)I, a + b, EQUAL);                     \
        /* Small whole numbers: no rounding, whatever the compiler fuses. */                                            \
        CHECK(#MPI_TYPE, TYPE, MPI_TYPE, MPI_PROD,                                                                      \
              (REAL)(draw(&state) % 100) + (REAL)(draw(&state) % 100) * (TYPE)I, a *b, EQUAL);                          \
    } while (0)

#define PAIR(FIRST, SECOND, MPI_TYPE, DATA_BYTES)                                                                        \
    do {                                                                                                                \
        struct pair {                                                                                                   \
            FIRST value;                                                                                                \
            SECOND index;                                                                                               \
        };                                                                                                              \
        static struct pair sides[2][N], least[N], most[N];                                                              \
        uint64_t state = 9;                                                                                             \
        exchange(#MPI_TYPE, MPI_TYPE, sizeof(struct pair), DATA_BYTES);                                                   \
        for (int i = 0; i < N; i++)                                                                                     \
            for (int side = 0; side < 2; side++) {                                                                      \
                sides[side][i].value = (FIRST)(draw(&state) % 5);                                                       \
                sides[side][i].index = (SECOND)(draw(&state) % 1000);                                                   \
            }                                                                                                           \
        MPI_Allreduce(sides[rank], least, N, MPI_TYPE, MPI_MINLOC, MPI_COMM_WORLD);                                     \
        MPI_Allreduce(sides[rank], most, N, MPI_TYPE, MPI_MAXLOC, MPI_COMM_WORLD);                                      \
        for (int i = 0; i < N; i++) {                                                                                   \
            struct pair a = sides[0][i], b = sides[1][i];                                                               \
            struct pair low = a.index < b.index ? a : b;                                                                \
            struct pair min = a.value < b.value ? a : b.value < a.value ? b : low;                                      \
            struct pair max = a.value > b.value ? a : b.value > a.value ? b : low;                                      \
            if (least[i].value != min.value || least[i].index != min.index)                                             \
                wrong(#MPI_TYPE, "MPI_MINLOC", i);                                                                      \
            if (most[i].value != max.value || most[i].index != max.index)                                               \
                wrong(#MPI_TYPE, "MPI_MAXLOC", i);                                                                      \
        }                                                                                                               \
    } while (0)

static void integers(void)
{
    INTEGER(signed char, MPI_SIGNED_CHAR);
    INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER(short, MPI_SHORT);
    INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER(int, MPI_INT);
    INTEGER(unsigned, MPI_UNSIGNED);
    INTEGER(long, MPI_LONG);
    INTEGER(unsigned long, MPI_UNSIGNED_LONG);
    INTEGER(long long, MPI_LONG_LONG);
    INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    INTEGER(int8_t, MPI_INT8_T);
    INTEGER(uint8_t, MPI_UINT8_T);
    INTEGER(int16_t, MPI_INT16_T);
    INTEGER(uint16_t, MPI_UINT16_T);
    INTEGER(int32_t, MPI_INT32_T);
    INTEGER(uint32_t, MPI_UINT32_T);
    INTEGER(int64_t, MPI_INT64_T);
    INTEGER(uint64_t, MPI_UINT64_T);
    INTEGER(MPI_Aint, MPI_AINT);
    INTEGER(MPI_Offset, MPI_OFFSET);
    INTEGER(MPI_Count, MPI_COUNT);
    LOGICAL(int, MPI_INT, draw(&state) % 3);
    LOGICAL(unsigned char, MPI_UNSIGNED_CHAR, draw(&state) % 3);
    LOGICAL(long, MPI_LONG, draw(&state) % 3 << 40);
    LOGICAL(bool, MPI_C_BOOL, draw(&state) % 2);
    CHECK("MPI_BYTE", unsigned char, MPI_BYTE, MPI_BXOR, draw(&state), a ^ b, EQUAL);
}

static void others(void)
{
    exchange("MPI_BYTE", MPI_BYTE, 1, 1);
    exchange("MPI_CHAR", MPI_CHAR, sizeof(char), sizeof(char));
    exchange("MPI_WCHAR", MPI_WCHAR, sizeof(wchar_t), sizeof(wchar_t));
    exchange("MPI_C_BOOL", MPI_C_BOOL, sizeof(bool), sizeof(bool));
}

static void reals(void)
{
    FLOATING(float, MPI_FLOAT, 20);
    FLOATING(double, MPI_DOUBLE, 400);
    FLOATING(long double, MPI_LONG_DOUBLE, 7000);
    COMPLEX(float _Complex, float, MPI_C_FLOAT_COMPLEX);
    COMPLEX(double _Complex, double, MPI_C_DOUBLE_COMPLEX);
    COMPLEX(long double _Complex, long double, MPI_C_LONG_DOUBLE_COMPLEX);
#if defined MPI_ABI_VERSION && defined __SIZEOF_FLOAT128__
    /* Two long doubles side by side fill the 113 bits of a significand. */
    REAL_NUMBERS("MPI_REAL16", __float128, MPI_REAL16,
                 (__float128)random_real(&state, 7000) * (1 + (__float128)random_real(&state, 5) * 0x1p-70L));
#endif
#if defined MPI_ABI_VERSION && defined __FLT16_MAX__
    /* From subnormals up to infinity: sums and products, which the compiler rounds in the same way as required here. */
    FLOATING(_Float16, MPI_REAL2, 16);
    exchange("MPI_COMPLEX4", MPI_COMPLEX4, sizeof(_Float16 _Complex), sizeof(_Float16 _Complex));
    CHECK("MPI_COMPLEX4", _Float16 _Complex, MPI_COMPLEX4, MPI_SUM,
          (_Float16)random_real(&state, 9) + (_Float16)random_real(&state, 9) * (_Float16 _Complex)I, a + b, EQUAL);
    CHECK("MPI_COMPLEX4", _Float16 _Complex, MPI_COMPLEX4, MPI_PROD,
          (_Float16)(draw(&state) % 20) + (_Float16)(draw(&state) % 20) * (_Float16 _Complex)I, a *b, EQUAL);
#endif
}

static void pairs(void)
{
    PAIR(float, int, MPI_FLOAT_INT, 8);
    PAIR(double, int, MPI_DOUBLE_INT, 12);
    PAIR(long, int, MPI_LONG_INT, 12);
    PAIR(int, int, MPI_2INT, 8);
    PAIR(short, int, MPI_SHORT_INT, 6);
    PAIR(long double, int, MPI_LONG_DOUBLE_INT, 20);
}

int main(int argc, char **argv)
{
    int all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    integers();
    others();
    reals();
    pairs();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
