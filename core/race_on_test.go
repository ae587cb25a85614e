//go:build race

package core_test

// crowd is the number of goroutines that may wait at once: the race detector dies of
// more than 8128.
const crowd = 4000
