/* A stand-in for libnvidia-ml.so.1: the driver's functions, answering what a profile lists.
 *
 * What a profile does not list is NOT_SUPPORTED. Struct layouts are those that the nvidia-ml-py
 * bindings declare; versions are checked as the driver checks them.
 */
#define _GNU_SOURCE
#include "call.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct handle *nvmlDevice_t;
typedef unsigned long long u64;

/* ---- life -------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;

bool initialized(void) {
  pthread_mutex_lock(&lock);
  bool answer = users > 0;
  pthread_mutex_unlock(&lock);
  return answer;
}

static nvmlReturn_t start(const char *function, unsigned flags) {
  struct call call = {.device = SYSTEM, .config = config_get()};
  called(function, NULL, SYSTEM, "%u", flags);
  nvmlReturn_t result = ask(&call, "nvmlInit_v2", NULL, 0, NULL);
  if (result == SUCCESS) {
    pthread_mutex_lock(&lock);
    users++;
    pthread_mutex_unlock(&lock);
  }
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return start("nvmlInit_v2", 0); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return start("nvmlInitWithFlags", flags); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
  struct call call;
  called("nvmlShutdown", NULL, SYSTEM, "%s", "");
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS) result = ask(&call, "nvmlShutdown", NULL, 0, NULL);
  if (result == SUCCESS) {
    pthread_mutex_lock(&lock);
    users--;
    pthread_mutex_unlock(&lock);
  }
  return leave(&call, result);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
  static const char *const texts[] = {
      "Success", "Uninitialized", "Invalid argument", "Not supported", "No permission",
      "Already initialized", "Not found", "Insufficient size", "Insufficient power",
      "Driver not loaded", "Timeout", "Interrupt problem", "Library not found",
      "Function not found", "Corrupted infoROM", "GPU is lost", "Reset required",
      "Refused by the operating system", "Driver and library differ", "In use", "No memory",
      "No data", "No ECC in a vGPU", "Insufficient resources", "Frequency not supported",
      "Struct version not supported", "Deprecated", "Not ready", "GPU not found"};
  bool listed = result >= 0 && result < (int)(sizeof texts / sizeof *texts);
  return listed ? texts[result] : "Unknown error";
}

/* ---- shapes of functions ----------------------------------------------------------------- */

static nvmlReturn_t begin(struct call *call, const char *name, const char *other,
                          nvmlDevice_t device, int nargs, const long *args) {
  const long *a = args;
  if (nargs == 0) called(name, device, device ? device->device : -1, "%s", "");
  if (nargs == 1) called(name, device, device ? device->device : -1, "%ld", a[0]);
  if (nargs == 2) called(name, device, device ? device->device : -1, "%ld %ld", a[0], a[1]);
  if (nargs == 3)
    called(name, device, device ? device->device : -1, "%ld %ld %ld", a[0], a[1], a[2]);
  nvmlReturn_t result = enter(call, device);
  if (result == SUCCESS) result = ask(call, name, other, nargs, args);
  return result;
}

/* The same, where a value must be listed. */
static nvmlReturn_t want(struct call *call, const char *name, const char *other,
                         nvmlDevice_t device, int nargs, const long *args) {
  nvmlReturn_t result = begin(call, name, other, device, nargs, args);
  return result == SUCCESS && call->rule == NULL ? NOT_SUPPORTED : result;
}

static nvmlReturn_t system_want(struct call *call, const char *name, const char *other) {
  called(name, NULL, SYSTEM, "%s", "");
  nvmlReturn_t result = enter_system(call);
  if (result == SUCCESS) result = ask(call, name, other, 0, NULL);
  return result == SUCCESS && call->rule == NULL ? NOT_SUPPORTED : result;
}

/* (device, T *out) */
#define ONE_AS(NAME, OTHER, TYPE)                                  \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, TYPE *out) {       \
    struct call call;                                              \
    nvmlReturn_t result = want(&call, #NAME, OTHER, device, 0, NULL); \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT; \
    if (result == SUCCESS) *out = (TYPE)whole(&call, 0);           \
    return leave(&call, result);                                   \
  }
#define ONE(NAME) ONE_AS(NAME, NULL, unsigned)

/* (device, T *first, T *second) */
#define TWO(NAME)                                                              \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, unsigned *first, unsigned *second) { \
    struct call call;                                                          \
    nvmlReturn_t result = want(&call, #NAME, NULL, device, 0, NULL);           \
    if (result == SUCCESS && (first == NULL || second == NULL)) result = INVALID_ARGUMENT; \
    if (result == SUCCESS) *first = (unsigned)whole(&call, 0), *second = (unsigned)whole(&call, 1); \
    return leave(&call, result);                                               \
  }

/* (device, selector, T *out) */
#define PICK(NAME, TYPE)                                                        \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, unsigned a, TYPE *out) {        \
    struct call call;                                                           \
    nvmlReturn_t result = want(&call, #NAME, NULL, device, 1, (long[]){(long)a}); \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;            \
    if (result == SUCCESS) *out = (TYPE)whole(&call, 0);                        \
    return leave(&call, result);                                                \
  }

/* (device, selector, selector, T *out) */
#define PICK_TWO(NAME, TYPE)                                                            \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, unsigned a, unsigned b, TYPE *out) {    \
    struct call call;                                                                   \
    nvmlReturn_t result = want(&call, #NAME, NULL, device, 2, (long[]){(long)a, (long)b}); \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;                    \
    if (result == SUCCESS) *out = (TYPE)whole(&call, 0);                                \
    return leave(&call, result);                                                        \
  }

/* (device, struct of COUNT equal members) */
#define MEMBERS(NAME, TYPE, COUNT)                                       \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, TYPE *out) {             \
    struct call call;                                                    \
    nvmlReturn_t result = want(&call, #NAME, NULL, device, 0, NULL);     \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;     \
    for (int i = 0; result == SUCCESS && i < COUNT; i++) out[i] = (TYPE)whole(&call, i); \
    return leave(&call, result);                                         \
  }

/* (device, char *out, unsigned length) */
#define STRING(NAME)                                                              \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, char *out, unsigned length) {     \
    struct call call;                                                             \
    nvmlReturn_t result = want(&call, #NAME, NULL, device, 0, NULL);              \
    if (result == SUCCESS) result = text(&call, 0, out, length);                  \
    return leave(&call, result);                                                  \
  }

