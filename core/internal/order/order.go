//go:build !race

// Package order is for mutexes that are taken in an order, so that no two goroutines
// wait for each other. A test in the race build can see whether they are.
package order

import "sync"

// Mutex is a sync.Mutex with a rank, the length of the array type R. One is taken before
// those of a greater rank.
type Mutex[R any] struct{ sync.Mutex }
