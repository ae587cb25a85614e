// Package neighbours drives the real clients of other languages and libraries, so
// that tests can share locks with them. A small program for each language carries
// out the commands of a Go test. Its packages come from their registries, once, and
// are stored below the user's cache directory; versions.txt has their versions.
//
//	r := neighbours.StartRedisson(t, neighbours.Redisson4, server.Addr)
//	jane := r.Thread("jane")
//	err := jane.Lock(neighbours.RLock, "order:42", 0) // 0: until it is unlocked, with the watchdog
//	waits := r.Thread("joe").Begin("lock", neighbours.RLock, "order:42", time.Minute)
//	err = jane.Unlock(neighbours.RLock, "order:42")
//	_, err = waits.Answer() // once Redisson's waiter has been woken
//	r.Kill()                // and Pause, Resume
//
// A test skips, and says why, if a program or a registry is missing. With
// LOCKKIT_REQUIRE_SERVERS=1 it fails.
package neighbours