#define SYSTEM_STRING(NAME)                                       \
  EXPORT nvmlReturn_t NAME(char *out, unsigned length) {          \
    struct call call;                                             \
    nvmlReturn_t result = system_want(&call, #NAME, NULL);        \
    if (result == SUCCESS) result = text(&call, 0, out, length);  \
    return leave(&call, result);                                  \
  }

#define SYSTEM_ONE(NAME, OTHER)                                    \
  EXPORT nvmlReturn_t NAME(int *out) {                             \
    struct call call;                                              \
    nvmlReturn_t result = system_want(&call, #NAME, OTHER);        \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT; \
    if (result == SUCCESS) *out = (int)whole(&call, 0);            \
    return leave(&call, result);                                   \
  }

/* ---- the system -------------------------------------------------------------------------- */

SYSTEM_STRING(nvmlSystemGetDriverVersion)
SYSTEM_STRING(nvmlSystemGetNVMLVersion)
SYSTEM_ONE(nvmlSystemGetCudaDriverVersion, NULL)
SYSTEM_ONE(nvmlSystemGetCudaDriverVersion_v2, "nvmlSystemGetCudaDriverVersion")

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length) {
  struct call call;
  called("nvmlSystemGetProcessName", NULL, SYSTEM, "%u", pid);
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS)
    result = ask(&call, "nvmlSystemGetProcessName", NULL, 1, (long[]){(long)pid});
  if (result == SUCCESS && call.rule == NULL) result = NOT_FOUND;
  if (result == SUCCESS) result = text(&call, 0, out, length);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
  struct call call;
  called("nvmlDeviceGetCount_v2", NULL, SYSTEM, "%s", "");
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS) result = ask(&call, "nvmlDeviceGetCount_v2", NULL, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS)
    *out = call.rule != NULL ? (unsigned)whole(&call, 0) : (unsigned)call.config->npresent;
  return leave(&call, result);
}

/* ---- handles ----------------------------------------------------------------------------- */

static nvmlReturn_t handle_of(struct call *call, const char *function, long device,
                              nvmlDevice_t *out) {
  enter_device(call, device);
  nvmlReturn_t result = ask(call, function, NULL, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) *out = gpu_handle(device);
  return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
  struct call call;
  called("nvmlDeviceGetHandleByIndex_v2", NULL, SYSTEM, "%u", index);
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS && index >= (unsigned)call.config->npresent) result = INVALID_ARGUMENT;
  if (result == SUCCESS)
    result = handle_of(&call, "nvmlDeviceGetHandleByIndex_v2", call.config->present[index], out);
  return leave(&call, result);
}

typedef bool (*same)(const char *told, const char *asked);

static bool same_text(const char *told, const char *asked) { return strcmp(told, asked) == 0; }

static bool pci_parts(const char *bus, unsigned *domain, unsigned *number, unsigned *slot) {
  return sscanf(bus, "%x:%x:%x", domain, number, slot) == 3;
}

static bool same_bus(const char *told, const char *asked) {
  unsigned a[3], b[3];
  return pci_parts(told, &a[0], &a[1], &a[2]) && pci_parts(asked, &b[0], &b[1], &b[2]) &&
         memcmp(a, b, sizeof a) == 0;
}

static long device_by(const struct config *config, const char *name, same equal,
                      const char *asked) {
  char told[1024];
  for (int i = 0; i < config->npresent; i++) {
    long device = config->present[i];
    const struct rule *rule = rules_value(config, device, name);
    if (rule == NULL || rule->natoms == 0 || rule->atoms[0].type != TEXT) continue;
    atom_text(&rule->atoms[0], device, told, (int)sizeof told);
    if (equal(told, asked)) return device;
  }
  return -1;
}

static nvmlReturn_t handle_by(const char *function, const char *name, same equal,
                              const char *asked, nvmlDevice_t *out) {
  struct call call;
  called(function, NULL, SYSTEM, "%s", asked == NULL ? "" : asked);
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS && (asked == NULL || out == NULL)) result = INVALID_ARGUMENT;
  if (result == SUCCESS) {
    long device = device_by(call.config, name, equal, asked);
    result = device < 0 ? NOT_FOUND : handle_of(&call, function, device, out);
  }
  return leave(&call, result);
}

static nvmlReturn_t mig_by_uuid(const char *uuid, nvmlDevice_t *out) {
  struct call call;
  nvmlReturn_t result = enter_system(&call);
  if (result != SUCCESS) return leave(&call, result);
  result = NOT_FOUND;
  for (int i = 0; i < call.config->npresent; i++) {
    const struct mig *one = NULL;
    while ((one = migs_of(call.config, one, call.config->present[i])) != NULL)
      if (one->uuid != NULL && strcmp(one->uuid, uuid) == 0) {
        *out = mig_handle(call.config->present[i], one);
        result = SUCCESS;
      }
  }
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
  nvmlReturn_t result =
      handle_by("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", same_text, uuid, out);
  return result == NOT_FOUND ? mig_by_uuid(uuid, out) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
  return handle_by("nvmlDeviceGetHandleBySerial", "nvmlDeviceGetSerial", same_text, serial, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *out) {
  return handle_by("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetPciInfo_v3", same_bus, bus,
                   out);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetIndex", NULL, device, 0, NULL);
  if (result == SUCCESS && call.mig != NULL) result = NOT_SUPPORTED;
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  for (int i = 0; result == SUCCESS && i < call.config->npresent; i++)
    if (call.config->present[i] == call.device) *out = (unsigned)i;
  if (result == SUCCESS && call.rule != NULL) *out = (unsigned)whole(&call, 0);
  return leave(&call, result);
}

/* ---- identity ---------------------------------------------------------------------------- */

STRING(nvmlDeviceGetSerial)
STRING(nvmlDeviceGetBoardPartNumber)
STRING(nvmlDeviceGetVbiosVersion)
STRING(nvmlDeviceGetInforomImageVersion)
ONE(nvmlDeviceGetMinorNumber)
ONE(nvmlDeviceGetArchitecture)
ONE(nvmlDeviceGetNumGpuCores)
ONE(nvmlDeviceGetBrand)
ONE(nvmlDeviceGetBoardId)
ONE(nvmlDeviceGetModuleId)
ONE(nvmlDeviceGetMultiGpuBoard)
ONE(nvmlDeviceGetBusType)
ONE(nvmlDeviceGetIrqNum)
ONE(nvmlDeviceGetMemoryBusWidth)
ONE(nvmlDeviceGetPowerSource)
ONE(nvmlDeviceGetNumaNodeId)
ONE(nvmlDeviceGetInforomConfigurationChecksum)
TWO(nvmlDeviceGetCudaComputeCapability)

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetUUID", NULL, device, 0, NULL);
  if (result == SUCCESS && call.mig != NULL) {
    if (strlen(device->uuid) + 1 > length) result = INSUFFICIENT_SIZE;
    if (result == SUCCESS) memcpy(out, device->uuid, strlen(device->uuid) + 1);
    return leave(&call, result);
  }
  if (result == SUCCESS && call.rule == NULL) result = NOT_SUPPORTED;
  if (result == SUCCESS) result = text(&call, 0, out, length);
  return leave(&call, result);
}

