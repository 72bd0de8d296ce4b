/* The grammar, the state it makes, and the order in which lines win. */
#define _GNU_SOURCE
#include "rules.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_TOKENS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct config *current;
static struct ruleset *profile;
static struct stat control_seen;
static bool control_present;
static double epoch_default, wall_offset;

/* ---- words ------------------------------------------------------------------------------- */

struct token {
  char *text;
  bool quoted;
};

static void *zeroed(size_t size) {
  void *memory = calloc(1, size);
  if (memory == NULL) abort();
  return memory;
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* One quoted string: \" \\ \n and \xHH, the last for names that are not UTF-8. */
static char *quoted(char **cursor) {
  char *in = *cursor + 1, *out = zeroed(strlen(in) + 1), *end = out;
  while (*in != '\0' && *in != '"') {
    if (*in == '\\' && in[1] == 'x' && hex(in[2]) >= 0 && hex(in[3]) >= 0) {
      *end++ = (char)(hex(in[2]) * 16 + hex(in[3]));
      in += 4;
    } else if (*in == '\\' && in[1] != '\0') {
      *end++ = in[1] == 'n' ? '\n' : in[1];
      in += 2;
    } else {
      *end++ = *in++;
    }
  }
  *cursor = *in == '"' ? in + 1 : in;
  return out;
}

static int words(char *line, struct token *tokens) {
  int count = 0;
  while (count < MAX_TOKENS) {
    line += strspn(line, " \t\r\n");
    if (*line == '\0' || *line == '#') break;
    if (*line == '"') {
      tokens[count].quoted = true;
      tokens[count++].text = quoted(&line);
      continue;
    }
    size_t length = strcspn(line, " \t\r\n");
    tokens[count].quoted = false;
    tokens[count++].text = strndup(line, length);
    line += length;
  }
  return count;
}

static bool is(const struct token *token, const char *word) {
  return !token->quoted && strcmp(token->text, word) == 0;
}

static bool integer(const char *text, uint64_t *out) {
  char *end;
  if (*text == '-') {
    *out = (uint64_t)strtoll(text, &end, 0);
  } else {
    *out = strtoull(text, &end, 0);
  }
  return end != text && *end == '\0';
}

static bool range(const char *text, struct range *out) {
  char *end;
  if (strcmp(text, "*") == 0) {
    out->low = 0;
    out->high = INT32_MAX;
    return true;
  }
  out->low = out->high = strtol(text, &end, 0);
  if (end != text && *end == '-') {
    const char *second = end + 1;
    out->high = strtol(second, &end, 0);
    return end != second && *end == '\0';
  }
  return end != text && *end == '\0';
}

static bool device_of(const char *text, long *out) {
  struct range one;
  if (strcmp(text, "system") == 0) {
    *out = SYSTEM;
    return true;
  }
  if (strcmp(text, "*") == 0) {
    *out = ANY_DEVICE;
    return true;
  }
  if (!range(text, &one) || one.low != one.high || one.low < 0 || one.low >= MAX_DEVICES)
    return false;
  *out = one.low;
  return true;
}

/* ---- values ------------------------------------------------------------------------------ */

static int value_type(const struct token *token) {
  /* In the order of nvmlValueType_t: double, unsigned int, long, long long, and so on. */
  static const char *const names[] = {"f64", "u32", "ul", "u64", "i64", "i32", "u16"};
  for (int i = 0; i < 7; i++)
    if (is(token, names[i])) return i;
  return -1;
}

static bool number(const char *text, struct atom *atom) {
  char *end;
  atom->type = NUMBER;
  if (integer(text, &atom->whole)) {
    atom->real = *text == '-' ? (double)(int64_t)atom->whole : (double)atom->whole;
    return true;
  }
  atom->real = strtod(text, &end);
  atom->fraction = true;
  if (!isnan(atom->real)) atom->whole = (uint64_t)(int64_t)llround(atom->real);
  return end != text && *end == '\0';
}

static bool rate(const char *text, double *out) {
  char *end;
  if (*text != '+') return false;
  *out = strtod(text + 1, &end);
  return end != text + 1 && strcmp(end, "/s") == 0;
}

/* "+$i*3": three for each device; "+$a": one for each step of the last argument. */
static bool step(const char *text, struct atom *atom) {
  char *end = (char *)text + 3;
  double factor = 1;
  if (strncmp(text, "+$i", 3) != 0 && strncmp(text, "+$a", 3) != 0) return false;
  if (*end == '*') factor = strtod(text + 4, &end);
  if (*end != '\0') return false;
  *(text[2] == 'i' ? &atom->each_device : &atom->each_arg) = factor;
  return true;
}

static bool values(struct rule *rule, const struct token *tokens, int count) {
  rule->atoms = zeroed(sizeof(struct atom) * (size_t)(count + 1));
  for (int i = 0; i < count; i++) {
    struct atom *atom = &rule->atoms[rule->natoms];
    double growth;
    if (tokens[i].quoted) {
      atom->type = TEXT;
      atom->text = strdup(tokens[i].text);
    } else if (is(&tokens[i], "$i")) {
      atom->type = INDEX;
    } else if (is(&tokens[i], "wave") && i + 3 < count) {
      atom->type = WAVE;
      atom->low = strtod(tokens[i + 1].text, NULL);
      atom->high = strtod(tokens[i + 2].text, NULL);
      atom->period = strtod(tokens[i + 3].text, NULL);
      if (!(atom->period > 0)) return false;
      i += 3;
    } else if (rule->natoms > 0 && rate(tokens[i].text, &growth)) {
      rule->atoms[rule->natoms - 1].rate = growth;
      continue;
    } else if (rule->natoms > 0 && step(tokens[i].text, &rule->atoms[rule->natoms - 1])) {
      continue;
    } else if (!number(tokens[i].text, atom)) {
      return false;
    }
    rule->natoms++;
  }
  return true;
}

static bool right_side(struct rule *rule, const struct token *tokens, int count) {
  uint64_t code;
  rule->kind = VALUE;
  rule->type = -1;
  if (count == 1 && is(&tokens[0], "none")) return values(rule, tokens, 0);
  if (count < 1) return false;
  if (is(&tokens[0], "hang")) {
    rule->kind = HANG;
  } else if (is(&tokens[0], "crash")) {
    rule->kind = CRASH;
  } else if (is(&tokens[0], "sleep") && count == 2) {
    rule->kind = SLEEP;
    rule->seconds = strtod(tokens[1].text, NULL);
  } else if (!tokens[0].quoted && tokens[0].text[0] == '!') {
    rule->kind = FAILURE;
    if (!integer(tokens[0].text + 1, &code)) return false;
    rule->code = (int)code;
  } else {
    rule->type = value_type(&tokens[0]);
    if (rule->type >= 0) return values(rule, tokens + 1, count - 1) && rule->natoms > 0;
    return values(rule, tokens, count);
  }
  return true;
}

/* Names that the driver's history gave to one and the same answer. */
static const char *canonical(const char *name) {
  if (strcmp(name, "nvmlInitWithFlags") == 0) return "nvmlInit_v2";
  return name;
}

static bool left_side(struct rule *rule, const struct token *tokens, int count) {
  char name[96];
  int at = 2;
  if (count < 2 || !device_of(tokens[0].text, &rule->device)) return false;
  snprintf(name, sizeof name, "%s", canonical(tokens[1].text));
  /* A field, a GPM metric and a sampling type are names of their own: "field#186". */
  if (is(&tokens[1], "field") || is(&tokens[1], "gpm") || is(&tokens[1], "samples")) {
    if (count < 3) return false;
    bool instance = count > 3 && is(&tokens[3], "mig");
    snprintf(name, sizeof name, "%s%s#%s", tokens[1].text, instance ? "mig" : "", tokens[2].text);
    at = instance ? 4 : 3;
    if (is(&tokens[1], "field") && count == 3) rule->nargs = 1; /* scope 0, and only that one */
  }
  rule->name = strdup(name);
  for (; at < count; at++) {
    if (rule->nargs == MAX_ARGS || !range(tokens[at].text, &rule->args[rule->nargs++]))
      return false;
  }
  return true;
}

/* ---- lines ------------------------------------------------------------------------------- */

static unsigned hash(const char *name) {
  unsigned value = 5381;
  while (*name != '\0') value = value * 33 + (unsigned char)*name++;
  return value % BUCKETS;
}

static bool rule_line(struct ruleset *set, const struct token *tokens, int count, int equals) {
  struct rule *rule = zeroed(sizeof *rule);
  bool good = left_side(rule, tokens, equals) &&
              right_side(rule, tokens + equals + 1, count - equals - 1);
  unsigned bucket = hash(rule->name == NULL ? "" : rule->name);
  rule->next = set->buckets[bucket]; /* even a bad one: it is freed with the rest */
  set->buckets[bucket] = rule;
  if (!good) rule->device = MAX_DEVICES;
  return good;
}

static bool setting(struct ruleset *set, const struct token *tokens, int count) {
  if (is(&tokens[0], "devices") && count == 3) {
    set->devices = strtol(tokens[2].text, NULL, 10);
    return set->devices >= 0 && set->devices <= MAX_DEVICES;
  }
  if (is(&tokens[0], "clock") && count == 3) {
    set->clock = strtod(tokens[2].text, NULL);
    return true;
  }
  if (is(&tokens[0], "epoch") && count == 3) {
    set->epoch = strtod(tokens[2].text, NULL);
    return true;
  }
  if (!is(&tokens[0], "gone")) return false;
  for (int i = 2; i < count; i++) {
    long device = strtol(tokens[i].text, NULL, 10);
    if (device < 0 || device >= MAX_DEVICES) return false;
    set->gone[device] = true;
  }
  return true;
}

static size_t slot(long device) { return device == ANY_DEVICE ? MAX_DEVICES : (size_t)device; }

static bool process_line(struct ruleset *set, const struct token *tokens, int count) {
  struct process one = {.gi = NO_INSTANCE, .ci = NO_INSTANCE, .type = 'C'};
  if (count < 3 || !device_of(tokens[1].text, &one.device) || one.device == SYSTEM) return false;
  set->own_processes[slot(one.device)] = true;
  if (count == 3 && is(&tokens[2], "none")) return true;
  for (int i = 2; i + 1 < count; i += 2) {
    const struct token *key = &tokens[i];
    const char *text = tokens[i + 1].text;
    uint64_t value = 0;
    if (is(key, "type")) {
      one.type = text[0];
      continue;
    }
    if (!integer(text, &value)) return false;
    one.sampled |= is(key, "sm");
    if (is(key, "pid")) one.pid = (uint32_t)value;
    else if (is(key, "memory")) one.memory = value;
    else if (is(key, "gi")) one.gi = (uint32_t)value;
    else if (is(key, "ci")) one.ci = (uint32_t)value;
    else if (is(key, "sm")) one.sm = (uint32_t)value;
    else if (is(key, "mem")) one.mem = (uint32_t)value;
    else if (is(key, "enc")) one.enc = (uint32_t)value;
    else if (is(key, "dec")) one.dec = (uint32_t)value;
    else return false;
  }
  struct process **last = &set->processes;
  while (*last != NULL) last = &(*last)->next;
  *last = zeroed(sizeof one);
  **last = one;
  return true;
}

static bool mig_numbers(struct mig *one, const struct token *tokens, int count) {
  for (int i = 4; i < count; i += 2) {
    uint64_t value = 0;
    if (i + 1 >= count) return false;
    if (is(&tokens[i], "profile") || is(&tokens[i], "uuid")) continue;
    if (is(&tokens[i], "attributes")) {
      for (int j = 0; j < 9; j++)
        if (i + 1 + j >= count || !integer(tokens[i + 1 + j].text, &one->attributes[j]))
          return false;
      i += 8;
      continue;
    }
    if (!integer(tokens[i + 1].text, &value)) return false;
    if (is(&tokens[i], "memory")) one->total = value;
    else if (is(&tokens[i], "reserved")) one->reserved = value;
    else if (is(&tokens[i], "free")) one->free = value;
    else if (is(&tokens[i], "used")) one->used = value;
    else if (is(&tokens[i], "index")) one->index = (uint32_t)value;
    else return false;
  }
  return true;
}

static bool mig_line(struct ruleset *set, const struct token *tokens, int count) {
  struct mig one = {0}, **last = &set->migs;
  uint64_t gi, ci;
  if (count < 3 || !device_of(tokens[1].text, &one.device) || one.device == SYSTEM) return false;
  set->own_migs[slot(one.device)] = true;
  if (count == 3 && is(&tokens[2], "none")) return true;
  if (count < 4 || !integer(tokens[2].text, &gi) || !integer(tokens[3].text, &ci)) return false;
  one.gi = (uint32_t)gi;
  one.ci = (uint32_t)ci;
  for (; *last != NULL; last = &(*last)->next) one.index += (*last)->device == one.device;
  if (!mig_numbers(&one, tokens, count)) return false;
  for (int i = 4; i + 1 < count; i++) {
    if (is(&tokens[i], "profile")) one.profile = strdup(tokens[i + 1].text);
    if (is(&tokens[i], "uuid")) one.uuid = strdup(tokens[i + 1].text);
  }
  *last = zeroed(sizeof one);
  **last = one;
  return true;
}

static bool event_line(struct ruleset *set, const struct token *tokens, int count) {
  struct event one = {.gi = NO_INSTANCE, .ci = NO_INSTANCE}, **last = &set->events;
  uint64_t instance;
  if (count < 5 || !integer(tokens[1].text, &one.serial) ||
      !device_of(tokens[2].text, &one.device) || one.device < 0 ||
      !integer(tokens[3].text, &one.type) || !integer(tokens[4].text, &one.data))
    return false;
  for (int i = 5; i < count; i++) {
    if (is(&tokens[i], "live")) {
      one.live = true;
    } else if (i + 1 < count && is(&tokens[i], "gi") && integer(tokens[i + 1].text, &instance)) {
      one.gi = (uint32_t)instance;
      i++;
    } else if (i + 1 < count && is(&tokens[i], "ci") && integer(tokens[i + 1].text, &instance)) {
      one.ci = (uint32_t)instance;
      i++;
    } else {
      return false;
    }
  }
  while (*last != NULL) last = &(*last)->next;
  *last = zeroed(sizeof one);
  **last = one;
  return true;
}

static bool line_read(struct ruleset *set, char *text) {
  struct token tokens[MAX_TOKENS];
  int count = words(text, tokens), equals = 0;
  bool good = true;
  while (equals < count && !is(&tokens[equals], "=")) equals++;
  if (count == 0) {
    good = true;
  } else if (equals == 1) {
    good = setting(set, tokens, count);
  } else if (equals < count) {
    good = rule_line(set, tokens, count, equals);
  } else if (is(&tokens[0], "process")) {
    good = process_line(set, tokens, count);
  } else if (is(&tokens[0], "mig")) {
    good = mig_line(set, tokens, count);
  } else if (is(&tokens[0], "event")) {
    good = event_line(set, tokens, count);
  } else {
    good = false;
  }
  for (int i = 0; i < count; i++) free(tokens[i].text);
  return good;
}

/* A line that cannot be read is told and left out; the rest of the file stands. */
static struct ruleset *file_read(const char *path) {
  struct ruleset *set = zeroed(sizeof *set);
  FILE *file = path == NULL ? NULL : fopen(path, "r");
  char *text = NULL;
  size_t size = 0;
  set->devices = -1;
  set->clock = set->epoch = NAN;
  for (int number = 1; file != NULL && getline(&text, &size, file) >= 0; number++)
    if (!line_read(set, text))
      fprintf(stderr, "fake_nvml: %s:%d: cannot be read\n", path, number);
  free(text);
  if (file != NULL) fclose(file);
  return set;
}

static void rules_free(struct rule *rule) {
  while (rule != NULL) {
    struct rule *next = rule->next;
    for (int i = 0; i < rule->natoms; i++) free(rule->atoms[i].text);
    free(rule->atoms);
    free(rule->name);
    free(rule);
    rule = next;
  }
}

static void set_free(struct ruleset *set) {
  if (set == NULL) return;
  for (int i = 0; i < BUCKETS; i++) rules_free(set->buckets[i]);
  for (struct process *one = set->processes, *next; one != NULL; one = next) {
    next = one->next;
    free(one);
  }
  for (struct mig *one = set->migs, *next; one != NULL; one = next) {
    next = one->next;
    free(one->profile);
    free(one->uuid);
    free(one);
  }
  for (struct event *one = set->events, *next; one != NULL; one = next) {
    next = one->next;
    free(one);
  }
  free(set);
}

/* ---- the state --------------------------------------------------------------------------- */

static double seconds_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct config *config_make(struct ruleset *control) {
  struct config *config = zeroed(sizeof *config);
  long devices = profile->devices < 0 ? 0 : profile->devices;
  config->references = 1;
  config->profile = profile;
  config->control = control;
  if (control != NULL && control->devices >= 0) devices = control->devices;
  for (int i = 0; i < devices; i++)
    if (!profile->gone[i] && (control == NULL || !control->gone[i]))
      config->present[config->npresent++] = i;
  return config;
}

static bool control_changed(const char *path, struct stat *now) {
  bool present = path != NULL && stat(path, now) == 0;
  if (!present) memset(now, 0, sizeof *now);
  bool changed = present != control_present || now->st_ino != control_seen.st_ino ||
                 now->st_size != control_seen.st_size ||
                 now->st_mtim.tv_sec != control_seen.st_mtim.tv_sec ||
                 now->st_mtim.tv_nsec != control_seen.st_mtim.tv_nsec;
  control_present = present;
  return changed;
}

static void config_drop(struct config *config) {
  if (config == NULL || --config->references > 0) return;
  set_free(config->control);
  free(config);
}

const struct config *config_get(void) {
  static const char *path;
  struct stat now;
  pthread_mutex_lock(&lock);
  if (profile == NULL) {
    const char *epoch = getenv("FAKE_NVML_EPOCH");
    double started = seconds_of(CLOCK_MONOTONIC);
    path = getenv("FAKE_NVML_CONTROL");
    profile = file_read(getenv("FAKE_NVML_PROFILE"));
    epoch_default = epoch == NULL ? started : strtod(epoch, NULL);
    wall_offset = seconds_of(CLOCK_REALTIME) - started;
  }
  if (control_changed(path, &now) || current == NULL) {
    control_seen = now;
    config_drop(current);
    current = config_make(control_present ? file_read(path) : NULL);
  }
  current->references++;
  struct config *config = current;
  pthread_mutex_unlock(&lock);
  return config;
}

void config_put(const struct config *config) {
  pthread_mutex_lock(&lock);
  config_drop((struct config *)config);
  pthread_mutex_unlock(&lock);
}

static double epoch_of(const struct config *config) {
  if (config->control != NULL && !isnan(config->control->epoch)) return config->control->epoch;
  return isnan(config->profile->epoch) ? epoch_default : config->profile->epoch;
}

/* Seconds since the epoch: what growth and waves are functions of. A `clock` line freezes it. */
double config_now(const struct config *config) {
  if (config->control != NULL && !isnan(config->control->clock)) return config->control->clock;
  if (!isnan(config->profile->clock)) return config->profile->clock;
  return seconds_of(CLOCK_MONOTONIC) - epoch_of(config);
}

/* The wall clock, in seconds, that belongs to a moment of config_now. */
double config_wall(const struct config *config, double now) {
  return now + epoch_of(config) + wall_offset;
}

bool config_has(const struct config *config, long device) {
  for (int i = 0; i < config->npresent; i++)
    if (config->present[i] == device) return true;
  return false;
}

/* ---- which line wins --------------------------------------------------------------------- */

static int match(const struct rule *rule, int nargs, const long *args) {
  int score = 0;
  if (rule->nargs > nargs) return -1;
  for (int i = 0; i < rule->nargs; i++) {
    if (args[i] < rule->args[i].low || args[i] > rule->args[i].high) return -1;
    if (rule->args[i].low == rule->args[i].high) score += 8;
    else score += rule->args[i].high == INT32_MAX ? 1 : 4;
  }
  return score;
}

struct best {
  const struct rule *rule;
  int score;
};

static bool about(const struct rule *rule, long device) {
  if (rule->device == device) return true;
  return rule->device == ANY_DEVICE && device != SYSTEM;
}

/* Control over profile, a device over all, a name over `*`, arguments over none, later over
 * earlier: chains hold the newest line first, so that a tie keeps it. */
static void search(const struct ruleset *set, int layer, long device, const char *name, int nargs,
                   const long *args, struct best *answer, struct best *sleep) {
  if (set == NULL) return;
  /* `*` is every call, not every field of one: else a delay would count once for each field. */
  int passes = strchr(name, '#') == NULL ? 2 : 1;
  for (int pass = 0; pass < passes; pass++) {
    const char *wanted = pass == 0 ? name : "*";
    for (const struct rule *rule = set->buckets[hash(wanted)]; rule != NULL; rule = rule->next) {
      if (!about(rule, device) || rule->name == NULL || strcmp(rule->name, wanted) != 0) continue;
      int score = match(rule, nargs, args);
      if (score < 0) continue;
      score += layer + (rule->device == device ? 10000 : 0) + (pass == 0 ? 1000 : 0);
      struct best *best = rule->kind == SLEEP ? sleep : answer;
      if (best->rule == NULL || score > best->score) *best = (struct best){rule, score};
    }
  }
}

struct found rules_find(const struct config *config, long device, const char *name, int nargs,
                        const long *args) {
  struct best answer = {0}, sleep = {0};
  search(config->profile, 0, device, name, nargs, args, &answer, &sleep);
  search(config->control, 100000, device, name, nargs, args, &answer, &sleep);
  return (struct found){answer.rule, sleep.rule};
}

static const struct rule *value_in(const struct ruleset *set, long device, const char *name) {
  const struct rule *general = NULL;
  if (set == NULL) return NULL;
  for (const struct rule *rule = set->buckets[hash(name)]; rule != NULL; rule = rule->next) {
    if (rule->kind != VALUE || !about(rule, device) || strcmp(rule->name, name) != 0) continue;
    if (rule->device == device) return rule;
    if (general == NULL) general = rule;
  }
  return general;
}

/* What a device is, whatever faults are scripted on the call that tells it. */
const struct rule *rules_value(const struct config *config, long device, const char *name) {
  const struct rule *rule = value_in(config->control, device, name);
  return rule != NULL ? rule : value_in(config->profile, device, name);
}

/* A control file that speaks of a device's processes, or instances, speaks of all of them. */
static bool replaced(const bool *own, long device) { return own[device] || own[MAX_DEVICES]; }

static bool either(long rule, long device) { return rule == device || rule == ANY_DEVICE; }

const struct process *processes_of(const struct config *config, const struct process *after,
                                   long device) {
  const struct ruleset *control = config->control;
  bool own = control != NULL && replaced(control->own_processes, device);
  const struct process *one =
      after != NULL ? after->next : (own ? control : config->profile)->processes;
  while (one != NULL && !either(one->device, device)) one = one->next;
  return one;
}

const struct mig *migs_of(const struct config *config, const struct mig *after, long device) {
  const struct ruleset *control = config->control;
  bool own = control != NULL && replaced(control->own_migs, device);
  const struct mig *one = after != NULL ? after->next : (own ? control : config->profile)->migs;
  while (one != NULL && !either(one->device, device)) one = one->next;
  return one;
}

/* The profile's events, then the control file's. */
const struct event *events_of(const struct config *config, const struct event *after) {
  const struct event *control = config->control == NULL ? NULL : config->control->events;
  if (after == NULL) return config->profile->events != NULL ? config->profile->events : control;
  if (after->next != NULL) return after->next;
  for (const struct event *one = config->profile->events; one != NULL; one = one->next)
    if (one == after) return control;
  return NULL;
}

/* ---- values at a moment ------------------------------------------------------------------ */

/* High in the first half of each period, low in the second. */
static double wave_integral(const struct atom *atom, double at) {
  double half = atom->period / 2, periods = floor(at / atom->period);
  double rest = at - periods * atom->period;
  double part = rest < half ? rest * atom->high : half * atom->high + (rest - half) * atom->low;
  return periods * half * (atom->low + atom->high) + part;
}

static double steps(const struct atom *atom, struct moment moment) {
  return atom->each_device * (double)moment.device + atom->each_arg * (double)moment.arg;
}

double atom_average(const struct atom *atom, double from, struct moment to) {
  if (atom->type != WAVE) return atom->real + steps(atom, to);
  double sum = wave_integral(atom, to.now) - wave_integral(atom, from);
  return sum / (to.now - from) + steps(atom, to);
}

double atom_real(const struct atom *atom, struct moment moment) {
  if (atom->type == WAVE) {
    double rest = moment.now - floor(moment.now / atom->period) * atom->period;
    return (rest < atom->period / 2 ? atom->high : atom->low) + steps(atom, moment);
  }
  return atom->real + atom->rate * moment.now + steps(atom, moment);
}

uint64_t atom_whole(const struct atom *atom, struct moment moment) {
  if (atom->type == INDEX) return (uint64_t)moment.device;
  if (atom->type == WAVE) return (uint64_t)(int64_t)llround(atom_real(atom, moment));
  double more = floor(atom->rate * moment.now) + steps(atom, moment);
  return atom->whole + (uint64_t)(int64_t)more;
}

/* $i is the device's number, $x the same in two hexadecimal digits. */
void atom_text(const struct atom *atom, long device, char *out, int size) {
  int used = 0;
  for (const char *in = atom->text; *in != '\0' && used < size - 1; in++) {
    if (in[0] == '$' && (in[1] == 'i' || in[1] == 'x')) {
      used += snprintf(out + used, (size_t)(size - used), in[1] == 'i' ? "%ld" : "%02lx", device);
      in++;
    } else {
      out[used++] = *in;
    }
  }
  out[used < size ? used : size - 1] = '\0';
}
