// Package due provides a queue of values that is ordered by their due times.
package due

import (
	"container/heap"
	"slices"
	"time"
)

// Queue contains values. The value that is due first is in front. The zero Queue is
// empty. A Queue is not safe for concurrent use.
//
// A Queue is a heap that contains the due times, so that comparing touches no value. A
// value does not store its position in the heap either, because each move in the heap
// would then write to a value. A hundred thousand values do not fit in the processor's
// cache. So a removed value leaves a stale item behind, which is removed when it comes
// to the front. Remove removes all stale items if they are the majority and more than
// 64, or if no other items are left.
type Queue[T any] struct {
	items items[T]
	stale int
	spare []*Entry[T] // a few entries for reuse
}

// Entry refers to a value in the queue, until the value is removed.
type Entry[T any] struct{ value *T }

type item[T any] struct {
	due   time.Duration
	entry *Entry[T]
}

// Len returns the number of values.
func (q *Queue[T]) Len() int { return len(q.items) - q.stale }

// Add adds v, which is due at the given time of the caller's clock.
func (q *Queue[T]) Add(at time.Duration, v *T) *Entry[T] {
	var e *Entry[T]
	if last := len(q.spare) - 1; last >= 0 {
		e, q.spare = q.spare[last], q.spare[:last]
	} else {
		e = new(Entry[T])
	}
	e.value = v
	q.items = append(q.items, item[T]{at, e})
	heap.Fix(&q.items, len(q.items)-1)
	return e
}

// Remove removes the value of e. The caller must not use e any more. If e is nil,
// Remove does nothing.
func (q *Queue[T]) Remove(e *Entry[T]) {
	if e == nil {
		return
	}
	e.value = nil
	if q.stale++; q.stale == len(q.items) || q.stale > 64 && q.stale > len(q.items)/2 {
		q.items = slices.DeleteFunc(q.items, func(i item[T]) bool {
			if i.entry.value != nil {
				return false
			}
			q.reuse(i.entry)
			return true
		})
		q.stale = 0
		heap.Init(&q.items)
	}
}

// First returns the value that is due first and its due time, or nil if the queue is
// empty.
func (q *Queue[T]) First() (at time.Duration, v *T) {
	for len(q.items) > 0 {
		first := q.items[0]
		if first.entry.value != nil {
			return first.due, first.entry.value
		}
		heap.Pop(&q.items)
		q.reuse(first.entry)
		q.stale--
	}
	return 0, nil
}

// All returns the values, in no order.
func (q *Queue[T]) All() (all []*T) {
	for _, i := range q.items {
		if v := i.entry.value; v != nil {
			all = append(all, v)
		}
	}
	return all
}

func (q *Queue[T]) reuse(e *Entry[T]) {
	if len(q.spare) < 64 {
		q.spare = append(q.spare, e)
	}
}

// items is a heap for package heap.
type items[T any] []item[T]

func (q items[T]) Len() int           { return len(q) }
func (q items[T]) Less(i, j int) bool { return q[i].due < q[j].due }
func (q items[T]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push transfers no value, and Pop returns none. To pass a value as any would need an
// allocation.
func (q *items[T]) Push(any) {}

func (q *items[T]) Pop() any {
	last := len(*q) - 1
	(*q)[last] = item[T]{}
	*q = (*q)[:last]
	return nil
}