/* An instance is called by its GPU's name and its profile. */
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length) {
  struct call call;
  char name[1024];
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetName", NULL, device, 0, NULL);
  if (result == SUCCESS && call.mig != NULL)
    call.rule = rules_value(call.config, call.device, "nvmlDeviceGetName");
  if (result == SUCCESS && call.rule == NULL) result = NOT_SUPPORTED;
  if (result == SUCCESS) result = text(&call, 0, name, sizeof name);
  if (result == SUCCESS && call.mig != NULL && call.mig->profile != NULL) {
    size_t used = strlen(name);
    snprintf(name + used, sizeof name - used, " MIG %s", call.mig->profile);
  }
  if (result == SUCCESS && strlen(name) + 1 > length) result = INSUFFICIENT_SIZE;
  if (result == SUCCESS) memcpy(out, name, strlen(name) + 1);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned object, char *out,
                                                unsigned length) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetInforomVersion", NULL, device, 1, (long[]){(long)object});
  if (result == SUCCESS) result = text(&call, 0, out, length);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetGspFirmwareVersion", NULL, device, 0, NULL);
  if (result == SUCCESS) result = text(&call, 0, out, 64);
  return leave(&call, result);
}

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

static nvmlReturn_t pci_fill(const struct call *call, struct pci *out) {
  char bus[32];
  unsigned domain, number, slot;
  if (out == NULL) return INVALID_ARGUMENT;
  nvmlReturn_t result = text(call, 0, bus, sizeof bus);
  if (result != SUCCESS) return result;
  if (!pci_parts(bus, &domain, &number, &slot)) return NOT_SUPPORTED;
  memset(out, 0, sizeof *out);
  out->domain = domain, out->bus = number, out->device = slot;
  out->id = (unsigned)whole(call, 1), out->subsystem = (unsigned)whole(call, 2);
  snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", domain & 0xFFFF, number & 0xFF,
           slot & 0xFF);
  snprintf(out->bus_id, sizeof out->bus_id, "%s", bus);
  return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetPciInfo_v3", NULL, device, 0, NULL);
  if (result == SUCCESS) result = pci_fill(&call, out);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                        struct pci *out) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetNvLinkRemotePciInfo_v2", NULL, device, 1, (long[]){(long)link});
  if (result == SUCCESS) result = pci_fill(&call, out);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second,
                                                        unsigned *out) {
  struct call call;
  if (second == NULL || out == NULL) return INVALID_ARGUMENT;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetTopologyCommonAncestor", NULL, first, 1,
                             (long[]){second->device});
  if (result == SUCCESS) *out = (unsigned)whole(&call, 0);
  return leave(&call, result);
}

static nvmlReturn_t mask(const char *name, nvmlDevice_t device, unsigned size, unsigned long *out) {
  struct call call;
  nvmlReturn_t result = want(&call, name, NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  for (unsigned i = 0; result == SUCCESS && i < size; i++)
    out[i] = (unsigned long)whole(&call, (int)i);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size,
                                             unsigned long *out) {
  return mask("nvmlDeviceGetCpuAffinity", device, size, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size,
                                                unsigned long *out, unsigned scope) {
  (void)scope;
  return mask("nvmlDeviceGetMemoryAffinity", device, size, out);
}

/* ---- use, memory ------------------------------------------------------------------------- */

MEMBERS(nvmlDeviceGetUtilizationRates, unsigned, 2)
TWO(nvmlDeviceGetEncoderUtilization)
TWO(nvmlDeviceGetDecoderUtilization)
TWO(nvmlDeviceGetJpgUtilization)
TWO(nvmlDeviceGetOfaUtilization)
MEMBERS(nvmlDeviceGetBAR1MemoryInfo, u64, 3)

EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *sessions,
                                              unsigned *rate, unsigned *latency) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetEncoderStats", NULL, device, 0, NULL);
  if (result == SUCCESS && (sessions == NULL || rate == NULL || latency == NULL))
    result = INVALID_ARGUMENT;
  if (result == SUCCESS) {
    *sessions = (unsigned)whole(&call, 0);
    *rate = (unsigned)whole(&call, 1);
    *latency = (unsigned)whole(&call, 2);
  }
  return leave(&call, result);
}

struct memory {
  u64 total, reserved, free, used;
};

static nvmlReturn_t memory(struct call *call, const char *name, const char *other,
                           nvmlDevice_t device, struct memory *out) {
  nvmlReturn_t result = begin(call, name, other, device, 0, NULL);
  if (result != SUCCESS) return result;
  if (call->mig != NULL) {
    const struct mig *mig = call->mig;
    *out = (struct memory){mig->total, mig->reserved, mig->free, mig->used};
    return SUCCESS;
  }
  if (call->rule == NULL) return NOT_SUPPORTED;
  if (call->rule->natoms == 4)
    *out = (struct memory){whole(call, 0), whole(call, 1), whole(call, 2), whole(call, 3)};
  else
    *out = (struct memory){whole(call, 0), 0, whole(call, 1), whole(call, 2)};
  return SUCCESS;
}

/* The first call counts reserved memory as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, u64 *out) {
  struct call call;
  struct memory all;
  nvmlReturn_t result =
      memory(&call, "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", device, &all);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) out[0] = all.total, out[1] = all.free, out[2] = all.used + all.reserved;
  return leave(&call, result);
}

struct memory_v2 {
  unsigned version;
  struct memory memory;
};

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *out) {
  struct call call;
  struct memory all;
  nvmlReturn_t result = memory(&call, "nvmlDeviceGetMemoryInfo_v2", NULL, device, &all);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && out->version != 0x02000028) result = VERSION_MISMATCH;
  if (result == SUCCESS) out->memory = all;
  return leave(&call, result);
}

/* ---- power, temperatures, clocks --------------------------------------------------------- */

