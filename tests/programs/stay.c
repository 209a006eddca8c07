/* Stays in MPI until it is ended. Rank 0 writes the number of its parent into a file. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *file = fopen(argv[1], "w");
        if (!file)
            MPI_Abort(MPI_COMM_WORLD, 9);
        fprintf(file, "%d\n", getppid());
        fclose(file);
    }
    for (;;)
        pause();
}
