//go:build !race

package core_test

const crowd = 10_000

// noMutex does nothing: only the race build watches mutexes.
func noMutex() {}
