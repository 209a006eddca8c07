/* A program that goes through wire-up, a run with all three streams, and an exit, and leaves a mark
 * in a folder at each: for tests that kill daemons meanwhile.
 *
 *     phases FOLDER LAPS STATUS
 *
 * Wire-up: as an MPI program (built with -DWITH_MPI) MPI_Init and barriers; else the same by hand,
 * as a client of PMI-1: LAPS times put, barrier, get. Then FOLDER/wired.RANK is there.
 * Run: lines "RANK O NUMBER" on stdout and "RANK E NUMBER" on stderr, until FOLDER/go is there; rank
 * 0 copies stdin to stdout, each line with "IN " before it, until its end. A signal URG leaves the mark
 * FOLDER/urged.RANK.
 * Exit: "RANK O end NUMBER" on stdout, "RANK E end NUMBER" on stderr, finalize, exit STATUS.
 * What should not be is 90 and a line on stderr. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

static int rank, size;
static const char *folder;

static void fail(const char *what, const char *detail)
{
    dprintf(2, "phases: rank %d: %s: %s (%s)\n", rank, what, detail, strerror(errno));
    _exit(90);
}

static void say(int fd, const char *format, ...)
{
    char line[256];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    /* Short enough to go as a whole. */
    if (write(fd, line, length) != length)
        fail("write", line);
}

static int exists(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void mark(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, rank);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        fail("open", path);
    close(fd);
}

#ifdef WITH_MPI

static void wire_up(int laps)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int lap = 0; lap < laps; lap++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void finalize(void)
{
    MPI_Finalize();
}

#else

static FILE *pmi;

/* Says a line and hears its answer, which begins in a known way. */
static const char *ask(const char *begins, const char *format, ...)
{
    static char answer[4096];
    char line[4096];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    for (int done = 0; done < length;) {
        ssize_t n = write(fileno(pmi), line + done, length - done);
        if (n < 0)
            fail("PMI write", line);
        done += n;
    }
    if (!fgets(answer, sizeof answer, pmi))
        fail("PMI read", line);
    if (strncmp(answer, begins, strlen(begins)) != 0)
        fail("PMI answer", answer);
    return answer;
}

static void wire_up(int laps)
{
    const char *fd = getenv("PMI_FD"), *own = getenv("PMI_RANK"), *all = getenv("PMI_SIZE");
    if (!fd || !own || !all)
        fail("environment", "PMI_FD, PMI_RANK or PMI_SIZE");
    rank = atoi(own);
    size = atoi(all);
    pmi = fdopen(atoi(fd), "r");
    if (!pmi)
        fail("PMI_FD", fd);
    ask("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        "cmd=init pmi_version=1 pmi_subversion=1\n");
    char space[256];
    const char *name = strstr(ask("cmd=my_kvsname", "cmd=get_my_kvsname\n"), "kvsname=");
    if (!name || sscanf(name, "kvsname=%255s", space) != 1)
        fail("PMI", "no kvsname");
    for (int lap = 0; lap < laps; lap++) {
        ask("cmd=put_result rc=0", "cmd=put kvsname=%s key=k%d.%d value=v%d.%d\n", space, rank, lap,
            rank, lap);
        ask("cmd=barrier_out", "cmd=barrier_in\n");
        int other = (rank + 1) % size;
        char value[64];
        snprintf(value, sizeof value, "value=v%d.%d", other, lap);
        const char *answer = ask("cmd=get_result rc=0", "cmd=get kvsname=%s key=k%d.%d\n", space,
                                 other, lap);
        if (!strstr(answer, value))
            fail("PMI get", answer);
    }
}

static void finalize(void)
{
    ask("cmd=finalize_ack", "cmd=finalize\n");
}

#endif

/* Copies whole lines from stdin, as far as they have come; whether more may come. */
static int copy_stdin(void)
{
    static char held[65536];
    static size_t length;
    struct pollfd in = { .fd = 0, .events = POLLIN };
    if (poll(&in, 1, 0) <= 0)
        return 1;
    ssize_t n = read(0, held + length, sizeof held - length);
    if (n < 0)
        fail("read", "stdin");
    if (n == 0 && length > 0)
        fail("stdin ends in a line", "");
    length += n;
    char *from = held, *end;
    while ((end = memchr(from, '\n', held + length - from))) {
        *end = 0;
        say(1, "IN %s\n", from);
        from = end + 1;
    }
    length = held + length - from;
    memmove(held, from, length);
    return n > 0;
}

static volatile sig_atomic_t urged;

static void on_urg(int signal)
{
    urged = signal;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 91;
    folder = argv[1];
    struct sigaction urg = { .sa_handler = on_urg, .sa_flags = SA_RESTART };
    if (sigaction(SIGURG, &urg, NULL) < 0)
        fail("sigaction", "URG");
    wire_up(atoi(argv[2]));
    mark("wired");
    int number = 0, more = rank == 0, gone = 0;
    while (more || !gone) {
        gone = exists("go");
        if (urged) {
            urged = 0;
            mark("urged");
        }
        if (!gone) {
            say(1, "%d O %d\n", rank, number);
            say(2, "%d E %d\n", rank, number);
            number++;
        }
        if (more)
            more = copy_stdin();
        usleep(300);
    }
    say(1, "%d O end %d\n", rank, number);
    say(2, "%d E end %d\n", rank, number);
    finalize();
    mark("left");
    return atoi(argv[3]);
}
