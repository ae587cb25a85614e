// Package neighbours drives the real clients of other languages and libraries, so that
// tests can share locks with them. A small program for each language carries out the
// commands of a Go test. The packages of the programs in Java, Python and JavaScript
// are downloaded from their registries once, and stored in the user's cache directory.
// versions.txt lists their versions, and golang/go.mod the versions for the programs in
// Go.
//
//	r := neighbours.StartRedisson(t, neighbours.Redisson4, server.Addr)
//	jane := r.Thread("jane")
//	err := jane.Lock(neighbours.RLock, "order:42", 0) // 0: until Unlock, with the watchdog
//	waits := r.Thread("joe").Begin("lock", neighbours.RLock, "order:42", time.Minute)
//	err = jane.Unlock(neighbours.RLock, "order:42")
//	_, err = waits.Answer() // returns after Redisson's waiter has got the lock
//	r.Kill()                // there are also Pause and Resume
//
// If a program or a registry is missing, a test skips and logs the reason. With
// LOCKKIT_REQUIRE_SERVERS=1 the test fails.
package neighbours