ONE(nvmlDeviceGetPowerUsage)
ONE(nvmlDeviceGetEnforcedPowerLimit)
ONE(nvmlDeviceGetPowerManagementLimit)
ONE(nvmlDeviceGetPowerManagementDefaultLimit)
ONE(nvmlDeviceGetPowerManagementMode)
ONE(nvmlDeviceGetPowerState)
ONE(nvmlDeviceGetPerformanceState)
TWO(nvmlDeviceGetPowerManagementLimitConstraints)
ONE_AS(nvmlDeviceGetTotalEnergyConsumption, NULL, u64)
PICK(nvmlDeviceGetTemperature, unsigned)
PICK(nvmlDeviceGetTemperatureThreshold, unsigned)
PICK(nvmlDeviceGetClockInfo, unsigned)
PICK(nvmlDeviceGetMaxClockInfo, unsigned)
PICK(nvmlDeviceGetApplicationsClock, unsigned)
PICK(nvmlDeviceGetDefaultApplicationsClock, unsigned)
PICK(nvmlDeviceGetMaxCustomerBoostClock, unsigned)
PICK_TWO(nvmlDeviceGetClock, unsigned)
ONE(nvmlDeviceGetAdaptiveClockInfoStatus)
ONE(nvmlDeviceGetNumFans)
ONE(nvmlDeviceGetFanSpeed)
PICK(nvmlDeviceGetFanSpeed_v2, unsigned)
PICK(nvmlDeviceGetTargetFanSpeed, unsigned)
TWO(nvmlDeviceGetMinMaxFanSpeed)

#define EVENTS "nvmlDeviceGetCurrentClocksEventReasons"
#define SUPPORTED "nvmlDeviceGetSupportedClocksEventReasons"
ONE_AS(nvmlDeviceGetCurrentClocksEventReasons, NULL, u64)
ONE_AS(nvmlDeviceGetCurrentClocksThrottleReasons, EVENTS, u64)
ONE_AS(nvmlDeviceGetSupportedClocksEventReasons, NULL, u64)
ONE_AS(nvmlDeviceGetSupportedClocksThrottleReasons, SUPPORTED, u64)

struct temperature {
  unsigned version, sensor;
  int temperature;
};

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *out) {
  struct call call;
  if (out == NULL) return INVALID_ARGUMENT;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
                             device, 1, (long[]){(long)out->sensor});
  if (result == SUCCESS && out->version != 0x100000C) result = VERSION_MISMATCH;
  if (result == SUCCESS) out->temperature = (int)whole(&call, 0);
  return leave(&call, result);
}

struct margin {
  unsigned version;
  int margin;
};

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, struct margin *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetMarginTemperature", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && out->version != 0x1000008) result = VERSION_MISMATCH;
  if (result == SUCCESS) out->margin = (int)whole(&call, 0);
  return leave(&call, result);
}

struct fan {
  unsigned version, fan, speed;
};

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device, struct fan *out) {
  struct call call;
  if (out == NULL) return INVALID_ARGUMENT;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetFanSpeedRPM", NULL, device, 1, (long[]){(long)out->fan});
  if (result == SUCCESS && out->version != 0x100000C) result = VERSION_MISMATCH;
  if (result == SUCCESS) out->speed = (unsigned)whole(&call, 0);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy, u64 *out) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetViolationStatus", NULL, device, 1, (long[]){(long)policy});
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) out[0] = whole(&call, 0), out[1] = whole(&call, 1);
  return leave(&call, result);
}

/* ---- errors ------------------------------------------------------------------------------ */

PICK_TWO(nvmlDeviceGetTotalEccErrors, u64)
TWO(nvmlDeviceGetEccMode)
ONE(nvmlDeviceGetDefaultEccMode)
ONE(nvmlDeviceGetRetiredPagesPendingStatus)
MEMBERS(nvmlDeviceGetRowRemapperHistogram, unsigned, 5)

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned kind,
                                                    unsigned counter, unsigned place, u64 *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetMemoryErrorCounter", NULL, device, 3,
                             (long[]){(long)kind, (long)counter, (long)place});
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) *out = whole(&call, 0);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned kind,
                                                   unsigned counter, u64 *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetDetailedEccErrors", NULL, device, 2,
                             (long[]){(long)kind, (long)counter});
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  for (int i = 0; result == SUCCESS && i < 4; i++) out[i] = whole(&call, i);
  return leave(&call, result);
}

struct sram {
  unsigned version;
  u64 counts[11];
  unsigned exceeded;
};

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, struct sram *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetSramEccErrorStatus", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && out->version != 0x1000068) result = VERSION_MISMATCH;
  for (int i = 0; result == SUCCESS && i < 11; i++) out->counts[i] = whole(&call, i);
  if (result == SUCCESS) out->exceeded = (unsigned)whole(&call, 11);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                              unsigned *uncorrected, unsigned *pending,
                                              unsigned *failure) {
  struct call call;
  unsigned *const outs[] = {corrected, uncorrected, pending, failure};
  nvmlReturn_t result = want(&call, "nvmlDeviceGetRemappedRows", NULL, device, 0, NULL);
  for (int i = 0; result == SUCCESS && i < 4; i++) {
    if (outs[i] == NULL) result = INVALID_ARGUMENT;
    else *outs[i] = (unsigned)whole(&call, i);
  }
  return leave(&call, result);
}

/* A list of numbers, `width` of them for each entry: `outs` get one each. */
static nvmlReturn_t list(struct call *call, unsigned *count, int width, u64 *const *outs) {
  unsigned entries = (unsigned)(call->rule->natoms / width), room = *count;
  *count = entries;
  if (room < entries) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < entries; i++)
    for (int j = 0; j < width; j++)
      if (outs[j] != NULL) outs[j][i] = whole(call, (int)i * width + j);
  return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              u64 *addresses) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetRetiredPages", NULL, device, 1, (long[]){(long)cause});
  if (result == SUCCESS && count == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) result = list(&call, count, 1, (u64 *const[]){addresses});
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause,
                                                 unsigned *count, u64 *addresses, u64 *times) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetRetiredPages_v2", NULL, device, 1, (long[]){(long)cause});
  if (result == SUCCESS && count == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) result = list(&call, count, 2, (u64 *const[]){addresses, times});
  return leave(&call, result);
}

