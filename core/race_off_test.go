//go:build !race

package core_test

const crowd = 10_000

// noMutex does something in the race build.
func noMutex() {}
