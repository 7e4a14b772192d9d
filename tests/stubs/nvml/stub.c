/* A stand-in for the driver's libnvidia-ml.so.1, for machines without a card.
 *
 * It exports the calls that the collectors make through nvidia-ml-py. What the cards say stands in the
 * file named by NVML_STUB_SCRIPT and is read again at every call, one line per card:
 *
 *     gpu_percent memory_percent used_bytes total_bytes [name=number ...]
 *
 * A number of -1 is given out as the largest value of its field, which is how NVML says "no value". What
 * else a card says comes by name; what is not named is not supported by the card:
 *
 *     power=milliwatts temperature=celsius ecc=count
 *     pid=process          a process that holds memory of it (repeatable; pid=0: there are none)
 *     error=code           what every reading of that card returns (15: the card fell off the bus)
 *     hang=seconds         how long every reading of its utilization takes
 *
 * Errors (XID) stand in the file named by NVML_STUB_EVENTS, one "card code" per line; each is told once.
 * With NVML_STUB_OLD set the newer calls are refused, as by old drivers. Where no such variable gets through,
 * the script is the file "cards" in the directory that LD_LIBRARY_PATH names.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    CARDS_MAX = 16,
    PIDS_MAX = 16
};

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { int version, sensor, celsius; } temperature_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process_t;
typedef struct { void *device; unsigned long long type, data; unsigned int gpu, compute; } event_t;

typedef struct {
    long long gpu, memory, used, total;
    long long power, temperature, ecc; /* ABSENT: not supported */
    int error, hang, pids_known, pids;
    unsigned int pid[PIDS_MAX];
} card_t;

#define ABSENT (-2)

static int initialized;
static int handles[CARDS_MAX]; /* a handle is the address of a slot; the slot holds the index */
static int registered[CARDS_MAX];
static int told; /* how many events were told */

static void name_value(card_t *card, const char *word) {
    long long value;
    if (sscanf(word, "power=%lld", &value) == 1) card->power = value;
    else if (sscanf(word, "temperature=%lld", &value) == 1) card->temperature = value;
    else if (sscanf(word, "ecc=%lld", &value) == 1) card->ecc = value;
    else if (sscanf(word, "error=%lld", &value) == 1) card->error = (int)value;
    else if (sscanf(word, "hang=%lld", &value) == 1) card->hang = (int)value;
    else if (sscanf(word, "pid=%lld", &value) == 1) {
        card->pids_known = 1;
        if (value && card->pids < PIDS_MAX) card->pid[card->pids++] = (unsigned int)value;
    }
}

static FILE *open_script(void) {
    const char *path = getenv("NVML_STUB_SCRIPT"), *folder = getenv("LD_LIBRARY_PATH");
    char beside[4096];
    if (path) return fopen(path, "r");
    if (!folder) return NULL;
    snprintf(beside, sizeof beside, "%s/cards", folder);
    return fopen(beside, "r");
}

static int load(card_t *cards) {
    FILE *script = open_script();
    char line[512];
    int count = 0;
    if (!script) return 0;
    while (count < CARDS_MAX && fgets(line, sizeof line, script)) {
        card_t *card = &cards[count];
        int used = 0;
        memset(card, 0, sizeof *card);
        card->power = card->temperature = card->ecc = ABSENT;
        if (sscanf(line, "%lld %lld %lld %lld%n", &card->gpu, &card->memory, &card->used, &card->total,
                   &used) < 4)
            continue;
        for (char *word = strtok(line + used, " \n"); word; word = strtok(NULL, " \n"))
            name_value(card, word);
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
        if (card.hang) sleep((unsigned int)card.hang);
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
    if (getenv("NVML_STUB_OLD")) return FUNCTION_NOT_FOUND;
    code = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (code == SUCCESS) {
        memory->used = plain.used;
        memory->total = plain.total;
        memory->free = plain.free;
        memory->reserved = 0;
    }
    return code;
}

/* One number of a card, or why there is none. */
static int told_number(void *handle, size_t offset, long long *number) {
    card_t card;
    int code = find(handle, &card);
    if (code != SUCCESS) return code;
    *number = *(long long *)((char *)&card + offset);
    return *number == ABSENT ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
    long long number;
    int code = told_number(handle, offsetof(card_t, power), &number);
    if (code == SUCCESS) *milliwatts = (unsigned int)number;
    return code;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) {
    long long number;
    int code = told_number(handle, offsetof(card_t, temperature), &number);
    (void)sensor;
    if (code == SUCCESS) *celsius = (unsigned int)number;
    return code;
}

int nvmlDeviceGetTemperatureV(void *handle, temperature_t *temperature) {
    long long number;
    int code;
    if (getenv("NVML_STUB_OLD")) return FUNCTION_NOT_FOUND;
    code = told_number(handle, offsetof(card_t, temperature), &number);
    if (code == SUCCESS) temperature->celsius = (int)number;
    return code;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
    long long number;
    int code = told_number(handle, offsetof(card_t, ecc), &number);
    if (code == SUCCESS && (kind != 1 || counter != 0)) return INVALID_ARGUMENT; /* uncorrected, volatile */
    if (code == SUCCESS) *count = (unsigned long long)number;
    return code;
}

static int processes(void *handle, unsigned int *count, process_t *found) {
    card_t card;
    int code = find(handle, &card);
    if (code != SUCCESS) return code;
    if (!card.pids_known) return NOT_SUPPORTED;
    if ((unsigned int)card.pids > *count) {
        *count = (unsigned int)card.pids;
        return INSUFFICIENT_SIZE;
    }
    *count = (unsigned int)card.pids;
    for (int i = 0; i < card.pids; i++) {
        found[i].pid = card.pid[i];
        found[i].used = 1024;
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *count, process_t *found) {
    return processes(handle, count, found);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, process_t *found) {
    return getenv("NVML_STUB_OLD") ? FUNCTION_NOT_FOUND : processes(handle, count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *count, process_t *found) {
    (void)handle, (void)count, (void)found;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetIndex(void *handle, unsigned int *index) {
    *index = (unsigned int)*(int *)handle;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) { *set = &told; return SUCCESS; }
int nvmlEventSetFree(void *set) { return set == &told ? SUCCESS : INVALID_ARGUMENT; }

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    if (set != &told || types != 8) return INVALID_ARGUMENT;
    registered[*(int *)handle] = 1;
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned int milliseconds) {
    const char *path = getenv("NVML_STUB_EVENTS");
    FILE *script = path ? fopen(path, "r") : NULL;
    int card, line = 0, code = TIMEOUT;
    unsigned long long xid;
    (void)set, (void)milliseconds;
    if (!script) return TIMEOUT;
    while (code == TIMEOUT && fscanf(script, "%d %llu", &card, &xid) == 2) {
        if (line++ < told || card < 0 || card >= CARDS_MAX || !registered[card]) continue;
        told = line;
        event->device = &handles[card];
        event->type = 8;
        event->data = xid;
        code = SUCCESS;
    }
    fclose(script);
    return code;
}
