/* A library with the interface of libdcgm, for tests. It measures nothing: what GPUs there are, what
 * they answer and what goes wrong stands in the text file that FAKE_DCGM names, read at each call:
 *
 *   gpu ID INDEX UUID                  a GPU: DCGM's number, NVML's index, its identity
 *   instance ID GPU NUMBER             a GPU instance: its number in DCGM, its GPU, its own number
 *   value KIND ID FIELD TYPE VALUE [MICROS]   KIND is gpu or instance; TYPE i, d or s
 *   status KIND ID FIELD CODE          a field that has no value but a status
 *   time MICROS | time now             when values without a time of their own were measured
 *   listen ADDRESS                     where the host engine is; elsewhere nobody answers
 *   fail FUNCTION CODE                 a function that always fails
 *   refuse KIND ID FIELD CODE          a field that cannot be watched there; FIELD 0: all profiling
 *   apart FIELD FIELD CODE             two fields that cannot be watched together
 *   lose KIND ID CODE                  asking for values fails if this is among those asked for
 *   epoch NUMBER                       another number is a restarted host engine
 *   version NUMBER                     the version that values say they have
 *   hang FUNCTION                      a function that does not return while this stands here
 *   crash FUNCTION                     a function that takes the process along
 *   log PATH                           where the names of the functions called are written
 *
 * Layouts and rules restate facts of DCGM's public headers (dcgm_structs.h, dcgm_agent.h). */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    OK = 0,
    BADPARAM = -1,
    NOT_SUPPORTED = -6,
    UNINITIALIZED = -10,
    VER_MISMATCH = -12,
    NO_DATA = -14,
    NOT_WATCHED = -16,
    CONNECTION_NOT_VALID = -21,
    MAX_LIMIT = -24,
    DUPLICATE_KEY = -26,
    ENTITY_GPU = 1,
    ENTITY_INSTANCE = 4,
    EMBEDDED = 0x7fffffff,
    LIVE = 1,
    MAX_GROUPS = 64,
    MAX_MEMBERS = 128,
    MAX_WATCHES = 8192,
    NAME = 256,
};

typedef struct {
    int kind;
    unsigned number;
} entity;

typedef struct {
    unsigned version, persist, timeout_ms, is_socket;
} connect_params;

typedef struct {
    unsigned version;
    int mode;
    uintptr_t handle;
    const char *log_file;
    int severity;
    unsigned deny_count;
    unsigned deny[10];
} embedded_params;

typedef struct {
    entity self, parent;
    char uuid[128];
    unsigned index, instance, compute_instance, profile, slices;
} hierarchy_entry;

typedef struct {
    unsigned version, count;
    hierarchy_entry entries[32 * 14];
} hierarchy;

typedef struct {
    unsigned version;
    int kind;
    unsigned number;
    unsigned short field, type;
    int status;
    unsigned unused;
    int64_t micros;
    union {
        int64_t i64;
        double dbl;
        char str[NAME];
        char blob[4096];
    } value;
} field_value;

_Static_assert(sizeof(connect_params) == 0x10, "dcgmConnectV2Params_v2");
_Static_assert(sizeof(embedded_params) == 0x48, "dcgmStartEmbeddedV2Params_v1");
_Static_assert(sizeof(field_value) == 0x1020, "dcgmFieldValue_v2");
_Static_assert(sizeof(hierarchy_entry) == 164, "dcgmMigHierarchyInfo_v2");

#define VERSION(type, number) ((unsigned)sizeof(type) | (unsigned)(number) << 24)

typedef struct {
    int used;
    char name[NAME];
    int count;
    entity entities[MAX_MEMBERS];
    unsigned short fields[MAX_MEMBERS];
} group;

typedef struct {
    entity who;
    unsigned short field;
    uintptr_t group, fields;
} watch;

static int initialized;
static uintptr_t connected_to;
static group groups[MAX_GROUPS], field_groups[MAX_GROUPS];
static watch watches[MAX_WATCHES];
static int watch_count;