/* ---- links ------------------------------------------------------------------------------- */

ONE(nvmlDeviceGetPcieReplayCounter)
ONE(nvmlDeviceGetCurrPcieLinkGeneration)
ONE(nvmlDeviceGetCurrPcieLinkWidth)
ONE(nvmlDeviceGetMaxPcieLinkGeneration)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration)
ONE(nvmlDeviceGetMaxPcieLinkWidth)
ONE(nvmlDeviceGetPcieSpeed)
ONE(nvmlDeviceGetPcieLinkMaxSpeed)
PICK(nvmlDeviceGetNvLinkState, unsigned)
PICK(nvmlDeviceGetNvLinkVersion, unsigned)
PICK(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned)
PICK_TWO(nvmlDeviceGetNvLinkCapability, unsigned)
PICK_TWO(nvmlDeviceGetNvLinkErrorCounter, u64)

/* The driver measures for about 20 ms in this call, so a caller waits that long. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter,
                                                unsigned *out) {
  struct call call;
  nvmlReturn_t result =
      want(&call, "nvmlDeviceGetPcieThroughput", NULL, device, 1, (long[]){(long)counter});
  const char *fast = getenv("FAKE_NVML_FAST");
  struct timespec window = {.tv_nsec = 20 * 1000 * 1000};
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && (fast == NULL || *fast != '1')) nanosleep(&window, NULL);
  if (result == SUCCESS) *out = (unsigned)whole(&call, 0);
  return leave(&call, result);
}

struct c2c {
  unsigned enabled;
};

EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, struct c2c *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetC2cModeInfoV", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) out->enabled = (unsigned)whole(&call, 0);
  return leave(&call, result);
}

struct fabric {
  uint8_t cluster[16];
  unsigned status, clique, state;
};

struct fabric_v {
  unsigned version;
  struct fabric fabric;
  unsigned health;
  uint8_t summary; /* version 3 */
};

static void fabric_fill(const struct call *call, struct fabric *out) {
  char uuid[128];
  size_t used = 0;
  memset(out, 0, sizeof *out);
  if (text(call, 0, uuid, sizeof uuid) == SUCCESS)
    for (const char *in = uuid; in[0] != '\0' && used < sizeof out->cluster;) {
      unsigned byte;
      if (*in == '-' || sscanf(in, "%2x", &byte) != 1) {
        in++;
        continue;
      }
      out->cluster[used++] = (uint8_t)byte;
      in += in[1] == '\0' ? 1 : 2;
    }
  out->status = (unsigned)whole(call, 1);
  out->clique = (unsigned)whole(call, 2);
  out->state = (unsigned)whole(call, 3);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct fabric *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV",
                             device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) fabric_fill(&call, out);
  return leave(&call, result);
}

/* `fabric_version` is the newest struct that the driver knows. */
static bool fabric_knows(const struct call *call, unsigned version) {
  const struct rule *rule = rules_value(call->config, call->device, "fabric_version");
  uint64_t newest = rule == NULL ? 3 : atom_whole(&rule->atoms[0], call->moment);
  return (version == 0x02000024 && newest >= 2) || (version == 0x03000028 && newest >= 3);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_v *out) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetGpuFabricInfoV", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && !fabric_knows(&call, out->version)) result = VERSION_MISMATCH;
  if (result == SUCCESS) {
    fabric_fill(&call, &out->fabric);
    out->health = (unsigned)whole(&call, 4);
    /* Not in version 2: a caller's shorter struct must not be written past its end. */
    if (out->version == 0x03000028) out->summary = (uint8_t)whole(&call, 5);
  }
  return leave(&call, result);
}

/* ---- modes ------------------------------------------------------------------------------- */

ONE(nvmlDeviceGetPersistenceMode)
ONE(nvmlDeviceGetComputeMode)
ONE(nvmlDeviceGetVirtualizationMode)
ONE(nvmlDeviceGetDisplayMode)
ONE(nvmlDeviceGetDisplayActive)
ONE(nvmlDeviceGetAccountingMode)
TWO(nvmlDeviceGetMigMode)
TWO(nvmlDeviceGetGpuOperationMode)

/* ---- field values ------------------------------------------------------------------------ */

union value {
  double real;
  unsigned u32;
  u64 u64;
  int i32;
  unsigned short u16;
};

struct field {
  unsigned id, scope;
  int64_t timestamp, latency;
  unsigned type;
  int result;
  union value value;
};

static union value typed(int type, uint64_t whole_value, double real_value) {
  union value out = {.u64 = 0};
  switch (type) {
    case 0: out.real = real_value; break;
    case 1: out.u32 = (unsigned)whole_value; break;
    case 5: out.i32 = (int)(int64_t)whole_value; break;
    case 6: out.u16 = (unsigned short)whole_value; break;
    default: out.u64 = whole_value;
  }
  return out;
}

static void field_ask(struct call *call, struct field *field) {
  char name[32];
  snprintf(name, sizeof name, "field#%u", field->id);
  field->result = ask(call, name, NULL, 1, (long[]){(long)field->scope});
  if (field->result == SUCCESS && call->rule == NULL) field->result = NOT_SUPPORTED;
  field->timestamp = (int64_t)(config_wall(call->config, config_now(call->config)) * 1e6);
  field->latency = 0;
  if (field->result != SUCCESS) return;
  bool fraction = call->rule->natoms > 0 && call->rule->atoms[0].fraction;
  int unsaid = fraction ? 0 : 3;
  int type = call->rule->type < 0 ? unsaid : call->rule->type;
  field->type = (unsigned)type;
  field->value = typed(type, whole(call, 0), real(call, 0));
}

