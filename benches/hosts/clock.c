/* What an emulated machine of benches/hosts/drift runs beside an apinit, and how both sides read clocks.
 *
 *   clock answer PORT PPM   drifts, and answers questions for its clocks; a question is "WORD [PPM]", which changes the
 *                           drift, an answer "WORD RECEIVED TOLD TSC MONO APART": the time stamp counter when the question
 *                           was there and when it was answered, and what both clocks showed at one moment
 *   clock turns             a PE: sleeps a millisecond at a time, and prints "PE FIRST LAST", for each turn in which it ran,
 *                           in ns of CLOCK_MONOTONIC
 *
 * As a shared library it is the bench's own reader of clocks (`moment`, `ticks`).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/* Turns of a PE are farther apart, in ns: the other program has 50 ms. Less is what the kernel gave to others. */
#define APART 25000000

int64_t ticks(void)
{
    unsigned core;
    return (int64_t)__rdtscp(&core);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time stamp counter and CLOCK_MONOTONIC at one moment, and by how many ns they may be apart. */
void moment(int64_t out[3])
{
    out[2] = INT64_MAX / 4;
    for (int i = 0; i < 16; i++) {
        int64_t before = now(), tsc = ticks(), after = now();
        if (after - before < out[2] * 2) {
            out[0] = tsc;
            out[1] = before + (after - before) / 2;
            out[2] = (after - before + 1) / 2;
        }
    }
}

/* The kernel takes 500 ppm of frequency at most; a tick of one more microsecond of 10,000 is 100 ppm. */
static int drift(double ppm)
{
    int more = (int)(ppm / 100);
    struct timex t = {.modes = ADJ_FREQUENCY | ADJ_TICK,
                      .freq = (long)((ppm - more * 100.0) * 65536),
                      .tick = 10000 + more};
    return adjtimex(&t) < 0;
}

static int answer(int port, double ppm)
{
    if (drift(ppm)) {
        perror("clock: adjtimex");
        return 1;
    }
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (s < 0 || bind(s, (void *)&at, sizeof at)) {
        perror("clock: bind");
        return 1;
    }
    for (;;) {
        char text[64], said[200];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(s, text, sizeof text - 1, 0, (void *)&from, &size);
        int64_t received = ticks(), at_once[3];
        if (n < 0)
            continue;
        text[n] = 0;
        char *word = strtok(text, " "), *changed = strtok(NULL, " ");
        if (changed)
            drift(atof(changed));
        moment(at_once);
        n = snprintf(said, sizeof said, "%s %jd %jd %jd %jd %jd", word ? word : "-", (intmax_t)received,
                     (intmax_t)ticks(), (intmax_t)at_once[0], (intmax_t)at_once[1], (intmax_t)at_once[2]);
        sendto(s, said, (size_t)n, 0, (void *)&from, size);
    }
}

static void turns(void)
{
    const char *pe = getenv("ALPS_APP_PE");
    int64_t first = now(), last = first;
    for (;;) {
        usleep(1000);
        int64_t at = now();
        if (at - last > APART) {
            printf("%s %jd %jd\n", pe ? pe : "0", (intmax_t)first, (intmax_t)last);
            fflush(stdout);
            first = at;
        }
        last = at;
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "answer"))
        return answer(atoi(argv[2]), atof(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "turns"))
        turns();
    fputs("usage: clock answer PORT PPM | clock turns\n", stderr);
    return 2;
}
