/* A message around a ring of ranks: how long it takes from a rank to the next.
 *
 *   ring BYTES LAPS
 *
 * After LAPS / 10 laps that do not count, rank 0 says the mean time from a rank to the next in nanoseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void laps(char *message, int bytes, long count, int rank, int size)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (long lap = 0; lap < count; lap++) {
        if (rank == 0)
            MPI_Send(message, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD);
        MPI_Recv(message, bytes, MPI_BYTE, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(message, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int bytes = argc > 2 ? atoi(argv[1]) : 0;
    long count = argc > 2 ? atol(argv[2]) : 0;
    char *message = bytes > 0 ? calloc(bytes, 1) : NULL;
    if (!message || count < 1 || size < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    laps(message, bytes, count / 10 + 1, rank, size);
    double began = MPI_Wtime();
    laps(message, bytes, count, rank, size);
    if (rank == 0) {
        printf("%.0f\n", (MPI_Wtime() - began) * 1e9 / (double)count / size);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
