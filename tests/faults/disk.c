/* A file system of the tests: passes everything on to a directory, logs every change and every flush, and fails as it is told.
 *
 * The log is what `power_cut.py` makes a disk after a power cut of: so nothing is flushed here, a flush is only written down.
 * Commands come by stdin, one a line, and are answered by a line on stdout; at its end the file system is unmounted.
 *
 *   mark TEXT                                  notes a text between the changes
 *   fault OPERATIONS PATTERN ERRNO COUNT MS    from now on (COUNT -1: for ever) such calls wait MS (-1: until `clear`), then
 *                                              fail with ERRNO (0: they do not; -1: a `read` gives half of what there
 *                                              is, if `direct` struck when its file was opened; `uncached`: the page
 *                                              cache forgets a file when it is opened)
 *   clear                                      no fault any more; what waits goes on
 *   forget                                     the page cache forgets all files
 *   hits                                       how often a fault has struck
 *
 * Usage: disk BACKING MOUNTPOINT LOG
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum kind {
    MARK = 1, CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, ALLOCATE, SETXATTR, REMOVEXATTR,
    FLUSH, FLUSH_DIRECTORY, FLUSH_FAILED, ATTRIBUTES,
};
enum { DATA_ONLY = 1, SYNCHRONOUS = 2 };
enum { NODES_BUCKETS = 4096, OPEN_FILES_MAX = 500000, THREADS_MAX = 500, PATH_BYTES_MAX = 4096, ATTRIBUTE_BYTES_MAX = 65536 };
static const double VALID_SECONDS = 3600;

/* As `power_cut.py` reads it. Names and data follow. */
struct record {
    uint32_t length;
    uint8_t kind, flags;
    uint16_t name_length, new_name_length, unused;
    uint32_t data_length;
    uint64_t inode, parent, new_parent, offset, size;
} __attribute__((packed));

/* A file or directory that was ever looked at. It is held until the end, so that no inode number is ever used again. */
struct node {
    int file;
    uint64_t inode;
    struct node *next;
};

struct fault {
    char operations[256], pattern[256];
    int error, count;
    long wait_ms;
    struct fault *next;
};

static struct node root;
static struct node *nodes[NODES_BUCKETS];
static pthread_mutex_t nodes_lock = PTHREAD_MUTEX_INITIALIZER;
static int logged;
static uint64_t records;
/* A change and its record are one step, so the log has the order in which changes were made. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cleared = PTHREAD_COND_INITIALIZER;
static struct fault *faults;
static uint64_t clearings, hits;
static struct fuse_session *session;
static size_t backing_length;

static struct node *node_of(fuse_ino_t number) {
    return number == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)number;
}

/* The node of a name, made when it is new; NULL with `errno` when there is none. */
static struct node *find_node(int directory, const char *name, struct stat *seen) {
    int file = openat(directory, name, O_PATH | O_NOFOLLOW);
    if (file < 0)
        return NULL;
    fstatat(file, "", seen, AT_EMPTY_PATH);
    pthread_mutex_lock(&nodes_lock);
    struct node **place = &nodes[seen->st_ino % NODES_BUCKETS];
    while (*place && (*place)->inode != seen->st_ino)
        place = &(*place)->next;
    if (*place)
        close(file);
    else {
        *place = calloc(1, sizeof **place);
        (*place)->file = file;
        (*place)->inode = seen->st_ino;
    }
    struct node *found = *place;
    pthread_mutex_unlock(&nodes_lock);
    return found;
}

