/* Its arguments say how it ends on PE 1: it dies in a function of its own, is caught, or ends well. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile int *nowhere;

static void caught(int signal) { _exit(signal); }

__attribute__((noinline)) int falls_over(int by) { return *nowhere + by; }

int main(int count, char **words) {
    const char *rank = getenv("ALPS_APP_PE");
    printf("PE %s\n", rank);
    fflush(stdout);
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "catch")) signal(SIGSEGV, caught);
        if (!strcmp(words[i], "abort") && !strcmp(rank, "1")) abort();
        if (!strcmp(words[i], "fall") && !strcmp(rank, "1")) return falls_over(7);
        if (!strcmp(words[i], "spin")) for (long n = 0; n < 300000000; n++) nowhere = (int *)n;
    }
    if (count > 1 && !strcmp(words[count - 1], "sleep")) sleep(1000);
    return 0;
}
