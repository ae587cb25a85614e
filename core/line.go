package core

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// spareLines is how many empty lines are kept to be used again.
const spareLines = 64

// lines are the queues of this process, one for each key that somebody is
// acquiring. Only the head of a line talks to the store.
type lines struct {
	perKey, total int // bounds of those who stand behind the first of a line; 0 for none

	mu     sync.Mutex
	of     map[string]*line
	behind int // how many stand, or stood when they came, behind the first of a line

	spare []*line // a few that were left empty

	// contended are keys whose last lone caller had to wait, each at the place
	// that its hash gives it. The next one is ready for that before it asks.
	contended [64]string
	marked    int // how many there are
	seed      maphash.Seed
}

// line is a queue of callers in order of arrival, linked so that any of
// thousands can leave at once.
type line struct {
	head, tail *turn
	length     int
	once       int // how many of them want one attempt only
	// holder is the lease of this process that has the key, if it was granted
	// with others behind it and can be passed on. The head then need not ask.
	holder *Lease
	// asleep is the answer that the head is waiting after; nil while the head
	// is asking the store. Who does not want to wait need not stay then.
	asleep *BusyError
}

// turn is one caller's place in a line.
type turn struct {
	key        string
	once       bool // wants one attempt only
	first      bool // found the line empty
	behind     bool // counts among those who do not
	contended  bool // found it empty, and will probably have to wait all the same
	refused    bool // it was the head, and the store said busy
	in         bool // is in its line
	prev, next *turn
	ready      chan struct{} // closed when it has to look
	answer     error         // why it was sent away; set before ready is closed

	// What it can be given, see handover.go.
	claim *Claim // nil if it has to ask
	name  string
	whole bool  // its lease is not extended, and has to have its whole TTL
	asked bool  // it has asked the store, which may remember it
	rests bool  // it is the head, and asks nobody until it is woken
	gift  *gift // on its way, or given and not yet taken
}

func (n *line) push(t *turn) {
	t.in, t.prev = true, n.tail
	if n.tail == nil {
		n.head = t
	} else {
		n.tail.next = t
	}
	n.tail = t
	n.length++
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
	n.length--
	if t.once {
		n.once--
	}
}

// enter puts the caller at the end of its key's line, as t.
func (l *lines) enter(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := t.key
	n := l.of[key]
	if n == nil {
		if last := len(l.spare) - 1; last >= 0 {
			n, l.spare = l.spare[last], l.spare[:last]
		} else {
			n = &line{}
		}
		l.of[key] = n
		t.first = true
		t.contended = l.marked > 0 && *l.mark(key) == key
	} else {
		t.ready = make(chan struct{})
		if l.perKey > 0 && n.length > l.perKey || l.total > 0 && l.behind >= l.total {
			t.answer = &BusyError{}
		} else if t.once {
			t.answer = n.refusal()
		}
		if t.answer != nil {
			close(t.ready)
			return
		}
		t.behind = true
		l.behind++
	}
	n.push(t)
}

// mark is where the key stands if it is contended.
func (l *lines) mark(key string) *string {
	return &l.contended[maphash.String(l.seed, key)%uint64(len(l.contended))]
}

// learn notes whether a lone caller had to wait.
func (l *lines) learn(t *turn) {
	if t.refused == t.contended {
		return
	}
	switch m := l.mark(t.key); {
	case !t.refused:
		if *m == t.key {
			*m = ""
			l.marked--
		}
	case *m == "":
		l.marked++
		fallthrough
	default:
		*m = t.key
	}
}

// refusal is the answer for who wants one attempt only, while the head waits.
func (n *line) refusal() error {
	switch {
	case n.asleep != nil:
		return n.asleep
	case n.holder != nil && n.head.rests:
		return &BusyError{RetryAfter: n.holder.first.claim.TTL}
	}
	return nil
}

// await waits until t is the head or was given the key, until is reached (if it
// is not zero), closing is closed or ctx ends. It returns the reason why it is
// neither.
func (t *turn) await(ctx context.Context, until time.Time, closing <-chan struct{}) error {
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
	n.asleep, t.asked = busy, true
	n.dismiss(busy)
	t.ready = nil // was heard
	if t.claim != nil {
		t.rests, t.ready = true, make(chan struct{})
	}
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

// wake tells the line that its head asks the store again, and returns true if
// the head was given the key, or is about to be, so that it must not.
func (l *lines) wake(t *turn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[t.key].asleep = nil
	t.rests = false
	return t.gift != nil
}

// leave takes t out of its line, whether it became the head, was sent away or
// still waits. If it was the head, the next one is: a head that leaves with an
// unused wake-up thereby hands it on, since a new head begins by asking. If it
// leaves with a lease that can be passed on, the next one waits for that without
// asking, if it can. It returns what t was given and has not taken.
func (l *lines) leave(t *turn, lease *Lease) (unused *gift) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := t.gift; g != nil {
		if g.left = true; g.done {
			unused = g
		}
		t.gift = nil
	}
	if t.behind {
		t.behind = false
		l.behind--
	}
	if !t.in {
		return unused // sent away
	}
	n := l.of[t.key]
	head := n.head == t
	n.remove(t)
	if t.first && !t.once {
		l.learn(t)
	}
	switch {
	case !head:
	case n.head == nil:
		delete(l.of, t.key)
		if len(l.spare) < spareLines {
			*n = line{}
			l.spare = append(l.spare, n)
		}
	default:
		if lease != nil && !lease.stands() {
			lease = nil // it was lost meanwhile, and told nobody of that
		}
		n.asleep, n.holder = nil, lease
		if lease != nil {
			lease.heads = true
		}
		if next := n.head; lease == nil || next.claim == nil {
			close(next.ready)
		} else if next.rests = true; n.once > 0 {
			n.dismiss(n.refusal())
		}
	}
	return unused
}
