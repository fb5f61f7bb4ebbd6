/* The peers that are measured beside stager: files, synced blocks, LMDB and Redis, each driven by as many processes as it has clients.
 *
 * Compiled by benchmarks/peers.py, so that what is measured is the peer and not the language of the benchmark. The one rule: a phase
 * prints what it did and how busy the machine was meanwhile, and anything that fails ends the program with a message.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_LMDB
#include <lmdb.h>
#endif

enum { BLOCK = 4096, CHUNK = 16384, READ = 1 << 20 };

static long files, bytes, clients = 1, batch = 1;
static const char *place;
static char *content;
static int each_synced;

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void check(int good, const char *what) {
    if (!good) die(what);
}

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* Ticks of the machine: busy, all. */
static void machine_time(double *busy, double *all) {
    double field[8];
    FILE *stat = fopen("/proc/stat", "r");
    check(stat != NULL, "/proc/stat");
    int got = fscanf(stat, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", field, field + 1, field + 2, field + 3, field + 4, field + 5, field + 6, field + 7);
    fclose(stat);
    check(got == 8, "/proc/stat");
    *all = 0;
    for (int at = 0; at < 8; at++) *all += field[at];
    *busy = *all - field[3] - field[4];
}

static void name_of(char *name, long number) { sprintf(name, "f%010ld", number); }

/* One phase: all clients at once, each a process, from the first fork to the last end. */
static void phase(const char *name, void (*work)(long client), void (*at_the_end)(void), long count, int first) {
    double busy[2], all[2], begun = now_s();
    machine_time(&busy[0], &all[0]);
    for (long client = 0; client < clients; client++) {
        pid_t child = fork();
        check(child >= 0, "fork");
        if (child == 0) {
            work(client);
            _exit(0);
        }
    }
    for (long client = 0; client < clients; client++) {
        int status;
        check(wait(&status) > 0, "wait");
        if (status != 0) exit(1);
    }
    if (at_the_end) at_the_end();
    double took = now_s() - begun;
    machine_time(&busy[1], &all[1]);
    double share = all[1] > all[0] ? (busy[1] - busy[0]) / (all[1] - all[0]) : 0;
    printf("%s\"%s\": {\"ops_per_s\": %.1f, \"seconds\": %.6f, \"busy\": %.3f}", first ? "{" : ", ", name, count / took, took, share);
    fflush(stdout);
}

/* ---- files in one directory ---- */

static int directory(void) {
    int fd = open(place, O_RDONLY | O_DIRECTORY);
    check(fd >= 0, place);
    return fd;
}

static void directory_synced(void) {
    int fd = directory();
    check(fsync(fd) == 0, "fsync of the directory");
    close(fd);
}

static void create_files(long client) {
    char name[32];
    int dir = directory();
    for (long n = client; n < files; n += clients) {
        name_of(name, n);
        int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        check(fd >= 0, name);
        check(write(fd, content, bytes) == bytes, name);
        if (each_synced) check(fsync(fd) == 0, name);
        close(fd);
        if (each_synced) check(fsync(dir) == 0, "fsync of the directory");
    }
}

static void stat_files(long client) {
    char name[32];
    struct stat found;
    int dir = directory();
    for (long n = client; n < files; n += clients) {
        name_of(name, n);
        check(fstatat(dir, name, &found, 0) == 0 && found.st_size == bytes, name);
    }
}

static void get_files(long client) {
    char name[32], *buffer = malloc(bytes + 1);
    int dir = directory();
    for (long n = client; n < files; n += clients) {
        name_of(name, n);
        int fd = openat(dir, name, O_RDONLY);
        check(fd >= 0 && read(fd, buffer, bytes + 1) == bytes, name);
        close(fd);
    }
}

static void delete_files(long client) {
    char name[32];
    int dir = directory();
    for (long n = client; n < files; n += clients) {
        name_of(name, n);
        check(unlinkat(dir, name, 0) == 0, name);
        if (each_synced) check(fsync(dir) == 0, "fsync of the directory");
    }
}

/* ---- one block and its sync, again and again ---- */

static void sync_blocks(long client) {
    int fd = open(place, O_CREAT | O_EXCL | O_RDWR, 0600);
    check(client == 0 && fd >= 0, place);
    for (long n = 0; n < files; n++) {
        check(pwrite(fd, content, BLOCK, n * BLOCK) == BLOCK, place);
        check(fdatasync(fd) == 0, place);
    }
}

/* ---- a checkpoint: one file a writer, in writes of CHUNK ---- */

static char **paths;

static void write_path(long client) {
    int fd = open(paths[client], O_CREAT | O_EXCL | O_WRONLY, 0600);
    check(fd >= 0, paths[client]);
    for (long done = 0; done < bytes; done += CHUNK) {
        memcpy(content, &client, sizeof client);
        memcpy(content + sizeof client, &done, sizeof done);
        check(write(fd, content, CHUNK) == CHUNK, paths[client]);
    }
    if (each_synced) check(fsync(fd) == 0, paths[client]);
    close(fd);
    dprintf(STDOUT_FILENO, "%ld\n", client);
}

static void read_path(long client) {
    char *buffer = malloc(READ);
    int fd = open(paths[client], O_RDONLY);
    check(fd >= 0, paths[client]);
    long done = 0;
    for (ssize_t got; (got = read(fd, buffer, READ)) != 0; done += got) {
        check(got > 0, paths[client]);
        for (long at = 0; at + CHUNK <= got; at += CHUNK) {
            long said[2];
            memcpy(said, buffer + at, sizeof said);
            if (said[0] != client || said[1] != done + at) {
                fprintf(stderr, "%s holds another content at %ld\n", paths[client], done + at);
                exit(1);
            }
        }
    }
    if (done != bytes) {
        fprintf(stderr, "%s has %ld bytes instead of %ld\n", paths[client], done, bytes);
        exit(1);
    }
}

/* ---- Redis: one hash is the directory, a field each file ---- */

static void ask_redis(long client, const char *command, int with_value) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(place)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int line = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    check(line >= 0 && connect(line, (struct sockaddr *)&address, sizeof address) == 0, "connecting to Redis");
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    FILE *answers = fdopen(line, "r");
    char *asked = malloc(batch * (bytes + 128)), *skipped = malloc(bytes + 2), said[128], name[32];
    for (long n = client; n < files;) {
        size_t length = 0;
        long count = 0;
        for (; count < batch && n < files; count++, n += clients) {
            name_of(name, n);
            length += sprintf(asked + length, "*%d\r\n$%zu\r\n%s\r\n$1\r\nd\r\n$11\r\n%s\r\n", with_value ? 4 : 3, strlen(command), command, name);
            if (!with_value) continue;
            length += sprintf(asked + length, "$%ld\r\n", bytes);
            memcpy(asked + length, content, bytes);
            length += bytes;
            length += sprintf(asked + length, "\r\n");
        }
        for (size_t sent = 0; sent < length;) {
            ssize_t more = send(line, asked + sent, length - sent, 0);
            check(more > 0, "sending to Redis");
            sent += more;
        }
        for (; count > 0; count--) {
            check(fgets(said, sizeof said, answers) != NULL, "Redis");
            int bulk = said[0] == '$' && atol(said + 1) == bytes;
            if (!bulk && strcmp(said, ":1\r\n") != 0) {
                fprintf(stderr, "Redis answered %s to %s\n", said, command);
                exit(1);
            }
            if (bulk) check(fread(skipped, bytes + 2, 1, answers) == 1, "Redis");
        }
    }
    fclose(answers);
}