/* ---------------------------------------------------------------- the control file */

typedef int visit(char *line, void *context);

/* Call `look` with each line until it returns something else than 0; return that. */
static int each_line(visit *look, void *context)
{
    const char *path = getenv("FAKE_DCGM");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    int result = 0;

    if (!file)
        return 0;
    while (!result && fgets(line, sizeof line, file))
        result = look(line, context);
    fclose(file);
    return result;
}

typedef struct {
    const char *word, *function;
    int code;
} about_function;

static int look_function(char *line, void *context)
{
    about_function *about = context;
    char word[32], function[64];
    int code = 1, count = sscanf(line, "%31s %63s %d", word, function, &code);

    if (count < 2 || strcmp(word, about->word) || strcmp(function, about->function))
        return 0;
    about->code = code;
    return 1;
}

static int stands(const char *word, const char *function, int *code)
{
    about_function about = {word, function, 0};
    int found = each_line(look_function, &about);

    if (code)
        *code = about.code;
    return found;
}

static int look_log(char *line, void *context)
{
    char path[512];
    FILE *file;

    if (sscanf(line, "log %511s", path) != 1)
        return 0;
    file = fopen(path, "a");
    if (file) {
        fprintf(file, "%s\n", (const char *)context);
        fclose(file);
    }
    return 1;
}

static int look_number(char *line, void *context)
{
    const char **word = context;
    char found[32];
    int number;

    return sscanf(line, "%31s %i", found, &number) == 2 && !strcmp(found, *word) ? number : 0;
}

static int number_of(const char *word)
{
    return each_line(look_number, &word);
}

static int kind_of(const char *word)
{
    return strcmp(word, "gpu") ? ENTITY_INSTANCE : ENTITY_GPU;
}

/* What every function does first. Returns a code that it is to return, or OK. */
static int enter(const char *function)
{
    int code;

    each_line(look_log, (void *)function);
    while (stands("hang", function, NULL))
        usleep(10000);
    if (stands("crash", function, NULL))
        abort();
    return stands("fail", function, &code) ? code : OK;
}

static int enter_connected(const char *function, uintptr_t handle)
{
    int code = enter(function);

    if (code)
        return code;
    if (!initialized)
        return UNINITIALIZED;
    if (handle != connected_to)
        return CONNECTION_NOT_VALID;
    if (handle != EMBEDDED && handle != (uintptr_t)(1000 + number_of("epoch")))
        return CONNECTION_NOT_VALID;
    return OK;
}

/* ---------------------------------------------------------------- connecting */

int dcgmInit(void)
{
    int code = enter("dcgmInit");

    if (!code)
        initialized++;
    return code;
}

int dcgmShutdown(void)
{
    int code = enter("dcgmShutdown");

    if (!initialized)
        return UNINITIALIZED;
    initialized--;
    return code;
}

static void forget(void)
{
    memset(groups, 0, sizeof groups);
    memset(field_groups, 0, sizeof field_groups);
    watch_count = 0;
}

static int look_elsewhere(char *line, void *context)
{
    char address[256];

    return sscanf(line, "listen %255s", address) == 1 && strcmp(address, (const char *)context);
}

int dcgmConnect_v2(const char *address, connect_params *params, uintptr_t *handle)
{
    char where[300];
    int code = enter("dcgmConnect_v2");

    if (code)
        return code;
    if (!initialized)
        return UNINITIALIZED;
    if (!address || !params || !handle)
        return BADPARAM;
    if (params->version != VERSION(connect_params, 2))
        return VER_MISMATCH;
    snprintf(where, sizeof where, "%s%s", params->is_socket ? "unix:" : "", address);
    if (each_line(look_elsewhere, where))
        return CONNECTION_NOT_VALID;
    forget();
    connected_to = *handle = (uintptr_t)(1000 + number_of("epoch"));
    return OK;
}

