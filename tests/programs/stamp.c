/* Stamps the time at which it runs an instruction, again and again, and does worse meanwhile.
 *
 *   stamp FILE MODE [PATH]
 *
 * FILE is a table of uninterrupted runs that all processes of a gang share: when each began and when it
 * was last seen, nanoseconds of CLOCK_MONOTONIC (which is read without a system call). A gap of more
 * than GAP between two stamps begins a new run: the process did not have the processor, or was frozen.
 * It is far shorter than two changes of gangs: where the kernel has held up a change for nearly a slice, what
 * is left of that slice may be half a millisecond, and the others were frozen for no longer.
 *
 *   spin      nothing but that
 *   fork      children that stamp for a moment, one after the other
 *   vfork     the same by vfork
 *   core      children that dump core, which is removed; a round only where it was written
 *   stop      stops itself (SIGSTOP); a child lets it go on
 *   trace     a child that is traced, and stopped at each system call
 *   threads   threads that come and go
 *   uring     reads by the kernel's own threads (io_uring)
 *   write     writes to PATH and syncs: it sits in the kernel while that file system is frozen
 *   idle      sleeps a millisecond at a time
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GAP 50000
#define RUNS (1 << 20)

struct run {
    uint64_t first, last;
};

static struct {
    uint64_t count;
    /* Times round of the loops below: what is to happen does happen. */
    uint64_t rounds;
    struct run runs[RUNS];
} *table;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct run *begin(uint64_t at)
{
    uint64_t n = __atomic_fetch_add(&table->count, 1, __ATOMIC_RELAXED);
    if (n >= RUNS)
        _exit(99);
    table->runs[n].last = at;
    table->runs[n].first = at;
    return &table->runs[n];
}

/* Stamps for so long; 0: for ever. */
static void stamp(uint64_t time)
{
    uint64_t at = now(), end = at + time;
    struct run *run = begin(at);
    while (!time || at < end) {
        at = now();
        if (at - run->last > GAP)
            run = begin(at);
        else
            *(volatile uint64_t *)&run->last = at;
    }
}

static void round_done(void)
{
    __atomic_fetch_add(&table->rounds, 1, __ATOMIC_RELAXED);
}

static void *thread(void *unused)
{
    stamp(200000);
    return unused;
}

static void *spin(void *unused)
{
    stamp(0);
    return unused;
}

static void traced(void)
{
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (;;) {
            stamp(20000);
            getppid();
        }
    }
    int status;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
    for (;;) {
        ptrace(PTRACE_SYSCALL, child, 0, 0);
        if (waitpid(child, &status, 0) < 0 || WIFEXITED(status) || WIFSIGNALED(status))
            _exit(98);
        stamp(5000);
        round_done();
    }
}

static void uring(void)
{
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int ring = (int)syscall(SYS_io_uring_setup, 8, &p);
    if (ring < 0)
        _exit(errno == ENOSYS || errno == EPERM ? 97 : 96);
    size_t size = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    size_t cq_size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    if (cq_size > size)
        size = cq_size;
    char *sq = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    char *cq = p.features & IORING_FEAT_SINGLE_MMAP
        ? sq
        : mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED)
        _exit(96);
    uint32_t *tail = (uint32_t *)(sq + p.sq_off.tail), mask = *(uint32_t *)(sq + p.sq_off.ring_mask);
    uint32_t *array = (uint32_t *)(sq + p.sq_off.array);
    uint32_t *head = (uint32_t *)(cq + p.cq_off.head), *done = (uint32_t *)(cq + p.cq_off.tail);
    static char buffer[1 << 16];
    int zero = open("/dev/zero", O_RDONLY);
    for (;;) {
        uint32_t at = *tail & mask;
        memset(&sqes[at], 0, sizeof sqes[at]);
        sqes[at].opcode = IORING_OP_READ;
        sqes[at].flags = IOSQE_ASYNC;
        sqes[at].fd = zero;
        sqes[at].addr = (uint64_t)(uintptr_t)buffer;
        sqes[at].len = sizeof buffer;
        array[at] = at;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0 && errno != EINTR)
            _exit(96);
        while (*head != __atomic_load_n(done, __ATOMIC_ACQUIRE))
            __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        stamp(20000);
        round_done();
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int file = open(argv[1], O_RDWR | O_CREAT, 0666);
    if (file < 0 || ftruncate(file, sizeof *table))
        return 3;
    table = mmap(0, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (table == MAP_FAILED)
        return 4;
    const char *mode = argv[2];
    pthread_t spins;
    if (strcmp(mode, "spin") && strcmp(mode, "idle") && strcmp(mode, "stop"))
        pthread_create(&spins, 0, spin, 0);
    if (!strcmp(mode, "spin"))
        stamp(0);
    if (!strcmp(mode, "trace"))
        traced();
    if (!strcmp(mode, "uring"))
        uring();
    pid_t own = getpid();
    if (!strcmp(mode, "stop") && !fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            stamp(2000000);
            kill(own, SIGCONT);
        }
    }
    int out = !strcmp(mode, "write") && argc > 3 ? open(argv[3], O_WRONLY | O_CREAT, 0666) : -1;
    struct rlimit cores = {RLIM_INFINITY, RLIM_INFINITY};
    for (;;) {
        int status;
        pid_t child = 0;
        pthread_t other;
        if (!strcmp(mode, "fork")) {
            if (!(child = fork())) {
                stamp(50000);
                _exit(0);
            }
        } else if (!strcmp(mode, "vfork")) {
            if (!(child = vfork())) {
                stamp(50000);
                _exit(0);
            }
        } else if (!strcmp(mode, "core")) {
            if (!(child = fork())) {
                setrlimit(RLIMIT_CORE, &cores);
                prctl(PR_SET_DUMPABLE, 1);
                stamp(50000);
                abort();
            }
        } else if (!strcmp(mode, "threads")) {
            if (!pthread_create(&other, 0, thread, 0))
                pthread_join(other, 0);
        } else if (!strcmp(mode, "stop")) {
            raise(SIGSTOP);
        } else if (!strcmp(mode, "write")) {
            char block[4096] = {0};
            if (pwrite(out, block, sizeof block, 0) != sizeof block || fdatasync(out))
                _exit(95);
        } else {
            usleep(1000);
        }
        if (child > 0)
            waitpid(child, &status, 0);
        if (child < 0)
            usleep(1000);
        stamp(20000);
        if (!strcmp(mode, "core")) {
            char name[32];
            snprintf(name, sizeof name, "core.%d", (int)child);
            unlink(name);
            unlink("core");
            if (child < 0 || !WCOREDUMP(status))
                continue;
        }
        round_done();
    }
}
