/* Handles, the log, scripted faults. */
#define _GNU_SOURCE
#include "call.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle gpus[MAX_DEVICES];
static struct handle *migs; /* kept for ever: an old handle stays a handle, as in the driver */
static int log_file = -1;
static long busy_us;

static void prepare(void) {
  const char *path = getenv("FAKE_NVML_LOG"), *busy = getenv("FAKE_NVML_BUSY_US");
  for (int i = 0; i < MAX_DEVICES; i++) gpus[i].device = i;
  if (path != NULL) log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (busy != NULL) busy_us = strtol(busy, NULL, 10);
}

/* One write for each line, so that lines of several threads do not mix. */
void called(const char *function, const struct handle *handle, long device, const char *format,
            ...) {
  char line[512], who[48] = "-";
  pthread_once(&once, prepare);
  if (log_file < 0) return;
  if (device >= 0) snprintf(who, sizeof who, "%ld", device);
  if (handle != NULL && handle->mig)
    snprintf(who, sizeof who, "%ld/%u/%u", device, handle->gi, handle->ci);
  int length = snprintf(line, sizeof line - 1, "%s %s", function, who);
  va_list args;
  va_start(args, format);
  line[length] = ' ';
  int more = vsnprintf(line + length + 1, sizeof line - 2 - (size_t)length, format, args);
  if (more > 0) length += more + 1;
  va_end(args);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length++] = '\n';
  if (write(log_file, line, (size_t)length) < 0) return;
}

struct handle *gpu_handle(long device) {
  pthread_once(&once, prepare);
  return &gpus[device];
}

struct handle *mig_handle(long device, const struct mig *mig) {
  const char *uuid = mig->uuid == NULL ? "" : mig->uuid;
  struct handle *one;
  pthread_mutex_lock(&lock);
  for (one = migs; one != NULL; one = one->next)
    if (one->device == device && one->gi == mig->gi && one->ci == mig->ci &&
        strcmp(one->uuid, uuid) == 0)
      break;
  if (one == NULL) {
    one = calloc(1, sizeof *one);
    if (one == NULL) abort();
    one->device = device;
    one->mig = true;
    one->gi = mig->gi;
    one->ci = mig->ci;
    snprintf(one->uuid, sizeof one->uuid, "%s", uuid);
    one->next = migs;
    migs = one;
  }
  pthread_mutex_unlock(&lock);
  return one;
}

static bool known(const struct handle *handle) {
  if (handle >= gpus && handle < gpus + MAX_DEVICES) return true;
  pthread_mutex_lock(&lock);
  const struct handle *one = migs;
  while (one != NULL && one != handle) one = one->next;
  pthread_mutex_unlock(&lock);
  return one != NULL;
}

static const struct mig *instance(const struct config *config, const struct handle *handle) {
  const struct mig *one = NULL;
  while ((one = migs_of(config, one, handle->device)) != NULL)
    if (one->gi == handle->gi && one->ci == handle->ci &&
        strcmp(one->uuid == NULL ? "" : one->uuid, handle->uuid) == 0)
      break;
  return one;
}

static void nap(double seconds) {
  struct timespec time = {.tv_sec = (time_t)seconds};
  time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
  while (nanosleep(&time, &time) != 0) continue;
}

static void burn(void) {
  struct timespec start, now;
  if (busy_us <= 0) return;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  do {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < busy_us);
}

nvmlReturn_t enter_system(struct call *call) {
  *call = (struct call){.device = SYSTEM};
  if (!initialized()) return UNINITIALIZED;
  call->config = config_get();
  return SUCCESS;
}

/* After enter_system: the call turned out to be about one GPU. */
void enter_device(struct call *call, long device) {
  call->device = device;
  call->handle = gpu_handle(device);
  burn();
}

nvmlReturn_t enter(struct call *call, const struct handle *handle) {
  *call = (struct call){.handle = handle};
  if (!initialized()) return UNINITIALIZED;
  if (handle == NULL || !known(handle)) return INVALID_ARGUMENT;
  call->device = handle->device;
  burn();
  call->config = config_get();
  return SUCCESS;
}

static nvmlReturn_t present(struct call *call) {
  if (call->device == SYSTEM) return SUCCESS;
  if (!config_has(call->config, call->device)) return GPU_IS_LOST;
  call->mig = NULL;
  if (!call->handle->mig) return SUCCESS;
  call->mig = instance(call->config, call->handle);
  return call->mig == NULL ? INVALID_ARGUMENT : SUCCESS;
}

static struct found find(struct call *call, const char *name, const char *other, int nargs,
                         const long *args) {
  struct found found = rules_find(call->config, call->device, name, nargs, args);
  bool named = found.rule != NULL && strcmp(found.rule->name, "*") != 0;
  if (named || other == NULL) return found;
  struct found second = rules_find(call->config, call->device, other, nargs, args);
  /* Lines for `*` are the same for both names, so the second finds at least as much. */
  if (second.sleep == NULL) second.sleep = found.sleep;
  return second;
}

nvmlReturn_t ask(struct call *call, const char *name, const char *other, int nargs,
                 const long *args) {
  bool slept = false;
  for (;;) {
    nvmlReturn_t result = present(call);
    if (result != SUCCESS) return result;
    struct found found = find(call, name, other, nargs, args);
    bool hang = found.rule != NULL && found.rule->kind == HANG;
    if (!hang && (found.sleep == NULL || slept)) {
      call->rule = found.rule;
      break;
    }
    /* Without the state, so that a call that hangs for ever holds no memory of a replaced one. */
    double seconds = hang ? 0.01 : found.sleep->seconds;
    slept |= !hang;
    config_put(call->config);
    call->config = NULL;
    nap(seconds);
    call->config = config_get();
  }
  long arg = nargs > 0 ? args[nargs - 1] : 0;
  call->moment = (struct moment){config_now(call->config), call->device, arg};
  if (call->rule == NULL) return SUCCESS;
  if (call->rule->kind == CRASH) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (call->rule->kind == FAILURE) return call->rule->code;
  /* A GPU's values are not those of its instances: only its faults are. */
  if (call->mig != NULL) call->rule = NULL;
  return SUCCESS;
}

nvmlReturn_t leave(struct call *call, nvmlReturn_t result) {
  if (call->config != NULL) config_put(call->config);
  call->config = NULL;
  return result;
}

static const struct atom *atom(const struct call *call, int at) {
  return at < call->rule->natoms ? &call->rule->atoms[at] : NULL;
}

uint64_t whole(const struct call *call, int at) {
  const struct atom *one = atom(call, at);
  return one == NULL ? 0 : atom_whole(one, call->moment);
}

double real(const struct call *call, int at) {
  const struct atom *one = atom(call, at);
  return one == NULL ? 0 : atom_real(one, call->moment);
}

nvmlReturn_t text(const struct call *call, int at, char *out, unsigned length) {
  char all[1024];
  const struct atom *one = atom(call, at);
  if (one == NULL || one->type != TEXT) return NOT_SUPPORTED;
  atom_text(one, call->device, all, (int)sizeof all);
  if (out == NULL) return INVALID_ARGUMENT;
  if (strlen(all) + 1 > length) return INSUFFICIENT_SIZE;
  memcpy(out, all, strlen(all) + 1);
  return SUCCESS;
}
