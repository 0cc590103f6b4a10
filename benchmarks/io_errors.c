/* Makes the n-th call of a kind fail that a program makes on files below a folder. Loaded with LD_PRELOAD by io_errors.py.
 *
 * FAULT_FOLDER   the folder (a real path)
 * FAULT_KIND     open, read, write, sync, rename, unlink, mkdir, truncate, stat, list or lock; none: only count
 * FAULT_ERROR    the errno; 0: the call transfers half of what it was asked for (a short read or write)
 * FAULT_NTH      which call of that kind, from 1
 * FAULT_LASTING  set: that call and all later ones of its kind
 * FAULT_REPORT   a file that gets `hit`, and at exit a line per kind with its number of calls
 *
 * io_uring is refused, so that reads go through the C library.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE, STAT, LIST, LOCK, KINDS };
static const char *names[KINDS] = {"open", "read", "write", "sync", "rename", "unlink", "mkdir", "truncate", "stat", "list", "lock"};
static atomic_long counts[KINDS];
static const char *folder, *report;
static int kind = -1, error_number, lasting, is_ready;
static long nth;

#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static void say(const char *text) {
    int file = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file >= 0) {
        syscall(SYS_write, file, text, strlen(text));
        syscall(SYS_close, file);
    }
}

__attribute__((constructor)) static void begin(void) {
    const char *wanted = getenv("FAULT_KIND"), *value;
    folder = getenv("FAULT_FOLDER");
    report = getenv("FAULT_REPORT");
    error_number = (value = getenv("FAULT_ERROR")) ? atoi(value) : EIO;
    nth = (value = getenv("FAULT_NTH")) ? atol(value) : 0;
    lasting = getenv("FAULT_LASTING") != NULL;
    for (int i = 0; wanted && i < KINDS; i++)
        if (!strcmp(wanted, names[i])) kind = i;
    is_ready = folder && report;
}

__attribute__((destructor)) static void end(void) {
    char line[64];
    for (int i = 0; is_ready && i < KINDS; i++) {
        snprintf(line, sizeof line, "%s %ld\n", names[i], (long)counts[i]);
        say(line);
    }
}

static int below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == 0);
}

static int of_fd(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (!is_ready || length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* Whether a path, which need not exist, is below the folder. */
static int of_path(int at, const char *path) {
    char parent[PATH_MAX], real[PATH_MAX];
    if (!is_ready || !path) return 0;
    if (path[0] != '/' && at != AT_FDCWD) return of_fd(at);
    int saved = errno;
    snprintf(parent, sizeof parent, "%s", path);
    /* /proc/self/fd/9/name: realpath follows the link in the middle. */
    char *slash = strrchr(parent, '/');
    if (slash) *slash = 0;
    const char *start = !slash ? "." : *parent ? parent : "/";
    int found = realpath(start, real) && below(real);
    if (!found && realpath(path, real)) found = below(real);
    errno = saved;
    return found;
}

/* Counts a call; whether it is to fail. */
static int fails(int of) {
    long number = ++counts[of];
    if (of != kind || !(lasting ? number >= nth : number == nth)) return 0;
    say("hit\n");
    errno = error_number;
    return 1;
}

#define FAIL_PATH(of, at, path) if (of_path(at, path) && fails(of)) return -1
#define FAIL_FD(of, fd) if (of_fd(fd) && fails(of)) return -1

