/* A token around a ring, a sum over all ranks, and, without an argument, memory shared by the ranks of a host. */
#include <mpi.h>
#include <stdio.h>

/* Every rank of this host writes its cell, and counts those that are written. */
static int cells_of_host(void)
{
    int shared = 0;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int host_rank, host_size, *cell;
    MPI_Comm_rank(host, &host_rank);
    MPI_Comm_size(host, &host_size);
    MPI_Win window;
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, host, &cell, &window);
    MPI_Win_fence(0, window);
    *cell = 1;
    MPI_Win_fence(0, window);
    for (int r = 0; r < host_size; r++) {
        MPI_Aint length;
        int unit, *theirs;
        MPI_Win_shared_query(window, r, &length, &unit, &theirs);
        shared += *theirs;
    }
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    return shared;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    int *appnum, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &flag);

    for (int lap = 0; lap < 3; lap++) {
        int token = lap;
        if (size > 1) {
            if (rank == 0) {
                MPI_Send(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                if (token != lap + size - 1)
                    MPI_Abort(MPI_COMM_WORLD, 9);
            } else {
                MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                token++;
                MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
            }
        }
    }

    int own = rank + 1, sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

    int shared = 0;
    if (argc < 2)
        shared = cells_of_host();

    printf("rank %d of %d appnum %d sum %d shared %d\n", rank, size, flag ? *appnum : -1, sum, shared);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
