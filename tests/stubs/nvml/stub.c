/* A stand-in for the driver's libnvidia-ml.so.1, for machines without a card.
 *
 * It exports the calls that the collectors make through nvidia-ml-py. What the cards say stands in the
 * file named by NVML_STUB_SCRIPT and is read again at every call, one line per card:
 *
 *     gpu_percent memory_percent used_bytes total_bytes [error]
 *
 * A number of -1 is given out as the largest value of its field, which is how NVML says "no value".
 * `error` is the code that every reading of that card returns (15: the card fell off the bus).
 * With NVML_STUB_NO_V2 set the newer memory call is refused, as by old drivers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, FUNCTION_NOT_FOUND = 13, CARDS_MAX = 16 };

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { long long gpu, memory, used, total; int error; } card_t;

static int initialized;
static int handles[CARDS_MAX]; /* a handle is the address of a slot; the slot holds the index */

static int load(card_t *cards) {
    const char *path = getenv("NVML_STUB_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    char line[256];
    int count = 0;
    if (!script) return 0;
    while (count < CARDS_MAX && fgets(line, sizeof line, script)) {
        card_t *card = &cards[count];
        memset(card, 0, sizeof *card);
        if (sscanf(line, "%lld %lld %lld %lld %d", &card->gpu, &card->memory, &card->used, &card->total,
                   &card->error) >= 4)
            count++;
    }
    fclose(script);
    return count;
}

static int find(void *handle, card_t *card) {
    card_t cards[CARDS_MAX];
    int index = handle ? *(int *)handle : -1, count = load(cards);
    if (!initialized) return UNINITIALIZED;
    if (index < 0 || index >= count) return INVALID_ARGUMENT;
    *card = cards[index];
    return card->error;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; initialized++; return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (!initialized) return UNINITIALIZED; initialized--; return SUCCESS; }

const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "stub error"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    card_t cards[CARDS_MAX];
    *count = (unsigned int)load(cards);
    return initialized ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    card_t cards[CARDS_MAX];
    if (!initialized) return UNINITIALIZED;
    if (index >= (unsigned int)load(cards)) return INVALID_ARGUMENT;
    handles[index] = (int)index;
    *handle = &handles[index];
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    card_t card;
    int code = find(handle, &card);
    if (code == SUCCESS) snprintf(name, length, "Stub Card");
    return code;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    card_t card;
    int code = find(handle, &card);
    if (code == SUCCESS) {
        rates->gpu = (unsigned int)card.gpu;
        rates->memory = (unsigned int)card.memory;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    card_t card;
    int code = find(handle, &card);
    if (code == SUCCESS) {
        memory->used = (unsigned long long)card.used;
        memory->total = (unsigned long long)card.total;
        memory->free = memory->total - memory->used;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    memory_t plain;
    int code;
    if (getenv("NVML_STUB_NO_V2")) return FUNCTION_NOT_FOUND;
    code = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (code == SUCCESS) {
        memory->used = plain.used;
        memory->total = plain.total;
        memory->free = plain.free;
        memory->reserved = 0;
    }
    return code;
}
