/* pages MEGABYTES FILE: has so much memory and goes through all of it again and again, until there is that
 * file, and at least three times. Each page has two words of its own that change each time; one that is not
 * as it was left ends it with status 3. At the end it says how often. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };

static uint64_t word(size_t page, uint64_t round) {
    return (page * 0x9e3779b97f4a7c15u) ^ (round * 0xbf58476d1ce4e5b9u);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t pages = strtoul(argv[1], 0, 10) * (1024 * 1024 / PAGE);
    uint64_t *memory = aligned_alloc(PAGE, pages * PAGE), round;
    if (!memory) return 2;
    for (size_t page = 0; page < pages; page++)
        memory[page * WORDS] = memory[page * WORDS + WORDS - 1] = word(page, 0);
    for (round = 0; round < 3 || access(argv[2], F_OK); round++)
        for (size_t page = 0; page < pages; page++) {
            uint64_t *first = memory + page * WORDS, *last = first + WORDS - 1;
            if (*first != word(page, round) || *last != word(page, round)) {
                printf("page %zu is not as it was left in round %lu\n", page, (unsigned long)round);
                return 3;
            }
            *first = *last = word(page, round + 1);
        }
    printf("%lu rounds\n", (unsigned long)round);
    return 0;
}