static void field_log(nvmlDevice_t device, int count, const struct field *fields) {
  char ids[400];
  size_t used = 0;
  ids[0] = '\0';
  for (int i = 0; i < count && used + 24 < sizeof ids; i++) {
    const char *gap = i == 0 ? "" : " ";
    int wrote = fields[i].scope == 0
                    ? snprintf(ids + used, sizeof ids - used, "%s%u", gap, fields[i].id)
                    : snprintf(ids + used, sizeof ids - used, "%s%u:%u", gap, fields[i].id,
                               fields[i].scope);
    used += (size_t)wrote;
  }
  called("nvmlDeviceGetFieldValues", device, device->device, "%s", ids);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             struct field *fields) {
  struct call call;
  nvmlReturn_t result = enter(&call, device);
  if (result == SUCCESS && (fields == NULL || count < 1)) result = INVALID_ARGUMENT;
  if (result == SUCCESS) field_log(device, count, fields);
  if (result == SUCCESS) result = ask(&call, "nvmlDeviceGetFieldValues", NULL, 0, NULL);
  for (int i = 0; result == SUCCESS && i < count; i++) field_ask(&call, &fields[i]);
  return leave(&call, result);
}

/* ---- processes --------------------------------------------------------------------------- */

struct process_v2 {
  unsigned pid;
  u64 memory;
  unsigned gi, ci;
};

struct process_v1 {
  unsigned pid;
  u64 memory;
};

static bool counted(const struct call *call, const struct process *one, char type) {
  if (one->type != type) return false;
  return call->mig == NULL || (one->gi == call->mig->gi && one->ci == call->mig->ci);
}

static nvmlReturn_t running(const char *name, const char *other, char type, nvmlDevice_t device,
                            unsigned *count, void *out, bool first) {
  struct call call;
  struct process_v1 *v1 = out;
  struct process_v2 *v2 = out;
  nvmlReturn_t result = begin(&call, name, other, device, 0, NULL);
  if (result == SUCCESS && count == NULL) result = INVALID_ARGUMENT;
  if (result != SUCCESS) return leave(&call, result);
  unsigned room = *count, found = 0;
  const struct process *one = NULL;
  while ((one = processes_of(call.config, one, call.device)) != NULL) {
    if (!counted(&call, one, type)) continue;
    if (out != NULL && found < room && first)
      v1[found] = (struct process_v1){one->pid, one->memory};
    if (out != NULL && found < room && !first)
      v2[found] = (struct process_v2){one->pid, one->memory, one->gi, one->ci};
    found++;
  }
  *count = found;
  return leave(&call, found > room || (found > 0 && out == NULL) ? INSUFFICIENT_SIZE : SUCCESS);
}

#define RUNNING(NAME, OTHER, TYPE, FIRST)                                            \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, unsigned *count, void *out) {        \
    return running(#NAME, OTHER, TYPE, device, count, out, FIRST);                   \
  }

RUNNING(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3", 'C', true)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, "nvmlDeviceGetComputeRunningProcesses_v3", 'C',
        false)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, NULL, 'C', false)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses_v3", 'G',
        true)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, "nvmlDeviceGetGraphicsRunningProcesses_v3", 'G',
        false)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, NULL, 'G', false)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        'M', false)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, NULL, 'M', false)

struct share {
  unsigned pid;
  u64 timestamp;
  unsigned sm, mem, enc, dec;
};

#define SHARE_SECONDS 3 /* the driver keeps a short past: so many samples for each process */

static unsigned shares(const struct call *call, u64 after, unsigned room, struct share *out) {
  unsigned found = 0;
  u64 newest = (u64)(config_wall(call->config, floor(call->moment.now)) * 1e6);
  const struct process *one = NULL;
  while ((one = processes_of(call->config, one, call->device)) != NULL) {
    if (!one->sampled || (call->mig != NULL && !counted(call, one, one->type))) continue;
    for (int age = SHARE_SECONDS - 1; age >= 0; age--) {
      u64 timestamp = newest - (u64)age * 1000000;
      if (timestamp <= after) continue;
      if (out != NULL && found < room)
        out[found] = (struct share){one->pid, timestamp, one->sm, one->mem, one->enc, one->dec};
      found++;
    }
  }
  return found;
}

/* Asked with no buffer it tells the size, with room for a second that passes in between. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct share *out,
                                                    unsigned *count, u64 after) {
  struct call call;
  nvmlReturn_t result = want(&call, "nvmlDeviceGetProcessUtilization", NULL, device, 0, NULL);
  if (result == SUCCESS && count == NULL) result = INVALID_ARGUMENT;
  if (result != SUCCESS) return leave(&call, result);
  unsigned room = *count, found = shares(&call, after, room, out);
  if (found == 0) {
    result = NOT_FOUND;
  } else if (out == NULL || room < found) {
    *count = found * 2;
    result = INSUFFICIENT_SIZE;
  } else {
    *count = found;
  }
  return leave(&call, result);
}

/* ---- sample buffers ---------------------------------------------------------------------- */

struct sample {
  u64 timestamp;
  union value value;
};

#define SAMPLES 120
#define TICK (1.0 / 6)

/* The k-th sample is the average over the sixth of a second before it. */
static struct sample sample_at(const struct call *call, double tick, int type) {
  double to = tick * TICK, from = to - TICK;
  const struct atom *atom = &call->rule->atoms[0];
  struct moment moment = {to, call->device, 0};
  double average = atom_average(atom, from, moment);
  uint64_t rounded = atom->type == WAVE ? (uint64_t)llround(average) : whole(call, 0);
  u64 timestamp = (u64)llround(config_wall(call->config, to) * 1e6);
  return (struct sample){timestamp, typed(type, rounded, average)};
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, u64 after,
                                         unsigned *value_type, unsigned *count,
                                         struct sample *out) {
  struct call call;
  char name[32];
  snprintf(name, sizeof name, "samples#%u", type);
  called("nvmlDeviceGetSamples", device, device == NULL ? -1 : device->device, "%u", type);
  nvmlReturn_t result = enter(&call, device);
  if (result == SUCCESS) result = ask(&call, "nvmlDeviceGetSamples", NULL, 0, NULL);
  if (result == SUCCESS) result = ask(&call, name, NULL, 0, NULL);
  if (result == SUCCESS && (call.rule == NULL || call.rule->natoms == 0)) result = NOT_SUPPORTED;
  if (result == SUCCESS && (value_type == NULL || count == NULL)) result = INVALID_ARGUMENT;
  if (result != SUCCESS) return leave(&call, result);
  int stored = call.rule->type < 0 ? 1 : call.rule->type;
  double last = floor(call.moment.now / TICK);
  unsigned room = *count, found = 0;
  *value_type = (unsigned)stored;
  *count = SAMPLES;
  if (out == NULL) return leave(&call, SUCCESS);
  unsigned newest = room < SAMPLES ? room : SAMPLES;
  for (double tick = last - newest + 1; tick <= last; tick++) {
    struct sample one = sample_at(&call, tick, stored);
    if (one.timestamp > after) out[found++] = one;
  }
  *count = found;
  return leave(&call, found == 0 ? NOT_FOUND : SUCCESS);
}

