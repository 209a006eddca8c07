/* Becomes a process with odd settings, then executes what follows: `odd daemon PROGRAM ...` for what
 * root may have, `odd caller PROGRAM ...` for what a user may. What is refused here is left as it is:
 * the tests compare what has come of it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
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
#include <unistd.h>

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int done = fd >= 0 && write(fd, text, strlen(text)) > 0;
    if (fd >= 0)
        close(fd);
    return done;
}

static void limit(int which, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = { soft, hard };
    setrlimit(which, &limit);
}

/* What the kernel keeps of a signal: zeros but for "ignored". The bare call, because glibc's own
 * refuses the two signals that it keeps for itself. */
static void ignore(int number)
{
    unsigned long action[8] = { (unsigned long)SIG_IGN };
    syscall(SYS_rt_sigaction, number, action, NULL, 8);
}

static void root_only(void)
{
    /* Inheritable, ambient: all that there are. */
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    syscall(SYS_capget, &header, sets);
    for (int i = 0; i < 2; i++)
        sets[i].inheritable = sets[i].permitted;
    syscall(SYS_capset, &header, sets);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_NICE, 0, 0);
    /* SECBIT_NO_SETUID_FIXUP: capabilities outlive a change of ids. */
    prctl(PR_SET_SECUREBITS, 1 << 2);
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    int daemon = !strcmp(arguments[1], "daemon");
    if (!daemon || !put("/proc/self/oom_score_adj", "-500"))
        put("/proc/self/oom_score_adj", "300");
    put("/proc/self/coredump_filter", daemon ? "0x7" : "0xb");
    setpriority(PRIO_PROCESS, 0, daemon ? -5 : 4);
    /* In some control groups real time is refused; to a user it is. */
    struct sched_param fifo = { .sched_priority = 3 }, none = { 0 };
    if (!daemon || sched_setscheduler(0, SCHED_FIFO, &fifo))
        sched_setscheduler(0, SCHED_BATCH, &none);
    syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 1);
    prctl(PR_SET_TIMERSLACK, 7000000);
    /* Prefer node 0. */
    unsigned long node = 1;
    syscall(SYS_set_mempolicy, 1, &node, 8);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    personality(ADDR_NO_RANDOMIZE);
    syscall(SYS_keyctl, 1, "odd"); /* KEYCTL_JOIN_SESSION_KEYRING */
    umask(daemon ? 077 : 027);
    setenv(daemon ? "ODD_DAEMON" : "ODD_CALLER", "very", 1);
    for (int fd = 100; fd < 103; fd++)
        dup2(open("/etc/passwd", O_RDONLY), fd);
    dup2(100, 7);
    if (daemon) {
        limit(RLIMIT_STACK, 16 << 20, 64 << 20);
        limit(RLIMIT_CORE, 0, 4096);
        limit(RLIMIT_NOFILE, 777, 4096);
    } else {
        limit(RLIMIT_STACK, 32 << 20, 128 << 20);
        limit(RLIMIT_CORE, 8192, 8192);
        limit(RLIMIT_NOFILE, 555, 8000);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    /* A caller's own signals stay as they are but for one; a daemon is cut off from all. */
    unsigned long blocked = daemon ? ~0ul : 1ul << 39;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, 8);
    for (int number = 1; number <= 64; number++)
        if (daemon || number == 41)
            ignore(number);
    if (daemon)
        root_only();
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 127;
}
