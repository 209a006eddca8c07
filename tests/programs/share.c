/* Shared memory of each kind: `share put NAME` makes what `share look NAME` finds, which prints
 * `shm yes sysv yes queue yes`, or no. `share remove NAME` removes it. */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

static const char *word(int there)
{
    return there ? "yes" : "no";
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    char name[200];
    snprintf(name, sizeof name, "/%s", arguments[2]);
    key_t key = 0;
    for (const char *letter = name; *letter; letter++)
        key = key * 31 + *letter;
    if (!strcmp(arguments[1], "put")) {
        int shm = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (shm < 0 || ftruncate(shm, 4096) || shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666) < 0)
            return 1;
        /* Some kernels have no queues. */
        mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0666, NULL);
        return 0;
    }
    if (!strcmp(arguments[1], "remove")) {
        shm_unlink(name);
        mq_unlink(name);
        int segment = shmget(key, 0, 0);
        return segment < 0 ? 0 : shmctl(segment, IPC_RMID, NULL);
    }
    int shm = shm_open(name, O_RDONLY, 0), segment = shmget(key, 0, 0);
    mqd_t queue = mq_open(name, O_RDONLY);
    printf("shm %s sysv %s queue %s\n", word(shm >= 0), word(segment >= 0),
           word(queue != (mqd_t)-1));
    return 0;
}