/* Below the mount point, beginning with a slash; with a name of a directory's when there is one. */
static const char *path_of(struct node *node, const char *name, char *path) {
    char link[64], real[PATH_BYTES_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    ssize_t length = readlink(link, real, sizeof real - 1);
    real[length < 0 ? 0 : length] = 0;
    snprintf(path, PATH_BYTES_MAX, "%s%s%s", (size_t)length > backing_length ? real + backing_length : "",
             name ? "/" : "", name ? name : "");
    return path;
}

static void write_record(struct record record, const char *name, const char *new_name, const void *data) {
    record.name_length = name ? strlen(name) : 0;
    record.new_name_length = new_name ? strlen(new_name) : 0;
    record.length = sizeof record + record.name_length + record.new_name_length + record.data_length;
    struct iovec parts[] = {
        {&record, sizeof record}, {(void *)name, record.name_length}, {(void *)new_name, record.new_name_length},
        {(void *)data, record.data_length},
    };
    if (writev(logged, parts, 4) != record.length) {
        perror("the log cannot be written");
        _exit(3);
    }
    records++;
}

/* Whether one of these calls is to fail now: 0 or a negative error, or 1 for half a read. Waits when it is told to. */
static int strike(const char *operation, struct node *node, const char *name) {
    if (!faults)
        return 0;
    char path[PATH_BYTES_MAX];
    path_of(node, name, path);
    pthread_mutex_lock(&faults_lock);
    int answer = 0;
    char wanted[64];
    snprintf(wanted, sizeof wanted, ",%s,", operation);
    for (struct fault *fault = faults; fault; fault = fault->next) {
        if (fault->count == 0 || !strstr(fault->operations, wanted) || fnmatch(fault->pattern, path, 0))
            continue;
        if (fault->count > 0)
            fault->count--;
        hits++;
        answer = fault->error < 0 ? 1 : -fault->error;
        long wait_ms = fault->wait_ms;
        uint64_t before = clearings;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += wait_ms / 1000;
        until.tv_nsec += wait_ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        while (wait_ms && before == clearings) {
            if (wait_ms < 0)
                pthread_cond_wait(&cleared, &faults_lock);
            else if (pthread_cond_timedwait(&cleared, &faults_lock, &until) == ETIMEDOUT)
                break;
        }
        break;
    }
    pthread_mutex_unlock(&faults_lock);
    return answer;
}

#define UNLESS_STRUCK(operation, node, name)                                                                           \
    do {                                                                                                               \
        int struck = strike(operation, node, name);                                                                    \
        if (struck < 0) {                                                                                              \
            fuse_reply_err(request, -struck);                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Makes a change and, when it could be made, its record; gives back 0 or an error. */
#define IN_ORDER(change, ...)                                                                                          \
    ({                                                                                                                 \
        pthread_mutex_lock(&order);                                                                                    \
        int failed = (change) < 0 ? errno : 0;                                                                         \
        if (!failed) {                                                                                                 \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        pthread_mutex_unlock(&order);                                                                                  \
        failed;                                                                                                        \
    })

static uint64_t owner(uid_t uid, gid_t gid) { return (uint64_t)uid << 32 | gid; }

static uint64_t inode_at(int directory, const char *name) {
    struct stat seen;
    return fstatat(directory, name, &seen, AT_SYMLINK_NOFOLLOW) ? 0 : seen.st_ino;
}

static struct fuse_entry_param entry_of(int directory, const char *name) {
    struct fuse_entry_param entry = {.attr_timeout = VALID_SECONDS, .entry_timeout = VALID_SECONDS};
    entry.ino = (uintptr_t)find_node(directory, name, &entry.attr);
    return entry;
}

static void reply_entry(fuse_req_t request, int directory, const char *name) {
    struct fuse_entry_param entry = entry_of(directory, name);
    if (entry.ino)
        fuse_reply_entry(request, &entry);
    else
        fuse_reply_err(request, errno);
}

static void record_new(fuse_req_t request, enum kind kind, struct node *parent, const char *name, mode_t mode,
                       const char *target) {
    const struct fuse_ctx *caller = fuse_req_ctx(request);
    if (fchownat(parent->file, name, caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW))
        perror(name);
    struct record record = {
        .kind = kind, .inode = inode_at(parent->file, name), .parent = parent->inode, .size = mode & 07777,
        .offset = owner(caller->uid, caller->gid), .data_length = target ? strlen(target) : 0,
    };
    write_record(record, name, NULL, target);
}

/* The kernel tells each offset itself; what is flushed when is a matter of the log. */
static int plain_flags(int flags) { return (flags & ~(O_APPEND | O_SYNC | O_DSYNC | O_DIRECT | O_TRUNC | O_NOFOLLOW)); }

static void keep_open(struct fuse_file_info *info, int file) {
    info->fh = file;
    info->keep_cache = 1;
}

/* A node's file once more, now for its content. */
static int open_again(struct node *node, int flags) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    return open(link, flags);
}

static void disk_init(void *nothing, struct fuse_conn_info *connection) {
    (void)nothing;
    connection->want &= ~(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_WRITEBACK_CACHE);
}

static void disk_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    UNLESS_STRUCK("stat", node_of(parent), name);
    reply_entry(request, node_of(parent)->file, name);
}

static void disk_forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
    (void)number, (void)count;
    fuse_reply_none(request);
}

static void disk_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
    (void)info;
    struct stat seen;
    if (fstatat(node_of(number)->file, "", &seen, AT_EMPTY_PATH))
        fuse_reply_err(request, errno);
    else
        fuse_reply_attr(request, &seen, VALID_SECONDS);
}

