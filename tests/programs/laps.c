/* Laps of a token around the ranks until a file is there, and then whether every rank has run all of
 * them and its memory is what it was: a program that is taken off in the midst of it and brought back.
 * With a number, as many ranks more are spawned. Without MPI: compiled with -DPLAIN, it is a rank alone. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifndef PLAIN
#include <mpi.h>
#endif

#define WORDS (1 << 20)

int main(int argc, char **argv)
{
    int rank = 0, size = 1;
    long lap = 0, done = 0;
#ifndef PLAIN
    MPI_Init(&argc, &argv);
    MPI_Comm all = MPI_COMM_WORLD, others;
    MPI_Comm_get_parent(&others);
    int spawned = others != MPI_COMM_NULL;
    if (argc > 2) {
        char *arguments[] = {argv[1], NULL};
        MPI_Comm_spawn(argv[0], arguments, atoi(argv[2]), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
                       MPI_ERRCODES_IGNORE);
    }
    if (others != MPI_COMM_NULL)
        MPI_Intercomm_merge(others, spawned, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
#endif
    if (argc < 2)
        return 2;
    /* What memory has must come back as it is. */
    unsigned *memory = malloc(WORDS * sizeof *memory);
    for (unsigned i = 0; i < WORDS; i++)
        memory[i] = i * 2654435761u + rank;

    while (!done) {
        long token = lap;
#ifndef PLAIN
        if (size > 1) {
            if (rank == 0) {
                MPI_Send(&token, 1, MPI_LONG, 1, 0, all);
                MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, all, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, all, MPI_STATUS_IGNORE);
                token++;
                MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, all);
            }
        }
#endif
        if (rank == 0 && token != lap + size - 1) {
            printf("lap %ld came back as %ld\n", lap, token);
            return 3;
        }
        lap++;
        if (rank == 0) {
            if (lap == 10 || lap % 500 == 0) {
                printf("lap %ld\n", lap);
                fflush(stdout);
            }
            done = access(argv[1], F_OK) == 0;
            usleep(200);
        }
#ifndef PLAIN
        MPI_Bcast(&done, 1, MPI_LONG, 0, all);
#endif
    }

    long wrong = 0, laps = lap;
    for (unsigned i = 0; i < WORDS; i++)
        wrong += memory[i] != i * 2654435761u + rank;
#ifndef PLAIN
    long own = wrong;
    MPI_Reduce(&own, &wrong, 1, MPI_LONG, MPI_SUM, 0, all);
    MPI_Reduce(&lap, &laps, 1, MPI_LONG, MPI_SUM, 0, all);
#endif
    if (rank == 0)
        printf("ended %s, %ld words wrong\n", laps == lap * size ? "together" : "apart", wrong);
    fflush(stdout);
#ifndef PLAIN
    if (others != MPI_COMM_NULL) {
        MPI_Comm_free(&all);
        MPI_Comm_disconnect(&others);
    }
    MPI_Finalize();
#endif
    return 0;
}
