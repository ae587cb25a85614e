package core

import (
	"container/heap"
	"slices"
	"time"
)

// dueQueue is a heap, what is due first on top. All that it compares stands in it,
// and a hold does not know its place: a hundred thousand holds are not in the
// processor's cache.
type dueQueue []entry

// entry is a hold that is due at some time.
type entry struct {
	due  time.Duration // since the epoch
	seat *seat
}

// seat leads from an entry to its hold. A stale entry keeps nothing of its hold in
// memory.
type seat struct {
	hold *hold // nil if it was removed, or is due at another time
}

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q dueQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push and Pop are there for package heap. They pass nothing on, which would
// need an allocation.
func (q *dueQueue) Push(any) {}

func (q *dueQueue) Pop() any {
	old := *q
	old[len(old)-1] = entry{}
	*q = old[:len(old)-1]
	return nil
}

// drop makes h's entry stale. Stale ones are taken out when they come up, or all
// at once when they are as many as the others.
func (w *watchdog) drop(h *hold) {
	if h.seat == nil {
		return
	}
	h.seat.hold, h.seat = nil, nil
	if w.stale++; w.stale == len(w.queue) || w.stale > 64 && w.stale > len(w.queue)/2 {
		w.queue = slices.DeleteFunc(w.queue, func(e entry) bool {
			if e.seat.hold != nil {
				return false
			}
			w.reuse(e.seat)
			return true
		})
		w.stale = 0
		heap.Init(&w.queue)
	}
}

// pop takes out the entry on top and returns its hold, nil if it was stale.
func (w *watchdog) pop() *hold {
	s := w.queue[0].seat
	heap.Pop(&w.queue)
	h := s.hold
	if h == nil {
		w.stale--
	} else {
		s.hold, h.seat = nil, nil
	}
	w.reuse(s)
	return h
}

func (w *watchdog) reuse(s *seat) {
	if len(w.spare) < 64 {
		w.spare = append(w.spare, s)
	}
}
