/* The lower half of the ranks accepts the upper half at a port whose name it publishes, twice; merged, all add up their
   ranks. With an argument it ends by MPI_Abort of that code. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int upper = rank >= size / 2;
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, upper, rank, &half);
    char port[MPI_MAX_PORT_NAME] = "";
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("psched-join", MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size / 2)
        MPI_Lookup_name("psched-join", MPI_INFO_NULL, port);
    for (int round = 0; round < 2; round++) {
        MPI_Comm other, all;
        if (upper)
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &other);
        else
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &other);
        MPI_Intercomm_merge(other, upper, &all);
        int joined, sum;
        MPI_Comm_size(all, &joined);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        if (rank == 0)
            printf("round %d: %d joined, sum %d\n", round, joined, sum);
        MPI_Comm_free(&all);
        MPI_Comm_disconnect(&other);
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Unpublish_name("psched-join", MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    if (argc > 1 && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    if (argc > 1)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
