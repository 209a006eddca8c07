/* PEs spawn others, which meet them: `family PES [MODE] [PROGRAM]`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Which control group it is in, its last two names. */
static void group(char *text, size_t size)
{
    text[0] = 0;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(text, (int)size, file))
        if (!strncmp(text, "0::", 3))
            break;
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = 0;
}

/* Parents and children. */
static void meet(MPI_Comm inter, int child, int root, const char *mode, const char *said)
{
    int rank, size, sum;
    char own[4096], roots[4096] = "";
    MPI_Comm all;
    MPI_Intercomm_merge(inter, child, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    int one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    group(own, sizeof own);
    if (rank == root)
        strcpy(roots, own);
    MPI_Bcast(&root, 1, MPI_INT, 0, all);
    MPI_Bcast(roots, sizeof roots, MPI_CHAR, root, all);
    if (!strcmp(mode, "abort") && child)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(mode, "wait")) {
        printf("%s waits\n", child ? "child" : "parent");
        fflush(stdout);
        MPI_Barrier(all);
        sleep(1000);
    }
    char folder[4096];
    printf("%s rank %d of %d sum %d %s in %s%s\n", child ? "child" : "parent", rank, size, sum,
           said, child && strcmp(own, roots) ? own : "its group",
           !strcmp(mode, "wdir") && child ? getcwd(folder, sizeof folder) : "");
    fflush(stdout);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&inter);
}

int main(int argc, char **argv)
{
    int size, root;
    MPI_Comm parent, inter;
    MPI_Init(&argc, &argv);
    int pes = argc > 1 ? atoi(argv[1]) : 1;
    const char *mode = argc > 2 ? argv[2] : "";
    char *program = argc > 3 ? argv[3] : argv[0];
    MPI_Comm_get_parent(&parent);
    int child = parent != MPI_COMM_NULL;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The last one spawns: it may be on another host than PE 0. */
    root = size - 1;
    if (!child) {
        char number[16];
        snprintf(number, sizeof number, "%d", pes);
        char *arguments[] = {number, (char *)mode, "an argument: a = b", NULL};
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int rc;
        if (!strcmp(mode, "two")) {
            char *programs[] = {program, program}, **both[] = {arguments, arguments};
            int counts[] = {pes, pes};
            MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
            rc = MPI_Comm_spawn_multiple(2, programs, both, counts, infos, root, MPI_COMM_WORLD, &inter,
                                         MPI_ERRCODES_IGNORE);
        } else {
            MPI_Info info;
            MPI_Info_create(&info);
            if (!strcmp(mode, "wdir"))
                MPI_Info_set(info, "wdir", "/");
            rc = MPI_Comm_spawn(program, arguments, pes, info, root, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
            MPI_Info_free(&info);
        }
        if (rc != MPI_SUCCESS) {
            printf("refused\n");
            /* (The others of Open MPI wait for this one.) */
            if (!strcmp(mode, "refused"))
                MPI_Abort(MPI_COMM_WORLD, 3);
            MPI_Finalize();
            return 3;
        }
    } else {
        inter = parent;
    }
    meet(inter, child, root, mode, child ? argv[argc - 1] : "");
    for (int more = 0; !strcmp(mode, "again") && !child && more < 4; more++) {
        char *arguments[] = {"1", "again", "an argument: a = b", NULL};
        MPI_Comm_spawn(program, arguments, pes, MPI_INFO_NULL, root, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        meet(inter, 0, root, mode, "");
    }
    if ((!strcmp(mode, "deep") || !strcmp(mode, "orphan")) && child) {
        /* (The parent ends.) */
        if (!strcmp(mode, "orphan"))
            sleep(1);
        char *arguments[] = {"1", "leaf", "an argument: a = b", NULL};
        MPI_Comm_spawn(argv[0], arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        meet(inter, 0, 0, "leaf", "");
    }
    MPI_Finalize();
    if (!strcmp(mode, "later") && child) {
        sleep(1);
        printf("child has the last word\n");
    }
    return 0;
}
