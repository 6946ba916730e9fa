/* Makes each sync of a file take SYNC_MICROS microseconds longer, in programs that load this library by LD_PRELOAD. The
   gain of group commits depends on the time of a sync, so a ratio of durable creates says little without it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowed(const char *name, int file) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = sync(file);
    const char *value = getenv("SYNC_MICROS");
    long micros = value ? atol(value) : 0;
    struct timespec time = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&time, NULL);
    return result;
}

int fsync(int file) { return slowed("fsync", file); }

int fdatasync(int file) { return slowed("fdatasync", file); }