static void redis_create(long client) { ask_redis(client, "HSET", 1); }
static void redis_stat(long client) { ask_redis(client, "HEXISTS", 0); }
static void redis_get(long client) { ask_redis(client, "HGET", 0); }
static void redis_delete(long client) { ask_redis(client, "HDEL", 0); }

/* ---- LMDB: one writer, each batch a transaction that is synced ---- */

#ifdef WITH_LMDB
static void fine(int code, const char *what) {
    if (code != MDB_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(code));
        exit(1);
    }
}

static void lmdb_all(int writes, int deletes) {
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *txn;
    char name[32];
    fine(mdb_env_create(&env), "mdb_env_create");
    fine(mdb_env_set_mapsize(env, (size_t)64 << 30), "mdb_env_set_mapsize");
    fine(mdb_env_open(env, place, 0, 0600), place);
    for (long n = 0; n < files;) {
        fine(mdb_txn_begin(env, NULL, writes || deletes ? 0 : MDB_RDONLY, &txn), "mdb_txn_begin");
        fine(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
        for (long count = 0; count < batch && n < files; count++, n++) {
            name_of(name, n);
            MDB_val key = {strlen(name), name}, value = {bytes, content}, found;
            if (writes) fine(mdb_put(txn, dbi, &key, &value, 0), "mdb_put");
            else if (deletes) fine(mdb_del(txn, dbi, &key, NULL), "mdb_del");
            else {
                fine(mdb_get(txn, dbi, &key, &found), "mdb_get");
                memcpy(content, found.mv_data, found.mv_size);
            }
        }
        fine(mdb_txn_commit(txn), "mdb_txn_commit");
    }
    mdb_env_close(env);
}

static void lmdb_create(long client) { lmdb_all(client == 0, 0); }
static void lmdb_read(long client) { lmdb_all(0, client != 0); }
static void lmdb_delete(long client) { lmdb_all(0, client == 0); }
#endif

typedef void Work(long);

static void four(Work *create, Work *stat, Work *get, Work *delete, void (*at_the_end)(void)) {
    phase("create", create, at_the_end, files, 1);
    phase("stat", stat, NULL, files, 0);
    if (bytes > 0) phase("get", get, NULL, files, 0);
    phase("delete", delete, at_the_end, files, 0);
    printf("}\n");
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "peers files|synced-files|sync|redis|lmdb PLACE FILES BYTES CLIENTS BATCH, peers write|write-synced|read BYTES PATH...\n");
        return 2;
    }
    const char *what = argv[1];
    each_synced = strstr(what, "synced") != NULL;
    if (strcmp(what, "read") == 0 || strncmp(what, "write", 5) == 0) {
        bytes = atol(argv[2]), paths = argv + 3, clients = argc - 3;
        content = calloc(1, CHUNK);
        check(content != NULL, "memory");
        phase(what, strcmp(what, "read") == 0 ? read_path : write_path, NULL, clients, 1);
        printf("}\n");
        return 0;
    }
    place = argv[2], files = atol(argv[3]);
    if (argc == 7) bytes = atol(argv[4]), clients = atol(argv[5]), batch = atol(argv[6]);
    content = malloc(bytes + BLOCK);
    check(content != NULL, "memory");
    for (long at = 0; at < bytes + BLOCK; at++) content[at] = (char)(at * 2654435761u >> 13);
    if (strcmp(what, "files") == 0) four(create_files, stat_files, get_files, delete_files, directory_synced);
    else if (strcmp(what, "synced-files") == 0) four(create_files, stat_files, get_files, delete_files, NULL);
    else if (strcmp(what, "redis") == 0) four(redis_create, redis_stat, redis_get, redis_delete, NULL);
#ifdef WITH_LMDB
    else if (strcmp(what, "lmdb") == 0) four(lmdb_create, lmdb_read, lmdb_read, lmdb_delete, NULL);
#endif
    else if (strcmp(what, "sync") == 0) {
        phase("sync", sync_blocks, NULL, files, 1);
        printf("}\n");
    } else {
        fprintf(stderr, "this program was built without %s\n", what);
        return 2;
    }
    return 0;
}
