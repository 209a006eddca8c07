/* A session without MPI_Init, and in it a communicator of all ranks and one of those from rank 1 on: each rank prints the
 * sums of the ranks in both. (Open MPI has sessions from release 5 on. MPICH 4.0 and Intel MPI can't have a second session
 * after the first has ended.) */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int error, const char *what)
{
    if (error != MPI_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", what, error);
        exit(1);
    }
}

static int sum_of(MPI_Group group, const char *tag)
{
    MPI_Comm comm;
    int rank, sum;
    check(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), tag);
    MPI_Comm_rank(comm, &rank);
    check(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
    MPI_Comm_free(&comm);
    return sum;
}

int main(void)
{
    MPI_Session session;
    MPI_Group all, some;
    int rank, size, zero = 0;
    check(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session), "MPI_Session_init");
    check(MPI_Group_from_session_pset(session, "mpi://WORLD", &all), "mpi://WORLD");
    MPI_Group_rank(all, &rank);
    MPI_Group_size(all, &size);
    MPI_Group_excl(all, 1, &zero, &some);
    int of_all = sum_of(all, "all"), of_some = rank > 0 ? sum_of(some, "some") : -1;
    printf("rank %d of %d: %d %d\n", rank, size, of_all, of_some);
    fflush(stdout);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    MPI_Session_finalize(&session);
    return 0;
}