static int change_attributes(struct node *node, struct stat *wanted, int which) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    if (which & FUSE_SET_ATTR_MODE && chmod(link, wanted->st_mode))
        return -1;
    uid_t uid = which & FUSE_SET_ATTR_UID ? wanted->st_uid : (uid_t)-1;
    gid_t gid = which & FUSE_SET_ATTR_GID ? wanted->st_gid : (gid_t)-1;
    if (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) && fchownat(node->file, "", uid, gid, AT_EMPTY_PATH))
        return -1;
    struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    if (which & FUSE_SET_ATTR_ATIME)
        times[0] = wanted->st_atim;
    if (which & FUSE_SET_ATTR_MTIME)
        times[1] = wanted->st_mtim;
    if (which & FUSE_SET_ATTR_ATIME_NOW)
        times[0].tv_nsec = UTIME_NOW;
    if (which & FUSE_SET_ATTR_MTIME_NOW)
        times[1].tv_nsec = UTIME_NOW;
    return which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME) ? utimensat(AT_FDCWD, link, times, 0) : 0;
}

static void record_attributes(struct node *node) {
    struct stat seen;
    fstatat(node->file, "", &seen, AT_EMPTY_PATH);
    struct record record = {
        .kind = ATTRIBUTES, .inode = node->inode, .size = seen.st_mode & 07777, .offset = owner(seen.st_uid, seen.st_gid),
    };
    write_record(record, NULL, NULL, NULL);
}

static void disk_setattr(fuse_req_t request, fuse_ino_t number, struct stat *wanted, int which, struct fuse_file_info *info) {
    struct node *node = node_of(number);
    int failed = 0;
    if (which & FUSE_SET_ATTR_SIZE) {
        UNLESS_STRUCK("write", node, NULL);
        struct record record = {.kind = TRUNCATE, .inode = node->inode, .size = wanted->st_size};
        int file = open_again(node, O_WRONLY);
        failed = file < 0 ? errno : IN_ORDER(ftruncate(file, wanted->st_size), write_record(record, NULL, NULL, NULL));
        close(file);
    }
    if (!failed && which & ~FUSE_SET_ATTR_SIZE)
        failed = IN_ORDER(change_attributes(node, wanted, which), record_attributes(node));
    if (failed)
        fuse_reply_err(request, failed);
    else
        disk_getattr(request, number, info);
}

static void disk_readlink(fuse_req_t request, fuse_ino_t number) {
    char target[PATH_BYTES_MAX];
    ssize_t length = readlinkat(node_of(number)->file, "", target, sizeof target - 1);
    if (length < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    target[length] = 0;
    fuse_reply_readlink(request, target);
}

static void disk_mkdir(fuse_req_t request, fuse_ino_t number, const char *name, mode_t mode) {
    struct node *parent = node_of(number);
    UNLESS_STRUCK("create", parent, name);
    int failed = IN_ORDER(mkdirat(parent->file, name, mode), record_new(request, MKDIR, parent, name, mode, NULL));
    if (failed)
        fuse_reply_err(request, failed);
    else
        reply_entry(request, parent->file, name);
}

static void disk_symlink(fuse_req_t request, const char *target, fuse_ino_t number, const char *name) {
    struct node *parent = node_of(number);
    UNLESS_STRUCK("create", parent, name);
    int failed = IN_ORDER(symlinkat(target, parent->file, name), record_new(request, SYMLINK, parent, name, 0777, target));
    if (failed)
        fuse_reply_err(request, failed);
    else
        reply_entry(request, parent->file, name);
}

static void remove_name(fuse_req_t request, fuse_ino_t number, const char *name, enum kind kind, int flags) {
    struct node *parent = node_of(number);
    UNLESS_STRUCK("unlink", parent, name);
    struct record record = {.kind = kind, .parent = parent->inode};
    fuse_reply_err(request, IN_ORDER(unlinkat(parent->file, name, flags), write_record(record, name, NULL, NULL)));
}

static void disk_unlink(fuse_req_t request, fuse_ino_t parent, const char *name) {
    remove_name(request, parent, name, UNLINK, 0);
}

static void disk_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name) {
    remove_name(request, parent, name, RMDIR, AT_REMOVEDIR);
}