int dcgmDisconnect(uintptr_t handle)
{
    int code = enter_connected("dcgmDisconnect", handle);

    connected_to = 0;
    forget();
    return code;
}

int dcgmStartEmbedded_v2(embedded_params *params)
{
    int code = enter("dcgmStartEmbedded_v2");

    if (code)
        return code;
    if (!initialized)
        return UNINITIALIZED;
    if (params->version != VERSION(embedded_params, 1))
        return VER_MISMATCH;
    if (params->mode != 1 && params->mode != 2)
        return BADPARAM;
    forget();
    connected_to = params->handle = EMBEDDED;
    return OK;
}

int dcgmStopEmbedded(uintptr_t handle)
{
    int code = enter_connected("dcgmStopEmbedded", handle);

    connected_to = 0;
    forget();
    return code;
}

/* ---------------------------------------------------------------- what there is */

typedef struct {
    unsigned *numbers;
    int count;
} gpu_list;

static int look_gpu(char *line, void *context)
{
    gpu_list *list = context;
    unsigned number;

    if (sscanf(line, "gpu %u", &number) == 1 && list->count < 32)
        list->numbers[list->count++] = number;
    return 0;
}

int dcgmGetAllSupportedDevices(uintptr_t handle, unsigned numbers[32], int *count)
{
    gpu_list list = {numbers, 0};
    int code = enter_connected("dcgmGetAllSupportedDevices", handle);

    if (code)
        return code;
    each_line(look_gpu, &list);
    *count = list.count;
    return OK;
}

static int look_instance(char *line, void *context)
{
    hierarchy *all = context;
    hierarchy_entry *entry = &all->entries[all->count];
    unsigned number, gpu, instance;

    if (sscanf(line, "instance %u %u %u", &number, &gpu, &instance) != 3)
        return 0;
    memset(entry, 0, sizeof *entry);
    entry->self.kind = ENTITY_INSTANCE;
    entry->self.number = number;
    entry->parent.kind = ENTITY_GPU;
    entry->parent.number = gpu;
    entry->instance = instance;
    entry->compute_instance = 0xffffffffu;
    all->count++;
    return 0;
}

int dcgmGetGpuInstanceHierarchy(uintptr_t handle, hierarchy *all)
{
    int code = enter_connected("dcgmGetGpuInstanceHierarchy", handle);

    if (code)
        return code;
    if (all->version != VERSION(hierarchy, 2))
        return VER_MISMATCH;
    all->count = 0;
    each_line(look_instance, all);
    return all->count ? OK : NOT_SUPPORTED;
}

/* ---------------------------------------------------------------- groups */

static group *found(group *table, uintptr_t number)
{
    return number >= 1 && number <= MAX_GROUPS && table[number - 1].used ? &table[number - 1] : NULL;
}

static int made(group *table, const char *name, uintptr_t *number)
{
    for (int i = 0; i < MAX_GROUPS; i++) {
        if (table[i].used)
            continue;
        memset(&table[i], 0, sizeof table[i]);
        table[i].used = 1;
        snprintf(table[i].name, sizeof table[i].name, "%s", name);
        *number = (uintptr_t)(i + 1);
        return OK;
    }
    return MAX_LIMIT;
}

int dcgmGroupCreate(uintptr_t handle, int type, const char *name, uintptr_t *number)
{
    int code = enter_connected("dcgmGroupCreate", handle);

    if (code)
        return code;
    return type == 1 && name && number ? made(groups, name, number) : BADPARAM;
}

int dcgmGroupAddEntity(uintptr_t handle, uintptr_t number, int kind, unsigned member)
{
    group *here = found(groups, number);
    int code = enter_connected("dcgmGroupAddEntity", handle);

    if (code)
        return code;
    if (!here || here->count == MAX_MEMBERS)
        return BADPARAM;
    here->entities[here->count].kind = kind;
    here->entities[here->count++].number = member;
    return OK;
}

