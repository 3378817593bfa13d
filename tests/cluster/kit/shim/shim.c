/*
 * A shim for LD_PRELOAD: counts the externally visible steps of a program, and at one of them kills it,
 * stops it, or lets the step fail. Also shifts its wall clock.
 *
 * A step is a call that changes the file system below one of the folders of DL_SHIM_FOLDERS
 * (separated by colons), or that sends on a socket. The caller steers through the file
 * DL_SHIM_CONTROL, which both map (kit/shim.py has its layout).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NAMES 1024

enum { NOTHING, KILL, STOP, FAIL_ONCE, FAIL_ON };

struct control {
	_Atomic uint64_t steps;  /* since the caller last set it to 0 */
	_Atomic uint64_t at;     /* the step at which to act, from 1; 0: none */
	_Atomic uint32_t action;
	_Atomic uint32_t error;  /* of a step that fails */
	_Atomic int64_t clock;   /* nanoseconds that the wall clock is ahead */
	_Atomic uint32_t armed;  /* whether steps are counted */
	_Atomic uint32_t sockets; /* whether sending is a step */
	_Atomic uint32_t acted;  /* whether it was killed or stopped, or is about to be */
	uint32_t unused;
	char names[NAMES][128];  /* what the first steps were */
};

static struct control *control;
static char *folders[16];
static int folder_count;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("DL_SHIM_CONTROL");
	if (!path)
		return;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		_exit(99);
	void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		_exit(99);
	char *list = strdup(getenv("DL_SHIM_FOLDERS") ? getenv("DL_SHIM_FOLDERS") : "");
	for (char *folder = strtok(list, ":"); folder && folder_count < 16; folder = strtok(NULL, ":"))
		folders[folder_count++] = folder;
	control = map;
}

static int inside(const char *path)
{
	for (int i = 0; i < folder_count; i++) {
		size_t length = strlen(folders[i]);
		if (strncmp(path, folders[i], length) == 0 && (path[length] == '/' || path[length] == 0))
			return 1;
	}
	return 0;
}

/* The path of an open file or folder. */
static int path_of(int fd, char *path, size_t size)
{
	char link[40];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, size - 1);
	path[length > 0 ? length : 0] = 0;
	return length > 0;
}

/* Takes a step; not 0: it fails, with errno set. */
static int step(const char *what, const char *path)
{
	uint64_t number = atomic_fetch_add(&control->steps, 1) + 1;
	if (number <= NAMES)
		snprintf(control->names[number - 1], sizeof control->names[0], "%s %s", what, path);
	uint64_t at = atomic_load(&control->at);
	uint32_t action = atomic_load(&control->action);
	if (at == 0 || number < at || (number > at && action != FAIL_ON))
		return 0;
	if (action == KILL || action == STOP) {
		/* Said first: who disarms now learns of it, or is in time. */
		atomic_store(&control->acted, 1);
		if (!atomic_load(&control->armed)) {
			atomic_store(&control->acted, 0);
			return 0;
		}
	}
	switch (action) {
	case KILL:
		syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
		for (;;)
			pause();
	case STOP:
		syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
		return 0;
	case FAIL_ONCE:
	case FAIL_ON:
		errno = (int)atomic_load(&control->error);
		return -1;
	}
	return 0;
}

static int step_at(const char *what, int dir, const char *name)
{
	char path[PATH_MAX * 2];
	if (!control || !atomic_load(&control->armed))
		return 0;
	if (name[0] == '/')
		snprintf(path, sizeof path, "%s", name);
	else if (dir == AT_FDCWD || !path_of(dir, path, PATH_MAX))
		return 0;
	else
		snprintf(path + strlen(path), PATH_MAX, "/%s", name);
	return inside(path) ? step(what, path) : 0;
}

static int step_on(const char *what, int fd)
{
	char path[PATH_MAX];
	if (!control || !atomic_load(&control->armed) || !path_of(fd, path, sizeof path))
		return 0;
	if (strncmp(path, "socket:", 7) == 0)
		return atomic_load(&control->sockets) && what[0] == 's' ? step(what, path) : 0;
	return inside(path) ? step(what, path) : 0;
}

