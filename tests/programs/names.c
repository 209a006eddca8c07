/* Rank 0 publishes the name of a port, the last rank looks it up, and both compare; then it is taken back. With an
   argument it ends by MPI_Abort of that code. (Some libraries can't open a port: then the name is one of the program's
   own, and there is nothing to close. MPICH crashes now and then where a port is closed that was never opened.) */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With a letter of Latin-1, which is no UTF-8. */
#define NAME "psched-t\351st"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int opened = 0;
    if (rank == 0) {
        opened = MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS;
        if (!opened)
            strcpy(port, "made-up");
        MPI_Publish_name(NAME, MPI_INFO_NULL, port);
    }
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        int looked = MPI_Lookup_name(NAME, MPI_INFO_NULL, found);
        printf("%s\n", looked == MPI_SUCCESS && strcmp(port, found) == 0 ? "found" : "not found");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Unpublish_name(NAME, MPI_INFO_NULL, port);
        if (opened)
            MPI_Close_port(port);
        int looked = MPI_Lookup_name(NAME, MPI_INFO_NULL, found);
        printf("%s\n", looked == MPI_SUCCESS ? "still there" : "taken back");
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    if (argc > 1)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
