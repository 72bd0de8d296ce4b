/* One call into the library: who asks what, what is scripted for it, and the way out. */
#ifndef FAKE_NVML_CALL_H
#define FAKE_NVML_CALL_H

#include "rules.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  TIMEOUT = 10,
  GPU_IS_LOST = 15,
  VERSION_MISMATCH = 25,
};

typedef int nvmlReturn_t;

/* What nvmlDevice_t points to: a GPU or, with `mig`, an instance of one. */
struct handle {
  struct handle *next;
  long device;
  bool mig;
  uint32_t gi, ci;
  char uuid[96];
};

struct call {
  const struct config *config;
  const struct handle *handle; /* NULL for a system call */
  const struct mig *mig;       /* of a MIG handle */
  const struct rule *rule;     /* what answers; NULL where nothing is listed */
  long device;
  struct moment moment;
};

void called(const char *function, const struct handle *handle, long device, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
struct handle *gpu_handle(long device);
struct handle *mig_handle(long device, const struct mig *mig);
bool initialized(void);

/* `enter` checks the handle and takes the state; `ask` finds the rule, and is where a scripted
 * delay, hang or crash happens. `ask` answers SUCCESS with rule == NULL where nothing is listed. */
nvmlReturn_t enter(struct call *call, const struct handle *handle);
void enter_device(struct call *call, long device);
nvmlReturn_t enter_system(struct call *call);
nvmlReturn_t ask(struct call *call, const char *name, const char *other, int nargs,
                 const long *args);
nvmlReturn_t leave(struct call *call, nvmlReturn_t result);

uint64_t whole(const struct call *call, int at);
double real(const struct call *call, int at);
nvmlReturn_t text(const struct call *call, int at, char *out, unsigned length);

#endif
