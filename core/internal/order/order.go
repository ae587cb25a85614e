//go:build !race

// Package order is for mutexes that are taken in an order, so that no two goroutines
// wait for each other. A test in the race build can see whether they are.
package order

import "sync"

// Rank is a type for each kind of mutex: one is taken before those of a greater rank.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with a rank.
type Mutex[R Rank] struct{ sync.Mutex }
