/* Makes the disk under a database fail, for a process in which it is preloaded.
 *
 * While the file named by FAILING_DISK exists, a sync of a file whose name ends with that file's content fails
 * with EIO, and what was written since the last sync that succeeded is lost, as after a failed writeback: the
 * kernel takes those pages for clean and may read them again from the disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES = 64, PARTS = 4096 };
struct part { off_t at; size_t length; };
static struct { struct part parts[PARTS]; int count; } unsynced[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether a descriptor is of the database or its log; its name. */
static int is_database(int fd, char *name)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    name[length] = 0;
    return fd < FILES && strstr(name, "/psched.db") != NULL;
}

static int fails(const char *name)
{
    const char *path = getenv("FAILING_DISK");
    char end[32];
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, end, sizeof end);
    close(fd);
    size_t whole = strlen(name);
    return length > 0 && whole >= (size_t)length && memcmp(name + whole - length, end, length) == 0;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char name[PATH_MAX];
    if (!is_database(fd, name))
        return real(fd, bytes, length);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t written = real(fd, bytes, length);
    pthread_mutex_lock(&lock);
    if (written > 0 && unsynced[fd].count < PARTS)
        unsynced[fd].parts[unsynced[fd].count++] = (struct part){at, (size_t)written};
    pthread_mutex_unlock(&lock);
    return written;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    static const char zeros[65536];
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    char name[PATH_MAX];
    if (!is_database(fd, name))
        return real(fd);
    int fail = fails(name);
    pthread_mutex_lock(&lock);
    for (int i = 0; fail && i < unsynced[fd].count; i++) {
        struct part part = unsynced[fd].parts[i];
        while (part.length > 0) {
            size_t now = part.length < sizeof zeros ? part.length : sizeof zeros;
            if (pwrite(fd, zeros, now, part.at) < 0)
                break;
            part.at += now;
            part.length -= now;
        }
    }
    unsynced[fd].count = 0;
    pthread_mutex_unlock(&lock);
    if (!fail)
        return real(fd);
    errno = EIO;
    return -1;
}

int fsync(int fd)
{
    return fdatasync(fd);
}