static void disk_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t new_parent, const char *name) {
    struct node *node = node_of(number), *parent = node_of(new_parent);
    UNLESS_STRUCK("create", parent, name);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    struct record record = {.kind = LINK, .inode = node->inode, .parent = parent->inode};
    int failed = IN_ORDER(linkat(AT_FDCWD, link, parent->file, name, AT_SYMLINK_FOLLOW), write_record(record, name, NULL, NULL));
    if (failed)
        fuse_reply_err(request, failed);
    else
        reply_entry(request, parent->file, name);
}

static void disk_rename(fuse_req_t request, fuse_ino_t number, const char *name, fuse_ino_t new_number, const char *new_name,
                        unsigned flags) {
    struct node *parent = node_of(number), *new_parent = node_of(new_number);
    UNLESS_STRUCK("rename", new_parent, new_name);
    struct record record = {.kind = RENAME, .parent = parent->inode, .new_parent = new_parent->inode};
    int failed = flags & RENAME_EXCHANGE ? EINVAL : IN_ORDER(
        (record.inode = inode_at(parent->file, name), renameat2(parent->file, name, new_parent->file, new_name, flags)),
        write_record(record, name, new_name, NULL));
    fuse_reply_err(request, failed);
}

static void disk_create(fuse_req_t request, fuse_ino_t number, const char *name, mode_t mode, struct fuse_file_info *info) {
    struct node *parent = node_of(number);
    UNLESS_STRUCK("create", parent, name);
    pthread_mutex_lock(&order);
    bool is_new = inode_at(parent->file, name) == 0;
    int file = openat(parent->file, name, plain_flags(info->flags) | O_CREAT, mode);
    int failed = file < 0 ? errno : 0;
    if (!failed && is_new)
        record_new(request, CREATE, parent, name, mode, NULL);
    struct fuse_entry_param entry = entry_of(parent->file, name);
    pthread_mutex_unlock(&order);
    if (failed) {
        fuse_reply_err(request, failed);
        return;
    }
    keep_open(info, file);
    fuse_reply_create(request, &entry, info);
}

static void disk_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
    UNLESS_STRUCK("open", node_of(number), NULL);
    int file = open_again(node_of(number), plain_flags(info->flags));
    if (file < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    keep_open(info, file);
    /* Through the page cache half an answer would mean the end of the file. */
    info->direct_io = strike("direct", node_of(number), NULL) > 0;
    info->keep_cache = strike("uncached", node_of(number), NULL) <= 0;
    fuse_reply_open(request, info);
}

static void disk_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
    (void)number;
    close(info->fh);
    fuse_reply_err(request, 0);
}

static void disk_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *info) {
    int struck = strike("read", node_of(number), NULL);
    char *buffer = malloc(size);
    ssize_t count = pread(info->fh, buffer, struck > 0 ? size / 2 : size, offset);
    if (struck < 0 || count < 0)
        fuse_reply_err(request, struck < 0 ? -struck : errno);
    else
        fuse_reply_buf(request, buffer, count);
    free(buffer);
}

static void disk_write(fuse_req_t request, fuse_ino_t number, const char *data, size_t size, off_t offset,
                       struct fuse_file_info *info) {
    struct node *node = node_of(number);
    UNLESS_STRUCK("write", node, NULL);
    struct record record = {
        .kind = WRITE, .flags = info->flags & O_DSYNC ? SYNCHRONOUS : 0, .inode = node->inode, .offset = offset,
    };
    ssize_t count;
    int failed = IN_ORDER(count = pwrite(info->fh, data, size, offset),
                          (record.data_length = count, write_record(record, NULL, NULL, data)));
    if (failed)
        fuse_reply_err(request, failed);
    else
        fuse_reply_write(request, count);
}