/* ---- events ------------------------------------------------------------------------------ */

struct nvmlEventSet {
  u64 types[MAX_DEVICES];
  u64 *seen; /* serials that this set has had */
  size_t nseen;
};

typedef struct nvmlEventSet *nvmlEventSet_t;

struct event_data {
  nvmlDevice_t device;
  u64 type, data;
  unsigned gi, ci;
};

ONE_AS(nvmlDeviceGetSupportedEventTypes, NULL, u64)

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
  struct call call;
  called("nvmlEventSetCreate", NULL, SYSTEM, "%s", "");
  nvmlReturn_t result = enter_system(&call);
  if (result == SUCCESS) result = ask(&call, "nvmlEventSetCreate", NULL, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) abort();
  }
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  called("nvmlEventSetFree", NULL, SYSTEM, "%s", "");
  if (!initialized()) return UNINITIALIZED;
  if (set == NULL) return INVALID_ARGUMENT;
  free(set->seen);
  free(set);
  return SUCCESS;
}

static bool seen(const struct nvmlEventSet *set, u64 serial) {
  for (size_t i = 0; i < set->nseen; i++)
    if (set->seen[i] == serial) return true;
  return false;
}

static void remember(struct nvmlEventSet *set, u64 serial) {
  if (seen(set, serial)) return;
  set->seen = realloc(set->seen, (set->nseen + 1) * sizeof *set->seen);
  if (set->seen == NULL) abort();
  set->seen[set->nseen++] = serial;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set) {
  struct call call;
  nvmlReturn_t result =
      begin(&call, "nvmlDeviceRegisterEvents", NULL, device, 1, (long[]){(long)types});
  if (result == SUCCESS && set == NULL) result = INVALID_ARGUMENT;
  if (result != SUCCESS) return leave(&call, result);
  const struct rule *supported =
      rules_value(call.config, call.device, "nvmlDeviceGetSupportedEventTypes");
  u64 mask = supported == NULL ? 0 : atom_whole(&supported->atoms[0], call.moment);
  if (mask == 0 || (types & ~mask) != 0) return leave(&call, NOT_SUPPORTED);
  pthread_mutex_lock(&lock);
  set->types[call.device] |= types;
  /* A `live` event is only for the sets that were there when it happened. */
  for (const struct event *one = NULL; (one = events_of(call.config, one)) != NULL;)
    if (one->live && one->device == call.device) remember(set, one->serial);
  pthread_mutex_unlock(&lock);
  return leave(&call, SUCCESS);
}

static bool next_event(const struct config *config, struct nvmlEventSet *set,
                       struct event_data *out) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (const struct event *one = NULL; (one = events_of(config, one)) != NULL && !found;) {
    if ((set->types[one->device] & one->type) == 0 || seen(set, one->serial)) continue;
    remember(set, one->serial);
    *out = (struct event_data){gpu_handle(one->device), one->type, one->data, one->gi, one->ci};
    found = true;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event_data *out,
                                        unsigned milliseconds) {
  called("nvmlEventSetWait_v2", NULL, SYSTEM, "%u", milliseconds);
  for (long left = (long)milliseconds;; left -= 10) {
    struct call call;
    struct timespec pause = {.tv_nsec = (left < 10 ? left : 10) * 1000 * 1000};
    nvmlReturn_t result = enter_system(&call);
    if (result == SUCCESS && (set == NULL || out == NULL)) result = INVALID_ARGUMENT;
    if (result == SUCCESS) result = ask(&call, "nvmlEventSetWait_v2", NULL, 0, NULL);
    bool found = result == SUCCESS && next_event(call.config, set, out);
    leave(&call, result);
    if (result != SUCCESS || found) return result;
    if (left <= 0) return TIMEOUT;
    nanosleep(&pause, NULL);
  }
}

/* ---- GPM --------------------------------------------------------------------------------- */

struct nvmlGpmSample {
  struct nvmlGpmSample *next;
  long device; /* -1 until it is filled */
  bool mig;
  uint32_t gi;
  double at;
};

typedef struct nvmlGpmSample *nvmlGpmSample_t;

struct metric {
  unsigned id;
  int result;
  double value;
  const char *short_name, *long_name, *unit;
};

struct metrics {
  unsigned version, count;
  nvmlGpmSample_t first, second;
  struct metric metrics[];
};

struct support {
  unsigned version, supported;
};

static nvmlGpmSample_t samples;

static bool sample_known(const struct nvmlGpmSample *sample) {
  const struct nvmlGpmSample *one = samples;
  while (one != NULL && one != sample) one = one->next;
  return one != NULL;
}

static unsigned samples_live(void) {
  unsigned count = 0;
  for (const struct nvmlGpmSample *one = samples; one != NULL; one = one->next) count++;
  return count;
}

/* A board without GPM says so; it does not refuse the question. */
EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, struct support *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlGpmQueryDeviceSupport", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && out->version != 1) result = VERSION_MISMATCH;
  if (result == SUCCESS) out->supported = call.rule == NULL ? 0 : (unsigned)whole(&call, 0);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
  if (!initialized()) return UNINITIALIZED;
  if (out == NULL) return INVALID_ARGUMENT;
  nvmlGpmSample_t sample = calloc(1, sizeof *sample);
  if (sample == NULL) abort();
  sample->device = -1;
  pthread_mutex_lock(&lock);
  sample->next = samples;
  samples = sample;
  called("nvmlGpmSampleAlloc", NULL, SYSTEM, "live=%u", samples_live());
  pthread_mutex_unlock(&lock);
  *out = sample;
  return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  nvmlReturn_t result = INVALID_ARGUMENT;
  pthread_mutex_lock(&lock);
  for (nvmlGpmSample_t *link = &samples; *link != NULL; link = &(*link)->next)
    if (*link == sample) {
      *link = sample->next;
      free(sample);
      result = SUCCESS;
      break;
    }
  called("nvmlGpmSampleFree", NULL, SYSTEM, "live=%u", samples_live());
  pthread_mutex_unlock(&lock);
  return result;
}

