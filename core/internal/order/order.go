//go:build !race

// Package order is for mutexes that are taken in an order, so that no two goroutines
// wait for each other. In the race build a test can check the order.
package order

import "sync"

// Rank is a type that names a place in the order.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with the rank of R. A mutex is taken before those of a greater
// rank.
type Mutex[R Rank] struct{ sync.Mutex }
