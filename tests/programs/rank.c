/* `rank`: has its rank where a debugger finds it by name, and waits in a function of its own. The PE of the
 * rank that is its argument ends at once. */
#include <stdlib.h>
#include <unistd.h>

volatile int own_rank = -1;

static void waits_here(void)
{
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *rank = getenv("ALPS_APP_PE");
    own_rank = rank ? atoi(rank) : -1;
    if (argc > 1 && own_rank == atoi(argv[1]))
        return 0;
    waits_here();
    return 1;
}