int dcgmGroupDestroy(uintptr_t handle, uintptr_t number)
{
    group *here = found(groups, number);
    int code = enter_connected("dcgmGroupDestroy", handle);

    if (code)
        return code;
    if (!here)
        return BADPARAM;
    here->used = 0;
    return OK;
}

int dcgmFieldGroupCreate(
    uintptr_t handle, int count, const unsigned short *fields, const char *name, uintptr_t *number)
{
    int code = enter_connected("dcgmFieldGroupCreate", handle);

    if (code)
        return code;
    if (count < 1 || count > MAX_MEMBERS || !fields || !name || !number)
        return BADPARAM;
    for (int i = 0; i < MAX_GROUPS; i++)
        if (field_groups[i].used && !strcmp(field_groups[i].name, name))
            return DUPLICATE_KEY;
    code = made(field_groups, name, number);
    if (code)
        return code;
    field_groups[*number - 1].count = count;
    memcpy(field_groups[*number - 1].fields, fields, (size_t)count * sizeof *fields);
    return OK;
}

int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t number)
{
    group *here = found(field_groups, number);
    int code = enter_connected("dcgmFieldGroupDestroy", handle);

    if (code)
        return code;
    if (!here)
        return BADPARAM;
    here->used = 0;
    return OK;
}

/* ---------------------------------------------------------------- watching */

typedef struct {
    const group *who, *what;
} pair;

static int has_field(const group *what, unsigned field)
{
    for (int i = 0; i < what->count; i++)
        if (what->fields[i] == field || (!field && what->fields[i] / 100 == 10))
            return 1;
    return 0;
}

static int has_entity(const entity *list, int count, const char *kind, unsigned number)
{
    for (int i = 0; i < count; i++)
        if (list[i].kind == kind_of(kind) && list[i].number == number)
            return 1;
    return 0;
}

static int look_refusal(char *line, void *context)
{
    const pair *asked = context;
    char kind[16];
    unsigned number, field, other;
    int code;

    if (sscanf(line, "refuse %15s %u %u %d", kind, &number, &field, &code) == 4
        && has_entity(asked->who->entities, asked->who->count, kind, number)
        && has_field(asked->what, field))
        return code;
    if (sscanf(line, "apart %u %u %d", &field, &other, &code) == 3 && has_field(asked->what, field)
        && has_field(asked->what, other))
        return code;
    return 0;
}

int dcgmWatchFields(
    uintptr_t handle, uintptr_t who, uintptr_t what, long long micros, double keep, int samples)
{
    pair asked = {found(groups, who), found(field_groups, what)};
    int code = enter_connected("dcgmWatchFields", handle);

    if (code)
        return code;
    if (!asked.who || !asked.what || micros < 1 || keep <= 0 || samples < 0)
        return BADPARAM;
    code = each_line(look_refusal, &asked);
    if (code)
        return code;
    for (int i = 0; i < asked.who->count; i++)
        for (int k = 0; k < asked.what->count && watch_count < MAX_WATCHES; k++) {
            watches[watch_count].who = asked.who->entities[i];
            watches[watch_count].field = asked.what->fields[k];
            watches[watch_count].group = who;
            watches[watch_count++].fields = what;
        }
    return OK;
}

int dcgmUnwatchFields(uintptr_t handle, uintptr_t who, uintptr_t what)
{
    int kept = 0, code = enter_connected("dcgmUnwatchFields", handle);

    if (code)
        return code;
    if (!found(groups, who) || !found(field_groups, what))
        return BADPARAM;
    for (int i = 0; i < watch_count; i++)
        if (watches[i].group != who || watches[i].fields != what)
            watches[kept++] = watches[i];
    watch_count = kept;
    return OK;
}

int dcgmUpdateAllFields(uintptr_t handle, int wait)
{
    int code = enter_connected("dcgmUpdateAllFields", handle);

    return code ? code : wait == 1 ? OK : BADPARAM;
}

