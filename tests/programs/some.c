/* PEs 1 and 2 of four are in fences of their own, by PMIx as the library has it; then PE 0 asks what PE 3 has put since,
   which no fence has brought. Each prints what it has learned. (Its header is not needed: these are the structures.) */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char name[256]; uint32_t rank; } process;
typedef struct { uint16_t kind; union { int64_t number; void *text; uint64_t room[3]; } is; } value;
typedef struct { char key[512]; uint32_t flags; value is; } info;
enum { LOCAL_AND_REMOTE = 3, STRING = 3, BOOL = 1 };

static process self;
static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        exit(20);
    return found;
}

static void put(const char *key, const char *text)
{
    value is;
    memset(&is, 0, sizeof is);
    is.kind = STRING;
    is.is.text = (void *)text;
    int (*put)(uint8_t, const char *, value *) = function("PMIx_Put");
    int (*commit)(void) = function("PMIx_Commit");
    if (put(LOCAL_AND_REMOTE, key, &is) || commit())
        exit(21);
}

static const char *get(uint32_t rank, const char *key)
{
    process of = self;
    of.rank = rank;
    value *found = NULL;
    int (*get)(const process *, const char *, const info *, size_t, value **) = function("PMIx_Get");
    int status = get(&of, key, NULL, 0, &found);
    return status == 0 && found && found->kind == STRING ? found->is.text : "nothing";
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return 22;
    int (*init)(process *, info *, size_t) = function("PMIx_Init");
    int (*fence)(const process *, size_t, const info *, size_t) = function("PMIx_Fence");
    int (*finalize)(const info *, size_t) = function("PMIx_Finalize");
    if (init(&self, NULL, 0))
        return 23;
    if (self.rank == 1 || self.rank == 2) {
        static info collect;
        strcpy(collect.key, "pmix.collect");
        collect.is.kind = BOOL;
        collect.is.is.number = 1;
        process both[2] = { self, self };
        both[0].rank = 1;
        both[1].rank = 2;
        for (int turn = 0; turn < 3; turn++) {
            char key[16], text[16];
            snprintf(key, sizeof key, "turn%d", turn);
            snprintf(text, sizeof text, "%d by %d", turn, self.rank);
            put(key, text);
            int status = fence(both, 2, &collect, 1);
            if (status)
                printf("a fence of two: %d\n", status);
            printf("%d: %s\n", self.rank, get(3 - self.rank, key));
        }
    }
    if (self.rank == 3)
        put("later", "put by 3");
    MPI_Barrier(MPI_COMM_WORLD);
    if (self.rank == 0)
        printf("0: %s\n", get(3, "later"));
    finalize(NULL, 0);
    MPI_Finalize();
    return 0;
}
