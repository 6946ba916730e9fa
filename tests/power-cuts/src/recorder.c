/*
 * Records the operations of a program on the files of one directory, in the order of execution, and makes a chosen
 * sync fail. It is preloaded by LD_PRELOAD and does not depend on the program.
 *
 * As on Linux, the failure is reported to each descriptor of the file that was open at that time, by its next sync, and
 * what was not synced before is lost. The next syncs of the others write what was written since then, although they
 * report the failure.
 *
 * RECORD_DIR    the directory, absolute and without symbolic links
 * RECORD_TRACE  the file that records are appended to
 * RECORD_FAIL   the number of the sync that fails with EIO, counted from 1; without it, none fails
 *
 * A record is: operation (1 byte), inode, offset and length (8 bytes each, native order), length of the path
 * (4 bytes), the path relative to the directory, and data: the bytes of a write, the second path of a rename or link.
 *
 * A seccomp filter traps the system calls that change files, so that calls that bypass the C library's functions are
 * recorded too. The handler of SIGSYS repeats the call and writes the record. One lock is held from before the call
 * until its record is written: so the trace is a serial order, and the record of an operation is complete before the
 * program learns that the operation has been done. Changes through shared memory mappings are not recorded; SQLite's
 * WAL index is the only such file, and SQLite rebuilds it when it opens a store.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define REGISTERS(context) \
    {(context)->uc_mcontext.gregs[REG_RDI], (context)->uc_mcontext.gregs[REG_RSI], \
     (context)->uc_mcontext.gregs[REG_RDX], (context)->uc_mcontext.gregs[REG_R10], \
     (context)->uc_mcontext.gregs[REG_R8]}
#define RESULT(context) (context)->uc_mcontext.gregs[REG_RAX]
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define REGISTERS(context) \
    {(long)(context)->uc_mcontext.regs[0], (long)(context)->uc_mcontext.regs[1], \
     (long)(context)->uc_mcontext.regs[2], (long)(context)->uc_mcontext.regs[3], \
     (long)(context)->uc_mcontext.regs[4]}
#define RESULT(context) (context)->uc_mcontext.regs[0]
#else
#error "the recorder does not know this processor's registers"
#endif

enum operation { CREATE = 1, WRITE, TRUNCATE, SYNC, SYNC_FAILED, RENAME, LINK, UNLINK, MKDIR, RMDIR };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char dir[PATH_MAX];
static size_t dir_len;
static int trace = -1;
static long fail_at, syncs;

enum { DESCRIPTORS = 1024 };
/* The descriptors whose next sync reports the failure. */
static char owed[DESCRIPTORS];

/* A call with this sixth argument passes the filter. The kernel ignores the argument in all calls that are trapped. */
#define PASS 0x7265636f72646572L

/* Makes a system call without trapping it. Returns its result, or -errno. */
static long pass(long number, long a, long b, long c, long d, long e) {
    long result = syscall(number, a, b, c, d, e, PASS);
    return result == -1 ? -errno : result;
}

__attribute__((noreturn)) static void fail(const char *reason) {
    pass(SYS_write, 2, (long)reason, (long)strlen(reason), 0, 0);
    _exit(125);
}

static void record(enum operation operation, uint64_t inode, uint64_t offset, uint64_t length, const char *path,
                   const void *data) {
    char head[1 + 8 + 8 + 8 + 4];
    uint32_t path_length = (uint32_t)strlen(path);
    head[0] = (char)operation;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &offset, 8);
    memcpy(head + 17, &length, 8);
    memcpy(head + 25, &path_length, 4);
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, path_length}, {(void *)data, data ? length : 0}};
    long total = (long)(sizeof head + path_length + (data ? length : 0));
    if (pass(SYS_writev, trace, (long)parts, 3, 0, 0) != total) fail("recorder: cannot write the trace\n");
}

/* Writes the path relative to the directory to `out`, and returns whether it is in the directory. "" is the directory
 * itself. */
static int within(const char *path, char *out) {
    if (strncmp(path, dir, dir_len) || (path[dir_len] && path[dir_len] != '/')) return 0;
    snprintf(out, PATH_MAX, "%s", path[dir_len] ? path + dir_len + 1 : "");
    size_t length = strlen(out);
    while (length > 0 && out[length - 1] == '/') out[--length] = 0;
    return 1;
}

