/* This library is preloaded into a program and changes the program's wall clock. The file
   that TESTSERVER_CLOCK names has the offset and the rate of the clock. The monotonic clock
   runs at the same rate, because a server may use both clocks together, but is never set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile struct {
	int64_t since, off; /* in ns */
	double rate;
} *dial;

static int64_t began; /* the monotonic clock at the start, in ns */

static int64_t ns_of(const struct timespec *at) { return at->tv_sec * 1000000000LL + at->tv_nsec; }

__attribute__((constructor)) static void setup(void) {
	struct timespec now;
	int fd = open(getenv("TESTSERVER_CLOCK"), O_RDONLY);
	void *page = mmap(0, sizeof *dial, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || page == MAP_FAILED)
		abort();
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	began = ns_of(&now);
	dial = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
	int failed = syscall(SYS_clock_gettime, id, at);
	if (!failed && dial) {
		int64_t ns = ns_of(at);
		switch (id) {
		case CLOCK_REALTIME:
		case CLOCK_REALTIME_COARSE:
			ns += dial->off + (int64_t)((ns - dial->since) * (dial->rate - 1));
			break;
		case CLOCK_MONOTONIC:
		case CLOCK_MONOTONIC_COARSE:
			ns += (int64_t)((ns - began) * (dial->rate - 1));
		}
		at->tv_sec = ns / 1000000000;
		at->tv_nsec = ns % 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
