//go:build !race

// Package order is for mutexes that are taken in an order, so that no two goroutines
// wait for each other. A test in the race build can see whether they are.
package order

import "sync"

// Rank is a type that names a place in the order.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with the rank of R. One is taken before those of a greater rank.
type Mutex[R Rank] struct{ sync.Mutex }