#define BY_FD(result, name, parameters, arguments, fd, what)                   \
	result name parameters                                                 \
	{                                                                      \
		static result(*real) parameters;                               \
		if (!real)                                                     \
			real = (result(*) parameters)dlsym(RTLD_NEXT, #name);  \
		return step_on(what, fd) ? -1 : real arguments;                \
	}

#define BY_NAME(result, name, parameters, arguments, dir, path)                \
	result name parameters                                                 \
	{                                                                      \
		static result(*real) parameters;                               \
		if (!real)                                                     \
			real = (result(*) parameters)dlsym(RTLD_NEXT, #name);  \
		return step_at(#name, dir, path) ? -1 : real arguments;        \
	}

static int is_socket(int fd)
{
	struct stat stat;
	return fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode);
}

BY_FD(int, fsync, (int fd), (fd), fd, "fsync")
BY_FD(int, fdatasync, (int fd), (fd), fd, "fdatasync")
BY_FD(int, syncfs, (int fd), (fd), fd, "syncfs")
BY_FD(int, fchmod, (int fd, mode_t mode), (fd, mode), fd, "fchmod")
BY_FD(int, fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid), fd, "fchown")
BY_FD(int, ftruncate, (int fd, off_t size), (fd, size), fd, "ftruncate")
BY_FD(int, ftruncate64, (int fd, off_t size), (fd, size), fd, "ftruncate")
BY_FD(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd, is_socket(fd) ? "send" : "write")
BY_FD(ssize_t, writev, (int fd, const struct iovec *data, int count), (fd, data, count), fd, is_socket(fd) ? "send" : "write")
BY_FD(ssize_t, pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fd, "write")
BY_FD(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), fd, "send")
BY_FD(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), fd, "send")
BY_NAME(int, rename, (const char *from, const char *to), (from, to), AT_FDCWD, to)
BY_NAME(int, renameat, (int dir, const char *from, int to_dir, const char *to), (dir, from, to_dir, to), to_dir, to)
BY_NAME(int, renameat2, (int dir, const char *from, int to_dir, const char *to, unsigned flags), (dir, from, to_dir, to, flags), to_dir, to)
BY_NAME(int, unlink, (const char *name), (name), AT_FDCWD, name)
BY_NAME(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags), dir, name)
BY_NAME(int, rmdir, (const char *name), (name), AT_FDCWD, name)
BY_NAME(int, mkdir, (const char *name, mode_t mode), (name, mode), AT_FDCWD, name)
BY_NAME(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), dir, name)
BY_NAME(int, symlink, (const char *to, const char *name), (to, name), AT_FDCWD, name)
BY_NAME(int, symlinkat, (const char *to, int dir, const char *name), (to, dir, name), dir, name)
BY_NAME(int, linkat, (int from_dir, const char *from, int dir, const char *name, int flags), (from_dir, from, dir, name, flags), dir, name)
BY_NAME(int, fchmodat, (int dir, const char *name, mode_t mode, int flags), (dir, name, mode, flags), dir, name)
BY_NAME(int, fchownat, (int dir, const char *name, uid_t uid, gid_t gid, int flags), (dir, name, uid, gid, flags), dir, name)
BY_NAME(int, chmod, (const char *name, mode_t mode), (name, mode), AT_FDCWD, name)

/* Opening is a step where it makes or empties the file. */
#define OPENAT(name)                                                                     \
	int name(int dir, const char *path, int flags, ...)                              \
	{                                                                                \
		static int (*real)(int, const char *, int, ...);                         \
		va_list more;                                                            \
		va_start(more, flags);                                                   \
		mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
		va_end(more);                                                            \
		if (!real)                                                               \
			real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name); \
		if (flags & (O_CREAT | O_TRUNC) && step_at("create", dir, path))         \
			return -1;                                                       \
		return real(dir, path, flags, mode);                                     \
	}
#define OPEN(name)                                                                       \
	int name(const char *path, int flags, ...)                                       \
	{                                                                                \
		static int (*real)(const char *, int, ...);                              \
		va_list more;                                                            \
		va_start(more, flags);                                                   \
		mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
		va_end(more);                                                            \
		if (!real)                                                               \
			real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
		if (flags & (O_CREAT | O_TRUNC) && step_at("create", AT_FDCWD, path))    \
			return -1;                                                       \
		return real(path, flags, mode);                                          \
	}
OPENAT(openat)
OPENAT(openat64)
OPEN(open)
OPEN(open64)

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, now);
	if (result == 0 && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t ahead = atomic_load(&control->clock);
		now->tv_sec += ahead / 1000000000;
		now->tv_nsec += ahead % 1000000000;
		if (now->tv_nsec < 0)
			now->tv_sec--, now->tv_nsec += 1000000000;
		else if (now->tv_nsec >= 1000000000)
			now->tv_sec++, now->tv_nsec -= 1000000000;
	}
	return result;
}
