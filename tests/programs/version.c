/* Which library a program has found: the first line of its version, without MPI_Init. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n")] = 0;
    printf("%s\n", text);
    return 0;
}