#define OPEN_AT(name, declared, at, path, flags, ...) \
    int name declared { \
        int mode = 0; \
        va_list rest; \
        va_start(rest, flags); \
        if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(rest, int); \
        va_end(rest); \
        FAIL_PATH(OPEN, at, path); \
        return ((int (*) declared)next(#name))(__VA_ARGS__, mode); \
    }
OPEN_AT(open, (const char *path, int flags, ...), AT_FDCWD, path, flags, path, flags)
OPEN_AT(open64, (const char *path, int flags, ...), AT_FDCWD, path, flags, path, flags)
OPEN_AT(openat, (int at, const char *path, int flags, ...), at, path, flags, at, path, flags)
OPEN_AT(openat64, (int at, const char *path, int flags, ...), at, path, flags, at, path, flags)

/* A transfer of `bytes`, which may fail, or be cut to half. */
#define TRANSFER(of, fd, bytes) \
    if (of_fd(fd) && fails(of)) { \
        if (error_number || bytes < 2) return -1; \
        bytes /= 2; \
    }
ssize_t read(int fd, void *to, size_t bytes) { TRANSFER(READ, fd, bytes) return NEXT(read)(fd, to, bytes); }
ssize_t pread(int fd, void *to, size_t bytes, off_t at) { TRANSFER(READ, fd, bytes) return NEXT(pread)(fd, to, bytes, at); }
ssize_t pread64(int fd, void *to, size_t bytes, off64_t at) { TRANSFER(READ, fd, bytes) return NEXT(pread64)(fd, to, bytes, at); }
ssize_t write(int fd, const void *from, size_t bytes) { TRANSFER(WRITE, fd, bytes) return NEXT(write)(fd, from, bytes); }
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) { TRANSFER(WRITE, fd, bytes) return NEXT(pwrite)(fd, from, bytes, at); }
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) { TRANSFER(WRITE, fd, bytes) return NEXT(pwrite64)(fd, from, bytes, at); }
ssize_t readv(int fd, const struct iovec *to, int count) { FAIL_FD(READ, fd); return NEXT(readv)(fd, to, count); }
ssize_t preadv64(int fd, const struct iovec *to, int count, off64_t at) { FAIL_FD(READ, fd); return NEXT(preadv64)(fd, to, count, at); }
ssize_t writev(int fd, const struct iovec *from, int count) { FAIL_FD(WRITE, fd); return NEXT(writev)(fd, from, count); }
ssize_t pwritev64(int fd, const struct iovec *from, int count, off64_t at) { FAIL_FD(WRITE, fd); return NEXT(pwritev64)(fd, from, count, at); }

int fsync(int fd) { FAIL_FD(SYNC, fd); return NEXT(fsync)(fd); }
int fdatasync(int fd) { FAIL_FD(SYNC, fd); return NEXT(fdatasync)(fd); }
int rename(const char *from, const char *to) { FAIL_PATH(RENAME, AT_FDCWD, to); return NEXT(rename)(from, to); }
int renameat(int at, const char *from, int at_to, const char *to) { FAIL_PATH(RENAME, at_to, to); return NEXT(renameat)(at, from, at_to, to); }
int unlink(const char *path) { FAIL_PATH(UNLINK, AT_FDCWD, path); return NEXT(unlink)(path); }
int unlinkat(int at, const char *path, int flags) { FAIL_PATH(UNLINK, at, path); return NEXT(unlinkat)(at, path, flags); }
int rmdir(const char *path) { FAIL_PATH(UNLINK, AT_FDCWD, path); return NEXT(rmdir)(path); }
int mkdir(const char *path, mode_t mode) { FAIL_PATH(MKDIR, AT_FDCWD, path); return NEXT(mkdir)(path, mode); }
int ftruncate(int fd, off_t length) { FAIL_FD(TRUNCATE, fd); return NEXT(ftruncate)(fd, length); }
int ftruncate64(int fd, off64_t length) { FAIL_FD(TRUNCATE, fd); return NEXT(ftruncate64)(fd, length); }
int fallocate64(int fd, int mode, off64_t from, off64_t length) { FAIL_FD(TRUNCATE, fd); return NEXT(fallocate64)(fd, mode, from, length); }
int posix_fallocate64(int fd, off64_t from, off64_t length) { if (of_fd(fd) && fails(TRUNCATE)) return error_number; return NEXT(posix_fallocate64)(fd, from, length); }
int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict to) {
    if ((*path ? of_path(at, path) : of_fd(at)) && fails(STAT)) return -1;
    return NEXT(statx)(at, path, flags, mask, to);
}
int fstat64(int fd, struct stat64 *to) { FAIL_FD(STAT, fd); return NEXT(fstat64)(fd, to); }
int fstat(int fd, struct stat *to) { FAIL_FD(STAT, fd); return NEXT(fstat)(fd, to); }
int stat64(const char *restrict path, struct stat64 *restrict to) { FAIL_PATH(STAT, AT_FDCWD, path); return NEXT(stat64)(path, to); }
int stat(const char *restrict path, struct stat *restrict to) { FAIL_PATH(STAT, AT_FDCWD, path); return NEXT(stat)(path, to); }
DIR *opendir(const char *path) { if (of_path(AT_FDCWD, path) && fails(LIST)) return NULL; return NEXT(opendir)(path); }
int flock(int fd, int operation) { FAIL_FD(LOCK, fd); return NEXT(flock)(fd, operation); }

#define CONTROL(name) \
    int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if ((command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK) && of_fd(fd) && fails(LOCK)) return -1; \
        return ((int (*)(int, int, ...))next(#name))(fd, command, argument); \
    }
CONTROL(fcntl)
CONTROL(fcntl64)

long syscall(long number, ...) {
    va_list rest;
    long a[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_uring_setup) {
        errno = ENOSYS;
        return -1;
    }
    return ((long (*)(long, ...))next("syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
