/* Prints everything that a process inherits, a line each: `subject: detail value`. Subjects are the
 * words that aprun(1) has under "What a PE inherits". Names of limits and descriptors are details,
 * so that two outputs are compared line by line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/fsuid.h>
#include <unistd.h>

extern char **environ;

/* A line of /proc/self/status. */
static void status_line(const char *subject, const char *field)
{
    char line[8192];
    FILE *file = fopen("/proc/self/status", "r");
    size_t length = strlen(field);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, field, length) && line[length] == ':')
            printf("%s: %s", subject, line);
    if (file)
        fclose(file);
}

/* The first line of a file. */
static void first_line(const char *subject, const char *path)
{
    char line[8192] = "none\n";
    FILE *file = fopen(path, "r");
    if (file && !fgets(line, sizeof line, file))
        strcpy(line, "empty\n");
    if (file)
        fclose(file);
    printf("%s: %s", subject, line);
}

static void link_of(const char *subject, const char *path)
{
    char target[4096];
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    printf("%s: %s\n", subject, target);
}

static void ids(void)
{
    uid_t u[3];
    gid_t g[3], groups[256];
    getresuid(&u[0], &u[1], &u[2]);
    getresgid(&g[0], &g[1], &g[2]);
    printf("ids: uid %u %u %u %d gid %u %u %u %d\n", u[0], u[1], u[2], setfsuid(-1), g[0], g[1],
           g[2], setfsgid(-1));
    int count = getgroups(256, groups);
    printf("groups:");
    for (int i = 0; i < count; i++)
        printf(" %u", groups[i]);
    printf("\n");
}

static void capabilities(void)
{
    static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
    for (int i = 0; i < 5; i++)
        status_line("capabilities", sets[i]);
    printf("securebits: %d\n", prctl(PR_GET_SECUREBITS));
    status_line("no_new_privs", "NoNewPrivs");
}

static void signals(void)
{
    static const char *const sets[] = { "SigBlk", "SigIgn", "SigCgt" };
    for (int i = 0; i < 3; i++)
        status_line("signals", sets[i]);
}

static void scheduling(void)
{
    struct sched_param param;
    sched_getparam(0, &param);
    printf("scheduling: policy %d priority %d\n", sched_getscheduler(0), param.sched_priority);
    errno = 0;
    printf("nice: %d\n", getpriority(PRIO_PROCESS, 0));
    printf("I/O priority: %ld\n", syscall(SYS_ioprio_get, 1, 0));
    printf("timer slack: %d\n", prctl(PR_GET_TIMERSLACK));
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("processors:");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            printf(" %d", cpu);
    printf("\n");
    int mode = -1;
    syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0);
    printf("memory policy: %d\n", mode);
}

static void limits(void)
{
    static const char *const names[] = { "CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC",
        "NOFILE", "MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME" };
    for (int i = 0; i < 16; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        printf("soft limits: %s %ld\n", names[i], (long)limit.rlim_cur);
        printf("hard limits: %s %ld\n", names[i], (long)limit.rlim_max);
    }
}

static void descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[300], target[4096];
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(folder))
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        /* Which pipe or socket says nothing. */
        target[strcspn(target, "[")] = 0;
        printf("descriptors: %d %s\n", fd, target);
    }
    if (folder)
        closedir(folder);
}

static void session(void)
{
    int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    printf("session: leader %s\n", getsid(0) == getpid() ? "yes" : "no");
    printf("session: group %s\n", getpgrp() == getpid() ? "own" : "another's");
    printf("session: terminal %s\n", tty >= 0 ? "yes" : "no");
    if (tty >= 0)
        close(tty);
}

static void marks(void)
{
    int death = -1;
    prctl(PR_GET_PDEATHSIG, &death);
    printf("death signal: %d\n", death);
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE));
    printf("personality: %x\n", personality(0xffffffff));
    printf("huge pages: off %d\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    first_line("core dump filter", "/proc/self/coredump_filter");
    first_line("oom_score_adj", "/proc/self/oom_score_adj");
    link_of("IPC namespace", "/proc/self/ns/ipc");
    link_of("mount namespace", "/proc/self/ns/mnt");
    link_of("user namespace", "/proc/self/ns/user");
    link_of("pid namespace", "/proc/self/ns/pid");
    link_of("network namespace", "/proc/self/ns/net");
    link_of("UTS namespace", "/proc/self/ns/uts");
    link_of("cgroup namespace", "/proc/self/ns/cgroup");
    /* KEYCTL_GET_KEYRING_ID of the session's keyring, without making one. */
    printf("session keyring: %ld\n", syscall(SYS_keyctl, 0, -3, 0));
}

int main(void)
{
    ids();
    capabilities();
    signals();
    scheduling();
    limits();
    descriptors();
    session();
    marks();
    mode_t mask = umask(0);
    printf("umask: %03o\n", mask);
    for (char **entry = environ; *entry; entry++)
        printf("environment: %s\n", *entry);
    char *directory = getcwd(NULL, 0);
    printf("directory: %s\n", directory ? directory : "none");
    free(directory);
    return 0;
}