/* Like within(), for a path that is relative to the open directory `at`. */
static int resolve(int at, const char *path, char *out) {
    char full[2 * PATH_MAX], link[64], base[PATH_MAX];
    if (!path) return 0;
    if (path[0] == '/') return within(path, out);
    if (at == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, base, sizeof base - 1);
    if (length <= 0) return 0;
    base[length] = 0;
    snprintf(full, sizeof full, "%s/%s", base, path);
    return within(full, out);
}

/* Writes the relative path of an open file or directory to `out`, and returns whether it is in the directory and has
 * not been unlinked. */
static int resolve_fd(int fd, char *out, struct stat *status) {
    char link[64], path[PATH_MAX];
    if (fd == trace || fstat(fd, status) || (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return status->st_nlink > 0 && within(path, out);
}

/* Returns the offset at which write() will write. */
static uint64_t position(int fd, const struct stat *status) {
    return fcntl(fd, F_GETFL) & O_APPEND ? (uint64_t)status->st_size : (uint64_t)lseek(fd, 0, SEEK_CUR);
}

/* Opens a file, and records whether that created or truncated it. */
static long create(long number, int at, const char *path, long flags, long mode, int openat_form) {
    char name[PATH_MAX];
    struct stat before, after;
    int watched = flags & (O_CREAT | O_TRUNC) && resolve(at, path, name);
    int existed = watched && !fstatat(at, path, &before, 0);
    long fd = openat_form ? pass(number, at, (long)path, flags, mode, 0) : pass(number, (long)path, flags, mode, 0, 0);
    if (fd >= 0 && fd < DESCRIPTORS) owed[fd] = 0;
    if (!watched || fd < 0 || fstat((int)fd, &after)) return fd;
    if (!existed) record(CREATE, after.st_ino, 0, 0, name, NULL);
    else if (flags & O_TRUNC) record(TRUNCATE, after.st_ino, 0, 0, name, NULL);
    return fd;
}

/* Records a successful operation on one name or two, and returns its result. */
static long record_names(enum operation operation, long done, int known, const char *name, const char *other) {
    if (known && done == 0) record(operation, 0, 0, other ? strlen(other) : 0, name, other);
    return done;
}

static long two_names(enum operation operation, long number, const long *a, int from_at, const char *from, int to_at,
                      const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int old_known = resolve(from_at, from, old), new_known = resolve(to_at, to, new);
    long done = pass(number, a[0], a[1], a[2], a[3], a[4]);
    if (done == 0 && old_known != new_known) fail("recorder: a file was moved into or out of the directory\n");
    return record_names(operation, done, old_known && new_known, old, new);
}

/* Syncs a file or directory, or fails. */
static long sync_fd(long number, int fd, const struct stat *status, const char *name) {
    if (++syncs == fail_at) {
        struct stat other;
        for (int open = 0; open < DESCRIPTORS; open++)
            owed[open] = open != fd && !fstat(open, &other) && other.st_ino == status->st_ino &&
                         other.st_dev == status->st_dev;
        record(SYNC_FAILED, status->st_ino, 0, 0, name, NULL);
        return -EIO;
    }
    long synced = pass(number, fd, 0, 0, 0, 0);
    record(synced ? SYNC_FAILED : SYNC, status->st_ino, 0, 0, name, NULL);
    if (fd >= DESCRIPTORS || !owed[fd]) return synced;
    owed[fd] = 0;
    return -EIO;
}

/* Makes the call that was trapped, and records its effect. */
static long execute(long number, const long *a) {
    char name[PATH_MAX];
    struct stat status;
    int fd = (int)a[0];
    switch (number) {
    case SYS_openat: return create(number, fd, (const char *)a[1], a[2], a[3], 1);
    case SYS_write:
    case SYS_pwrite64: {
        if (fd <= 2 || !resolve_fd(fd, name, &status)) break;
        uint64_t at = number == SYS_write ? position(fd, &status) : (uint64_t)a[3];
        long written = pass(number, a[0], a[1], a[2], a[3], 0);
        if (written > 0) record(WRITE, status.st_ino, at, (uint64_t)written, name, (const void *)a[1]);
        return written;
    }
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_copy_file_range:
    case SYS_sendfile: {
        int to = number == SYS_copy_file_range ? (int)a[2] : fd;
        if (to > 2 && resolve_fd(to, name, &status)) fail("recorder: unsupported system call that writes to a file\n");
        break;
    }
    case SYS_ftruncate:
    case SYS_fallocate: {
        if (!resolve_fd(fd, name, &status)) break;
        long changed = pass(number, a[0], a[1], a[2], a[3], 0);
        if (!changed && !fstat(fd, &status))
            record(TRUNCATE, status.st_ino, 0, (uint64_t)status.st_size, name, NULL);
        return changed;
    }
    case SYS_fsync:
    case SYS_fdatasync: {
        if (!resolve_fd(fd, name, &status)) break;
        return sync_fd(number, fd, &status, name);
    }
    case SYS_renameat:
    case SYS_renameat2: return two_names(RENAME, number, a, fd, (const char *)a[1], (int)a[2], (const char *)a[3]);
    case SYS_linkat: return two_names(LINK, number, a, fd, (const char *)a[1], (int)a[2], (const char *)a[3]);
    case SYS_unlinkat: {
        int known = resolve(fd, (const char *)a[1], name);
        enum operation operation = a[2] & AT_REMOVEDIR ? RMDIR : UNLINK;
        return record_names(operation, pass(number, a[0], a[1], a[2], 0, 0), known, name, NULL);
    }
    case SYS_mkdirat: {
        int known = resolve(fd, (const char *)a[1], name);
        return record_names(MKDIR, pass(number, a[0], a[1], a[2], 0, 0), known, name, NULL);
    }
#ifdef SYS_open
    case SYS_open: return create(number, AT_FDCWD, (const char *)a[0], a[1], a[2], 0);
    case SYS_rename: return two_names(RENAME, number, a, AT_FDCWD, (const char *)a[0], AT_FDCWD, (const char *)a[1]);
    case SYS_link: return two_names(LINK, number, a, AT_FDCWD, (const char *)a[0], AT_FDCWD, (const char *)a[1]);
    case SYS_unlink:
    case SYS_rmdir: {
        int known = resolve(AT_FDCWD, (const char *)a[0], name);
        return record_names(number == SYS_unlink ? UNLINK : RMDIR, pass(number, a[0], 0, 0, 0, 0), known, name, NULL);
    }
    case SYS_mkdir: {
        int known = resolve(AT_FDCWD, (const char *)a[0], name);
        return record_names(MKDIR, pass(number, a[0], a[1], 0, 0, 0), known, name, NULL);
    }
#endif
    }
    return pass(number, a[0], a[1], a[2], a[3], a[4]);
}

static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ucontext_t *at = context;
    const long arguments[5] = REGISTERS(at);
    int saved = errno;
    pthread_mutex_lock(&lock);
    long result = execute(info->si_syscall, arguments);
    pthread_mutex_unlock(&lock);
    errno = saved;
    RESULT(at) = result;
}

static const unsigned calls[] = {
    SYS_openat, SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_pwritev2, SYS_copy_file_range, SYS_sendfile,
    SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_renameat, SYS_renameat2, SYS_linkat, SYS_unlinkat,
    SYS_mkdirat,
#ifdef SYS_open
    SYS_open, SYS_rename, SYS_link, SYS_unlink, SYS_rmdir, SYS_mkdir,
#endif
};

__attribute__((constructor)) static void begin(void) {
    enum { COUNT = sizeof calls / sizeof *calls };
    const char *directory = getenv("RECORD_DIR"), *path = getenv("RECORD_TRACE"), *number = getenv("RECORD_FAIL");
    if (!directory || !path) return;
    snprintf(dir, sizeof dir, "%s", directory);
    dir_len = strlen(dir);
    fail_at = number ? atol(number) : 0;
    trace = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace < 0) fail("recorder: cannot open the trace\n");

    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sock_filter filter[COUNT + 9], *next = filter;
#define LOAD(field) *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field)
#define RETURN(value) *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value)
#define EQUAL(value, yes, no) *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
    LOAD(offsetof(struct seccomp_data, arch));
    EQUAL(ARCHITECTURE, 1, 0);
    RETURN(SECCOMP_RET_KILL_PROCESS);
    LOAD(offsetof(struct seccomp_data, args[5]));
    EQUAL((uint32_t)PASS, COUNT + 2, 0);
    LOAD(offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < COUNT; i++) EQUAL(calls[i], COUNT - i, 0);
    RETURN(SECCOMP_RET_ALLOW);
    RETURN(SECCOMP_RET_TRAP);
    struct sock_fprog program = {(unsigned short)(next - filter), filter};
    /* The jump for PASS leads to the second to last instruction, RET_ALLOW. */
    filter[4].jt = COUNT + 1;
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("recorder: the system does not allow trapping system calls\n");
}