static bool gpm_supported(const struct call *call) {
  const struct rule *rule = rules_value(call->config, call->device, "nvmlGpmQueryDeviceSupport");
  return rule != NULL && rule->natoms > 0 && atom_whole(&rule->atoms[0], call->moment) != 0;
}

static bool has_instance(const struct call *call, uint32_t gi) {
  const struct mig *one = NULL;
  while ((one = migs_of(call->config, one, call->device)) != NULL)
    if (one->gi == gi) return true;
  return false;
}

static nvmlReturn_t take(struct call *call, nvmlGpmSample_t sample, bool mig, uint32_t gi) {
  if (!gpm_supported(call)) return NOT_SUPPORTED;
  if (mig && !has_instance(call, gi)) return NOT_FOUND;
  pthread_mutex_lock(&lock);
  bool known = sample_known(sample);
  if (known) {
    sample->device = call->device;
    sample->mig = mig;
    sample->gi = gi;
    sample->at = call->moment.now;
  }
  pthread_mutex_unlock(&lock);
  return known ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlGpmSampleGet", NULL, device, 0, NULL);
  if (result == SUCCESS) result = take(&call, sample, false, 0);
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample) {
  struct call call;
  nvmlReturn_t result =
      begin(&call, "nvmlGpmMigSampleGet", NULL, device, 1, (long[]){(long)gi});
  if (result == SUCCESS) result = take(&call, sample, true, gi);
  return leave(&call, result);
}

static void metric_ask(struct call *call, struct metric *metric, const struct nvmlGpmSample *first,
                       const struct nvmlGpmSample *second) {
  char name[32];
  bool percent = metric->id < 20 || (metric->id >= 30 && metric->id < 60);
  long gi = (long)second->gi;
  snprintf(name, sizeof name, "gpm%s#%u", second->mig ? "mig" : "", metric->id);
  metric->short_name = metric->long_name = "fake";
  metric->unit = percent ? "%" : "MiB/s";
  metric->value = 0;
  metric->result = ask(call, name, NULL, second->mig ? 1 : 0, &gi);
  if (metric->result == SUCCESS && (call->rule == NULL || call->rule->natoms == 0))
    metric->result = NOT_SUPPORTED;
  if (metric->result != SUCCESS) return;
  /* Two samples of one moment have no average: not a number, as a division of zeros is. */
  struct moment to = {second->at, call->device, second->mig ? gi : 0};
  bool window = second->at > first->at;
  metric->value = window ? atom_average(&call->rule->atoms[0], first->at, to) : NAN;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(struct metrics *out) {
  struct call call;
  struct nvmlGpmSample first = {.device = -1}, second = {.device = -1};
  if (!initialized()) return UNINITIALIZED;
  if (out == NULL) return INVALID_ARGUMENT;
  if (out->version != 1) return VERSION_MISMATCH;
  pthread_mutex_lock(&lock);
  if (sample_known(out->first) && sample_known(out->second))
    first = *out->first, second = *out->second;
  pthread_mutex_unlock(&lock);
  if (first.device < 0 || first.device != second.device || first.mig != second.mig ||
      first.gi != second.gi)
    return INVALID_ARGUMENT;
  nvmlDevice_t device = gpu_handle(second.device);
  nvmlReturn_t result =
      begin(&call, "nvmlGpmMetricsGet", NULL, device, 1, (long[]){(long)out->count});
  for (unsigned i = 0; result == SUCCESS && i < out->count; i++)
    metric_ask(&call, &out->metrics[i], &first, &second);
  return leave(&call, result);
}

/* ---- instances --------------------------------------------------------------------------- */

struct attributes {
  unsigned counts[8];
  u64 memory_mb;
};

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceIsMigDeviceHandle", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) *out = call.mig != NULL;
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetMaxMigDeviceCount", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS) {
    const struct rule *mode = rules_value(call.config, call.device, "nvmlDeviceGetMigMode");
    bool on = mode != NULL && atom_whole(&mode->atoms[0], call.moment) == 1;
    *out = call.rule != NULL ? (unsigned)whole(&call, 0) : (on ? 7 : 0);
  }
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetMigDeviceHandleByIndex", NULL, device, 1,
                              (long[]){(long)index});
  if (result == SUCCESS && (out == NULL || call.mig != NULL)) result = INVALID_ARGUMENT;
  if (result != SUCCESS) return leave(&call, result);
  result = NOT_FOUND;
  for (const struct mig *one = NULL; (one = migs_of(call.config, one, call.device)) != NULL;)
    if (one->index == index && result == NOT_FOUND) {
      *out = mig_handle(call.device, one);
      result = SUCCESS;
    }
  return leave(&call, result);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                 nvmlDevice_t *out) {
  struct call call;
  nvmlReturn_t result =
      begin(&call, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", NULL, mig, 0, NULL);
  if (result == SUCCESS && (out == NULL || call.mig == NULL)) result = INVALID_ARGUMENT;
  if (result == SUCCESS) *out = gpu_handle(call.device);
  return leave(&call, result);
}

#define INSTANCE(NAME, MEMBER)                                              \
  EXPORT nvmlReturn_t NAME(nvmlDevice_t device, unsigned *out) {            \
    struct call call;                                                       \
    nvmlReturn_t result = begin(&call, #NAME, NULL, device, 0, NULL);       \
    if (result == SUCCESS && call.mig == NULL) result = NOT_SUPPORTED;      \
    if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;        \
    if (result == SUCCESS) *out = call.mig->MEMBER;                         \
    return leave(&call, result);                                            \
  }

INSTANCE(nvmlDeviceGetGpuInstanceId, gi)
INSTANCE(nvmlDeviceGetComputeInstanceId, ci)

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct attributes *out) {
  struct call call;
  nvmlReturn_t result = begin(&call, "nvmlDeviceGetAttributes_v2", NULL, device, 0, NULL);
  if (result == SUCCESS && out == NULL) result = INVALID_ARGUMENT;
  if (result == SUCCESS && call.mig == NULL && call.rule == NULL) result = NOT_SUPPORTED;
  for (int i = 0; result == SUCCESS && i < 9; i++) {
    u64 value = call.mig != NULL ? call.mig->attributes[i] : whole(&call, i);
    if (i < 8) out->counts[i] = (unsigned)value;
    else out->memory_mb = value;
  }
  return leave(&call, result);
}
