/* A stand-in for libnvidia-ml.so.1 with two GPUs; macros make it sick in one way each. Written for these tests. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef INIT
#define INIT 0
#endif
#ifndef COUNT
#define COUNT 2
#endif
#ifndef DRIVER
#define DRIVER 550.54.15
#endif
#ifndef CUDA_CODE
#define CUDA_CODE 0
#endif
#ifndef HANDLE_1
#define HANDLE_1 0
#endif
#ifndef MEMORY_CODE
#define MEMORY_CODE 0
#endif
#ifndef PROCESSES
#define PROCESSES 0
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

#ifdef SAME
static const char *names[] = {"NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"};
static const int capability[][2] = {{9, 0}, {9, 0}};
#else
static const char *names[] = {"NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 3090"};
static const int capability[][2] = {{9, 0}, {8, 6}};
#endif

static long index_of(void *device) { return (long)device - 1; }

int nvmlInit_v2(void) {
#ifdef HANG
    for (;;) pause();
#endif
    return INIT;
}

int nvmlShutdown(void) { return 0; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "%s", TEXT(DRIVER));
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 12040;
    return CUDA_CODE;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = COUNT;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return index == 1 ? HANDLE_1 : 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "%s", names[index_of(device)]);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-%ld1111111-2222-3333-4444-555555555555", index_of(device));
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = capability[index_of(device)][0];
    *minor = capability[index_of(device)][1];
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    memory[0] = (index_of(device) ? 24ULL : 80ULL) << 30;
    memory[1] = (index_of(device) ? 20ULL : 79ULL) << 30;
    memory[2] = memory[0] - memory[1];
    return MEMORY_CODE;
}

#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *infos) {
#else
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) {
#endif
    (void)device, (void)infos;
    unsigned room = *count;
    *count = PROCESSES;
    return PROCESSES > room ? 7 : 0;
}

#ifdef MIG
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = index_of(device) == 0;
    return index_of(device) == 0 ? 0 : 3;
}
#endif
