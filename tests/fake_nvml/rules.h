/* What the fake driver library answers, read from text.
 *
 * A profile says what a machine is, a control file changes it while a process runs. Both are the
 * same grammar, described in SOURCES.md. A `config` is one immutable state of both: a call takes
 * one, asks it, and gives it back, so that a hung call holds no lock.
 */
#ifndef FAKE_NVML_RULES_H
#define FAKE_NVML_RULES_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_DEVICES 64
#define MAX_ARGS 4
#define ANY_DEVICE (-1L)
#define SYSTEM (-2L)
#define NO_INSTANCE 0xFFFFFFFFu

enum kind { VALUE, FAILURE, HANG, CRASH, SLEEP };
enum atom_type { NUMBER, TEXT, WAVE, INDEX };

struct atom {
  enum atom_type type;
  uint64_t whole; /* the number as the driver's integer, two's complement */
  double real;    /* the same number as a double */
  bool fraction;  /* written with a point or an exponent, or nan */
  double rate;    /* growth for each second since the epoch */
  double each_device, each_arg; /* added once for each step of the device or the last argument */
  double low, high, period;
  char *text;
};

struct range {
  long low, high;
};

struct rule {
  struct rule *next;
  long device;
  char *name;
  int nargs;
  struct range args[MAX_ARGS];
  enum kind kind;
  int code;       /* of a FAILURE */
  double seconds; /* of a SLEEP */
  int type;       /* the value type of a field or a sample; -1 where none is written */
  int natoms;
  struct atom *atoms;
};

struct process {
  struct process *next;
  long device;
  uint32_t pid, gi, ci;
  uint64_t memory;
  char type;
  bool sampled; /* has shares, so that nvmlDeviceGetProcessUtilization tells of it */
  uint32_t sm, mem, enc, dec;
};

struct mig {
  struct mig *next;
  long device;
  uint32_t gi, ci, index;
  char *profile, *uuid;
  uint64_t total, reserved, free, used;
  uint64_t attributes[9];
};

struct event {
  struct event *next;
  uint64_t serial, type, data;
  long device;
  uint32_t gi, ci;
  bool live;
};

#define BUCKETS 256

struct ruleset {
  struct rule *buckets[BUCKETS];
  struct process *processes;
  struct mig *migs;
  struct event *events;
  bool own_processes[MAX_DEVICES + 1], own_migs[MAX_DEVICES + 1]; /* the last: every device */
  long devices; /* -1: not said */
  bool gone[MAX_DEVICES];
  double clock, epoch; /* NaN: not said */
};

struct config {
  int references;
  struct ruleset *profile, *control; /* control may be NULL */
  int npresent;
  int present[MAX_DEVICES]; /* index as the driver counts now -> the device's number in the profile */
};

struct found {
  const struct rule *rule;  /* what answers, or NULL */
  const struct rule *sleep; /* what delays the answer, or NULL */
};

const struct config *config_get(void);
void config_put(const struct config *config);
double config_now(const struct config *config);
double config_wall(const struct config *config, double now);
bool config_has(const struct config *config, long device);

struct found rules_find(const struct config *config, long device, const char *name, int nargs,
                        const long *args);
const struct rule *rules_value(const struct config *config, long device, const char *name);
const struct process *processes_of(const struct config *config, const struct process *after,
                                   long device);
const struct mig *migs_of(const struct config *config, const struct mig *after, long device);
const struct event *events_of(const struct config *config, const struct event *after);

/* What a value is asked for. */
struct moment {
  double now;
  long device, arg; /* arg: the last argument of the call */
};

uint64_t atom_whole(const struct atom *atom, struct moment moment);
double atom_real(const struct atom *atom, struct moment moment);
double atom_average(const struct atom *atom, double from, struct moment to);
void atom_text(const struct atom *atom, long device, char *out, int size);

#endif
