/* This library is preloaded into a program and makes its disk full while the first byte of
   the file that TESTSERVER_DISK names is 1. A write to the full disk fails if it
   makes a regular file longer. Another disk is never full. This other disk has the program's
   standard streams, and the files whose paths contain the value of TESTSERVER_ROOMY. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const volatile char *full;
static const char *roomy;

__attribute__((constructor)) static void setup(void) {
	int fd = open(getenv("TESTSERVER_DISK"), O_RDONLY);
	void *page = mmap(0, 1, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || page == MAP_FAILED)
		abort();
	close(fd);
	roomy = getenv("TESTSERVER_ROOMY");
	full = page;
}

/* fits reports whether there is room for n bytes at the offset at. A negative at stands for
   the offset of the next write. */
static int fits(int fd, off_t at, size_t n) {
	struct stat s;
	char link[64], path[4096];
	ssize_t length;
	if (!full || !*full || fd <= STDERR_FILENO || fstat(fd, &s) || !S_ISREG(s.st_mode))
		return 1;
	if (at < 0)
		at = fcntl(fd, F_GETFL) & O_APPEND ? s.st_size : lseek(fd, 0, SEEK_CUR);
	if (at + (off_t)n <= s.st_size)
		return 1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	path[length < 0 ? 0 : length] = 0;
	return roomy && *roomy && strstr(path, roomy);
}

static size_t sum(const struct iovec *v, int count) {
	size_t n = 0;
	for (int i = 0; i < count; i++)
		n += v[i].iov_len;
	return n;
}

static int failed(void) {
	errno = ENOSPC;
	return -1;
}

ssize_t write(int fd, const void *from, size_t n) {
	return fits(fd, -1, n) ? syscall(SYS_write, fd, from, n) : failed();
}

ssize_t writev(int fd, const struct iovec *v, int count) {
	return fits(fd, -1, sum(v, count)) ? syscall(SYS_writev, fd, v, count) : failed();
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
	return fits(fd, at, n) ? syscall(SYS_pwrite64, fd, from, n, at) : failed();
}

ssize_t pwritev(int fd, const struct iovec *v, int count, off_t at) {
	return fits(fd, at, sum(v, count)) ? syscall(SYS_pwritev, fd, v, count, at, at >> 32) : failed();
}

int fallocate(int fd, int mode, off_t at, off_t n) {
	return mode || fits(fd, at, n) ? syscall(SYS_fallocate, fd, mode, at, n) : failed();
}

int posix_fallocate(int fd, off_t at, off_t n) {
	return fallocate(fd, 0, at, n) ? errno : 0;
}

ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) { return pwrite(fd, from, n, at); }
ssize_t pwritev64(int fd, const struct iovec *v, int count, off_t at) { return pwritev(fd, v, count, at); }
int fallocate64(int fd, int mode, off_t at, off_t n) { return fallocate(fd, mode, at, n); }
int posix_fallocate64(int fd, off_t at, off_t n) { return posix_fallocate(fd, at, n); }
