/* A disk that fails by name: preloaded into the node by tests/faults/mod.rs.
 * FAULTS_DIR/read holds part of a path whose reads end in EIO; while FAULTS_DIR/sync is there, fsync of the log does, and while
 * FAULTS_DIR/syncfs is there, syncfs of anything. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static FILE *fault(const char *name) {
    char place[4096];
    const char *directory = getenv("FAULTS_DIR");
    if (!directory) return NULL;
    snprintf(place, sizeof place, "%s/%s", directory, name);
    return fopen(place, "r");
}

ssize_t pread64(int fd, void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    FILE *told = fault("read");
    if (told) {
        char path[4096], part[256] = "";
        size_t length = fread(part, 1, sizeof part - 1, told);
        fclose(told);
        part[length] = 0;
        if (length && path_of(fd, path, sizeof path) && strstr(path, part)) {
            errno = EIO;
            return -1;
        }
    }
    return real(fd, buffer, count, offset);
}

static int sync_fails(int fd) {
    FILE *told = fault("sync");
    if (told) {
        char path[4096];
        fclose(told);
        if (path_of(fd, path, sizeof path) && strstr(path, ".seg")) {
            errno = EIO;
            return 1;
        }
    }
    return 0;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return sync_fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return sync_fails(fd) ? -1 : real(fd);
}

int syncfs(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "syncfs");
    FILE *told = fault("syncfs");
    if (told) {
        fclose(told);
        errno = EIO;
        return -1;
    }
    return real(fd);
}
