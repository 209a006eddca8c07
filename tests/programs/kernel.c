/* `kernel`: keeps the kernel busy, and itself never: each of its threads reads a gigabyte by one system call,
 * again and again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { THREADS = 8, PARTS = 512, PART = 2 << 20 };

static int file;

static void *reads(void *unused)
{
    static char into[PART];
    struct iovec parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = (struct iovec){ into, PART };
    while (preadv(file, parts, PARTS, 0) > 0)
        ;
    return unused;
}

int main(void)
{
    pthread_t thread;
    file = memfd_create("zeroes", 0);
    if (file < 0 || ftruncate(file, (off_t)PARTS * PART))
        return 1;
    for (int i = 1; i < THREADS; i++)
        if (pthread_create(&thread, NULL, reads, NULL))
            return 1;
    reads(NULL);
    return 0;
}