static void disk_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t size,
                           struct fuse_file_info *info) {
    struct node *node = node_of(number);
    UNLESS_STRUCK("write", node, NULL);
    struct record record = {.kind = ALLOCATE, .flags = mode, .inode = node->inode, .offset = offset, .size = size};
    bool is_known = !(mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE));
    fuse_reply_err(request, is_known ? IN_ORDER(fallocate(info->fh, mode, offset, size),
                                                write_record(record, NULL, NULL, NULL)) : EOPNOTSUPP);
}

static void disk_statfs(fuse_req_t request, fuse_ino_t number) {
    int struck = strike("statfs", node_of(number), NULL);
    struct statvfs seen;
    if (struck < 0 && struck != -ENOSPC)
        fuse_reply_err(request, -struck);
    else if (fstatvfs(root.file, &seen))
        fuse_reply_err(request, errno);
    else {
        if (struck == -ENOSPC)
            seen.f_bfree = seen.f_bavail = 0;
        fuse_reply_statfs(request, &seen);
    }
}

/* What was recorded before it began is on the disk once it is answered. */
static void flush(fuse_req_t request, struct node *node, const char *operation, enum kind kind, int data_only) {
    pthread_mutex_lock(&order);
    uint64_t before = records;
    pthread_mutex_unlock(&order);
    int struck = strike(operation, node, NULL);
    struct record record = {
        .kind = struck < 0 ? FLUSH_FAILED : kind, .flags = data_only ? DATA_ONLY : 0, .inode = node->inode, .offset = before,
    };
    pthread_mutex_lock(&order);
    write_record(record, NULL, NULL, NULL);
    pthread_mutex_unlock(&order);
    fuse_reply_err(request, struck < 0 ? -struck : 0);
}

static void disk_fsync(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info) {
    (void)info;
    flush(request, node_of(number), "flush", FLUSH, data_only);
}

static void disk_fsyncdir(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info) {
    (void)info;
    flush(request, node_of(number), "flushdir", FLUSH_DIRECTORY, data_only);
}

static void disk_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value, size_t size, int flags) {
    struct node *node = node_of(number);
    UNLESS_STRUCK("attribute", node, NULL);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    struct record record = {.kind = SETXATTR, .inode = node->inode, .data_length = size};
    fuse_reply_err(request, IN_ORDER(setxattr(link, name, value, size, flags), write_record(record, name, NULL, value)));
}

static void disk_removexattr(fuse_req_t request, fuse_ino_t number, const char *name) {
    struct node *node = node_of(number);
    UNLESS_STRUCK("attribute", node, NULL);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node->file);
    struct record record = {.kind = REMOVEXATTR, .inode = node->inode};
    fuse_reply_err(request, IN_ORDER(removexattr(link, name), write_record(record, name, NULL, NULL)));
}

static void reply_sized(fuse_req_t request, const char *value, ssize_t length, size_t room) {
    if (length < 0)
        fuse_reply_err(request, errno);
    else if (room)
        fuse_reply_buf(request, value, length);
    else
        fuse_reply_xattr(request, length);
}

static void disk_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size) {
    char link[64], value[ATTRIBUTE_BYTES_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node_of(number)->file);
    reply_sized(request, value, getxattr(link, name, value, size), size);
}

static void disk_listxattr(fuse_req_t request, fuse_ino_t number, size_t size) {
    char link[64], names[ATTRIBUTE_BYTES_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", node_of(number)->file);
    reply_sized(request, names, listxattr(link, names, size), size);
}

static void disk_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
    UNLESS_STRUCK("open", node_of(number), NULL);
    int file = openat(node_of(number)->file, ".", O_RDONLY | O_DIRECTORY);
    DIR *directory = file < 0 ? NULL : fdopendir(file);
    if (!directory) {
        fuse_reply_err(request, errno);
        return;
    }
    info->fh = (uintptr_t)directory;
    fuse_reply_open(request, info);
}

static void disk_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
    (void)number;
    closedir((DIR *)(uintptr_t)info->fh);
    fuse_reply_err(request, 0);
}

