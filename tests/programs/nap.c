/* Sleeps for a second between MPI_Init and MPI_Finalize, and says how large its world is. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sleep(1);
    printf("%d\n", size);
    MPI_Finalize();
    return 0;
}