/* ---------------------------------------------------------------- values */

static int look_time(char *line, void *context)
{
    int64_t *micros = context;
    long long number;
    struct timeval now;

    if (sscanf(line, "time %lld", &number) == 1) {
        *micros = number;
        return 1;
    }
    if (strncmp(line, "time now", 8))
        return 0;
    gettimeofday(&now, NULL);
    *micros = (int64_t)now.tv_sec * 1000000 + now.tv_usec;
    return 1;
}

static int look_value(char *line, void *context)
{
    field_value *answer = context;
    char kind[16], type, text[NAME];
    unsigned number, field;
    long long micros;
    int code, count;

    if (sscanf(line, "gpu %u %d %255s", &number, &code, text) == 3 && answer->kind == ENTITY_GPU
        && answer->number == number && (answer->field == 52 || answer->field == 54)) {
        answer->status = OK;
        answer->type = answer->field == 52 ? 'i' : 's';
        if (answer->field == 52)
            answer->value.i64 = code;
        else
            snprintf(answer->value.str, NAME, "%s", text);
        return 0; /* a line of its own may say otherwise */
    }
    if (sscanf(line, "status %15s %u %u %d", kind, &number, &field, &code) == 4
        && answer->kind == kind_of(kind) && answer->number == number && answer->field == field) {
        answer->status = code;
        answer->type = 'i';
        answer->value.i64 = 0x7ffffffffffffff2LL;
        return 1;
    }
    count = sscanf(line, "value %15s %u %u %c %255s %lld", kind, &number, &field, &type, text,
                   &micros);
    if (count < 5 || answer->kind != kind_of(kind) || answer->number != number
        || answer->field != field)
        return 0;
    answer->status = OK;
    answer->type = (unsigned short)type;
    if (count == 6)
        answer->micros = micros;
    if (type == 'i')
        answer->value.i64 = strtoll(text, NULL, 0);
    else if (type == 'd')
        answer->value.dbl = strtod(text, NULL);
    else
        snprintf(answer->value.str, NAME, "%s", text);
    return 1;
}

static int is_watched(const field_value *answer)
{
    for (int i = 0; i < watch_count; i++)
        if (watches[i].who.kind == answer->kind && watches[i].who.number == answer->number
            && watches[i].field == answer->field)
            return 1;
    return 0;
}

typedef struct {
    const entity *entities;
    int count;
} asked_for;

static int look_loss(char *line, void *context)
{
    const asked_for *asked = context;
    char kind[16];
    unsigned number;
    int code;

    return sscanf(line, "lose %15s %u %d", kind, &number, &code) == 3
                   && has_entity(asked->entities, asked->count, kind, number)
               ? code
               : 0;
}

int dcgmEntitiesGetLatestValues(
    uintptr_t handle, entity *entities, unsigned entity_count, unsigned short *fields,
    unsigned field_count, unsigned flags, field_value *values)
{
    asked_for asked = {entities, (int)entity_count};
    int code = enter_connected("dcgmEntitiesGetLatestValues", handle);
    unsigned version = (unsigned)number_of("version");

    if (code)
        return code;
    if (!entity_count || !field_count || field_count > MAX_MEMBERS || !values)
        return BADPARAM;
    code = each_line(look_loss, &asked);
    if (code)
        return code;
    /* The last field first: callers may not rely on any order. */
    for (unsigned i = 0; i < entity_count; i++)
        for (unsigned k = field_count; k-- > 0;) {
            field_value *answer = values++;
            memset(answer, 0, sizeof *answer);
            answer->version = version ? version : VERSION(field_value, 2);
            answer->kind = entities[i].kind;
            answer->number = entities[i].number;
            answer->field = fields[k];
            answer->status = NO_DATA;
            each_line(look_time, &answer->micros);
            if (flags & LIVE || is_watched(answer))
                each_line(look_value, answer);
            else
                answer->status = NOT_WATCHED;
        }
    return OK;
}