static void disk_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *info) {
    UNLESS_STRUCK("read", node_of(number), NULL);
    DIR *directory = (DIR *)(uintptr_t)info->fh;
    char *buffer = malloc(size);
    size_t filled = 0;
    offset ? seekdir(directory, offset) : rewinddir(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat seen = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        size_t needed = fuse_add_direntry(request, buffer + filled, size - filled, entry->d_name, &seen, telldir(directory));
        if (needed > size - filled)
            break;
        filled += needed;
    }
    fuse_reply_buf(request, buffer, filled);
    free(buffer);
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .init = disk_init, .lookup = disk_lookup, .forget = disk_forget, .getattr = disk_getattr, .setattr = disk_setattr,
    .readlink = disk_readlink, .mkdir = disk_mkdir, .symlink = disk_symlink, .unlink = disk_unlink, .rmdir = disk_rmdir,
    .link = disk_link, .rename = disk_rename, .create = disk_create, .open = disk_open, .release = disk_release,
    .read = disk_read, .write = disk_write, .fallocate = disk_fallocate, .statfs = disk_statfs, .fsync = disk_fsync,
    .fsyncdir = disk_fsyncdir, .setxattr = disk_setxattr, .getxattr = disk_getxattr, .listxattr = disk_listxattr,
    .removexattr = disk_removexattr, .opendir = disk_opendir, .releasedir = disk_releasedir, .readdir = disk_readdir,
};

static void forget_pages(void) {
    for (size_t bucket = 0; bucket < NODES_BUCKETS; bucket++)
        for (struct node *node = nodes[bucket]; node; node = node->next)
            fuse_lowlevel_notify_inval_inode(session, (uintptr_t)node, 0, 0);
}

static const char *obey(char *line) {
    static char answer[64];
    if (!strncmp(line, "mark ", 5)) {
        struct record record = {.kind = MARK, .data_length = strlen(line + 5)};
        pthread_mutex_lock(&order);
        write_record(record, NULL, NULL, line + 5);
        pthread_mutex_unlock(&order);
        return "ok";
    }
    if (!strcmp(line, "forget")) {
        forget_pages();
        return "ok";
    }
    struct fault *fault = calloc(1, sizeof *fault);
    pthread_mutex_lock(&faults_lock);
    snprintf(answer, sizeof answer, "ok");
    if (sscanf(line, "fault %255s %255s %d %d %ld", fault->operations, fault->pattern, &fault->error, &fault->count,
               &fault->wait_ms) == 5) {
        fault->next = faults;
        faults = fault;
    } else if (!strcmp(line, "clear")) {
        /* Whatever was told is over; the structures are few and are left. */
        faults = NULL;
        clearings++;
        pthread_cond_broadcast(&cleared);
    } else if (!strcmp(line, "hits"))
        snprintf(answer, sizeof answer, "%lu", (unsigned long)hits);
    else
        snprintf(answer, sizeof answer, "what?");
    pthread_mutex_unlock(&faults_lock);
    return answer;
}

static void *take_commands(void *nothing) {
    char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        puts(obey(line));
        fflush(stdout);
    }
    fuse_session_unmount(session);
    _exit(0);
    return nothing;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: disk BACKING MOUNTPOINT LOG\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < OPEN_FILES_MAX ? files.rlim_max : OPEN_FILES_MAX;
    setrlimit(RLIMIT_NOFILE, &files);
    root.file = open(words[1], O_RDONLY | O_DIRECTORY);
    char real[PATH_BYTES_MAX];
    backing_length = realpath(words[1], real) ? strlen(real) : 0;
    root.inode = inode_at(root.file, ".");
    logged = open(words[3], O_WRONLY | O_CREAT | O_APPEND, 0600);
    char *options[] = {words[0], "-odefault_permissions,fsname=disk", "-oallow_other"};
    struct fuse_args arguments = FUSE_ARGS_INIT(geteuid() ? 2 : 3, options);
    umask(0);
    if (root.file >= 0 && logged >= 0)
        session = fuse_session_new(&arguments, &OPERATIONS, sizeof OPERATIONS, NULL);
    if (!session || fuse_session_mount(session, words[2])) {
        perror("it cannot be mounted");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    pthread_t commands;
    pthread_create(&commands, NULL, take_commands, NULL);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, THREADS_MAX);
    fuse_session_loop_mt(session, config);
    return 0;
}
