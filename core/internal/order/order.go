//go:build !race

// Package order provides mutexes with a fixed order of locking, so that no two
// goroutines wait for each other. In the race build a test can check the order.
package order

import "sync"

// Rank is implemented by types that identify a position in the order.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with the rank of R. It must be locked before mutexes of a
// greater rank.
type Mutex[R Rank] struct{ sync.Mutex }
