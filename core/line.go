package core

import (
	"context"
	"sync"
	"time"
)

// lines are the queues of this process, one for each key that somebody is
// acquiring. Only the head of a line talks to the store.
type lines struct {
	mu sync.Mutex
	of map[string]*line

	spare *line // the last one that was left empty
}

// line is a queue of callers in order of arrival, linked so that any of
// thousands can leave at once.
type line struct {
	head, tail *turn
	once       int // how many of them want one attempt only
	// asleep is the answer that the head is waiting after; nil while the head
	// is asking the store. Who does not want to wait need not stay then.
	asleep *BusyError
}

// turn is one caller's place in a line.
type turn struct {
	key        string
	once       bool // wants one attempt only
	first      bool // found the line empty
	in         bool // is in its line
	prev, next *turn
	ready      chan struct{}
	answer     error // why it was sent away; set before ready is closed
}

func (n *line) push(t *turn) {
	t.in, t.prev = true, n.tail
	if n.tail == nil {
		n.head = t
	} else {
		n.tail.next = t
	}
	n.tail = t
	if t.once {
		n.once++
	}
}

func (n *line) remove(t *turn) {
	if t.prev == nil {
		n.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		n.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.in, t.prev, t.next = false, nil, nil
	if t.once {
		n.once--
	}
}

// enter puts the caller at the end of the key's line, as t.
func (l *lines) enter(t *turn, key string, once bool) {
	*t = turn{key: key, once: once}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of[key]
	if n == nil {
		if n = l.spare; n == nil {
			n = &line{}
		}
		l.of[key], l.spare = n, nil
		t.first = true
	} else {
		t.ready = make(chan struct{})
		if once && n.asleep != nil {
			t.answer = n.asleep
			close(t.ready)
			return
		}
	}
	n.push(t)
}

// await waits until t is the head, until is reached (if it is not zero), closing
// is closed or ctx ends. It returns the reason why t is not the head.
func (t *turn) await(ctx context.Context, until time.Time, closing <-chan struct{}) error {
	if t.first {
		return nil
	}
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.ready:
		return t.answer
	case <-timeout:
		return &BusyError{}
	case <-closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sleep tells the line that its head was answered busy and waits. Those behind
// it who want one attempt only are sent away with that answer.
func (l *lines) sleep(t *turn, busy *BusyError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of[t.key]
	n.asleep = busy
	n.dismiss(busy)
}

// fail tells the line that the store did not answer its head. Those behind it
// who want one attempt only are sent away too: one after the other, they would
// wait for the same time-outs all over again.
func (l *lines) fail(t *turn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[t.key].dismiss(err)
}

// dismiss sends those behind the head away who want one attempt only.
func (n *line) dismiss(answer error) {
	for t := n.head.next; t != nil && n.once > 0; {
		next := t.next
		if t.once {
			n.remove(t)
			t.answer = answer
			close(t.ready)
		}
		t = next
	}
}

// wake tells the line that its head asks the store again.
func (l *lines) wake(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[t.key].asleep = nil
}

// leave takes t out of its line, whether it became the head, was sent away or
// still waits. If it was the head, the next one is: a head that leaves with an
// unused wake-up thereby hands it on, since a new head begins by asking.
func (l *lines) leave(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.in {
		return // sent away
	}
	n := l.of[t.key]
	head := n.head == t
	n.remove(t)
	switch {
	case !head:
	case n.head == nil:
		delete(l.of, t.key)
		*n = line{}
		l.spare = n
	default:
		n.asleep = nil
		close(n.head.ready)
	}
}
