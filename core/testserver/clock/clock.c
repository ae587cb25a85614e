/* Gives a program another wall clock: it is preloaded, and reads from the file
   that TESTSERVER_CLOCK names how far that clock is off, and how fast it runs. The
   monotonic clock stays as it is. */
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

__attribute__((constructor)) static void setup(void) {
	int fd = open(getenv("TESTSERVER_CLOCK"), O_RDONLY);
	void *page = mmap(0, sizeof *dial, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || page == MAP_FAILED)
		abort();
	dial = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
	int failed = syscall(SYS_clock_gettime, id, at);
	if (!failed && dial && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t ns = at->tv_sec * 1000000000LL + at->tv_nsec;
		ns += dial->off + (int64_t)((ns - dial->since) * (dial->rate - 1));
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
