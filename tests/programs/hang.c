/* `hang FILE GO`: hangs in the kernel with its memory locked, so that whoever reads its environment
 * hangs too. FILE is on a file system that is frozen before the file GO appears; its own number is
 * in GO.pid as soon as it waits for that. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *page;
static volatile pid_t writer;

/* Waits for the thaw, with the page locked against changes of the memory's layout. */
static void *writes(void *unused)
{
    writer = syscall(SYS_gettid);
    *page = 'x';
    return unused;
}

/* After the thaw the page may be gone before it is written to. */
static void stays(int signal)
{
    (void)signal;
    for (;;)
        pause();
}

static int waits(void)
{
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)writer);
    FILE *stat = fopen(name, "r");
    if (!stat)
        return 0;
    size_t count = fread(line, 1, sizeof line - 1, stat);
    fclose(stat);
    line[count] = 0;
    char *end = strrchr(line, ')');
    return end && end[2] == 'D';
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    int file = open(arguments[1], O_RDWR);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return 1;
    volatile char first = *page;
    (void)first;
    char name[4096];
    snprintf(name, sizeof name, "%s.new", arguments[2]);
    FILE *own = fopen(name, "w");
    if (!own)
        return 1;
    fprintf(own, "%d", (int)getpid());
    fclose(own);
    char there[4096];
    snprintf(there, sizeof there, "%s.pid", arguments[2]);
    if (rename(name, there))
        return 1;
    while (access(arguments[2], F_OK))
        usleep(5000);
    signal(SIGSEGV, stays);
    pthread_t thread;
    if (pthread_create(&thread, NULL, writes, NULL))
        return 1;
    while (!writer || !waits())
        usleep(5000);
    /* This locks all of the memory, and then waits for the page. */
    munmap(page, 4096);
    for (;;)
        pause();
}
