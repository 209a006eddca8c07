/* Two ranks that exchange a message as fast as they can, for so many seconds of the clock; rank 0 says
 * how many it has had back.
 *
 *   exchange SECONDS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long count = 0, more = 1;
    double end = MPI_Wtime() + seconds;
    while (more) {
        if (rank == 0) {
            more = MPI_Wtime() < end;
            MPI_Send(&more, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&more, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            count++;
        } else {
            MPI_Recv(&more, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&more, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        printf("%ld\n", count);
    MPI_Finalize();
    return 0;
}
