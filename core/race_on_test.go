//go:build race

package core_test

// crowd is the number of goroutines that wait at once. The race detector supports at
// most 8128 goroutines.
const crowd = 4000
