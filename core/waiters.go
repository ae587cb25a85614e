package core

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/lockkit/lockkit/core/internal/fifo"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/internal/outage"
)

// askTime is how long a release waits at most for the next waiter of its process to
// ask the store.
const askTime = 50 * time.Millisecond

// spareQueues is how many empty queues are kept to be used again.
const spareQueues = 64

// waiters are the queues of this process, one for each key that somebody is
// acquiring, or that a lease has whose hold can be passed on. Only the head of a queue
// talks to the store.
type waiters struct {
	locker *Locker

	mu     order.Mutex[waitersRank]
	of     map[string]*queue
	behind int // how many wait, or waited when they came, behind the head of a queue

	spare []*queue // a few that were left empty

	// contended are keys whose last lone caller had to wait, each at the index
	// that its hash gives it. The next one is ready for that before it asks.
	contended [64]string
	marked    int // how many there are
	seed      maphash.Seed
}

// queue is the callers that want a key, in order of arrival.
type queue struct {
	line fifo.Queue[waiter]
	once int // how many of them want one attempt only
	// holder is a hold of this process that has the key and can be passed on.
	holder *hold
	// asleep is the answer that the head is waiting after; nil while the head
	// is asking the store. A caller that does not wait need not stay then.
	asleep *BusyError
}

// waiter is one caller's place in a queue.
type waiter struct {
	key       string
	once      bool              // wants one attempt only
	first     bool              // found the queue empty, and asks the store at once
	behind    bool              // is counted in waiters.behind
	contended bool              // is first, and will probably have to wait all the same
	refused   bool              // it was the head, and the store said busy
	place     fifo.Node[waiter] // in its queue
	ready     chan struct{}     // closed when it has to look
	answer    error             // why it was sent away; set before ready is closed

	// How it gets a hold of this process.
	takes bool          // one can be passed on to it,
	ttl   time.Duration // with this TTL
	least uint64        // and a token of at least this
	rests bool          // it is the head, and asks nobody until it is woken
	given *hold         // was passed on, and not yet taken
	sent  bool          // asks the store while the hold is still there, to have its place there
	told  chan struct{} // closed when it has an answer then, or leaves; nil if nobody waits for that
	pause time.Duration // how long to leave the key to others that cannot be woken
}

func (n *queue) head() *waiter { return n.line.First() }

func (n *queue) push(w *waiter) {
	n.line.Push(&w.place, w)
	if w.once {
		n.once++
	}
}

func (n *queue) remove(w *waiter) {
	n.line.Remove(&w.place)
	if w.once {
		n.once--
	}
}

// enter puts the caller at the end of its key's queue, as w.
func (q *waiters) enter(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[w.key]
	if n == nil {
		n = q.make(w.key)
	}
	if n.head() == nil {
		n.push(w)
		if !q.park(n) {
			w.first = true
			w.contended = q.marked > 0 && *q.mark(w.key) == w.key
		}
		return
	}
	w.ready = make(chan struct{})
	perKey, total := q.locker.perKey, q.locker.total
	if perKey > 0 && n.line.Len() > perKey || total > 0 && q.behind >= total {
		w.answer = &BusyError{}
	} else if w.once {
		w.answer = n.refusal()
	}
	if w.answer != nil {
		close(w.ready)
		return
	}
	w.behind = true
	q.behind++
	n.push(w)
}

// make adds an empty queue for key.
func (q *waiters) make(key string) *queue {
	n := &queue{}
	if last := len(q.spare) - 1; last >= 0 {
		n, q.spare = q.spare[last], q.spare[:last]
	}
	q.of[key] = n
	return n
}

// drop removes a queue that nobody is in and whose key no hold has.
func (q *waiters) drop(key string, n *queue) {
	if n.head() != nil || n.holder != nil {
		return
	}
	delete(q.of, key)
	if len(q.spare) < spareQueues {
		*n = queue{}
		q.spare = append(q.spare, n)
	}
}

// park has the head rest until the hold of this process is passed on to it, and
// reports whether it does: it asks the store if the hold is never passed on to it. It
// rests for no longer than the hold may be passed on, then it takes its place at the
// store. Where waiters cannot be woken there is no such place: it rests until the hold
// is passed on or released.
func (q *waiters) park(n *queue) bool {
	w, h := n.head(), n.holder
	if h == nil || w.once || q.locker.hears.Load() && (!w.fits(h) || !h.offers(q)) {
		return false
	}
	w.rests = true
	if w.ready == nil {
		w.ready = make(chan struct{})
	}
	if n.once > 0 {
		n.dismiss(n.refusal())
	}
	return true
}

// fits tells whether w can have h next.
func (w *waiter) fits(h *hold) bool {
	return w.takes && w.ttl == h.ttl && w.least <= h.token
}

// pace sends the head that rests for h to the store, since h is not passed on any
// more. Where waiters cannot be woken it rests on, until the key is released.
func (q *waiters) pace(h *hold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.of[h.key]; n != nil && n.holder == h && n.head() != nil && n.head().rests && q.locker.hears.Load() {
		n.head().ask()
	}
}

// ask wakes a head that rests, or waits behind others, to ask the store.
func (w *waiter) ask() {
	w.rests, w.sent = false, true
	close(w.ready)
}

// mark is where the key stands if it is contended.
func (q *waiters) mark(key string) *string {
	return &q.contended[maphash.String(q.seed, key)%uint64(len(q.contended))]
}

// learn notes whether a lone caller had to wait.
func (q *waiters) learn(w *waiter) {
	if w.refused == w.contended {
		return
	}
	switch m := q.mark(w.key); {
	case !w.refused:
		if *m == w.key {
			*m = ""
			q.marked--
		}
	case *m == "":
		q.marked++
		fallthrough
	default:
		*m = w.key
	}
}

// refusal is the answer for a caller that wants one attempt only, while the head
// waits.
func (n *queue) refusal() error {
	switch {
	case n.asleep != nil:
		return n.asleep
	case n.holder != nil && n.head().rests:
		return &BusyError{RetryAfter: n.holder.ttl}
	}
	return nil
}

// await waits until w has to look, until is reached (if it is not zero), closing is
// closed or ctx ends. It returns the reason why it has not.
func (w *waiter) await(ctx context.Context, until time.Time, closing <-chan struct{}) error {
	var timeout <-chan time.Time
	if !until.IsZero() {
		timeout = time.After(time.Until(until))
	}
	select {
	case <-w.ready:
		return w.answer
	case <-timeout:
		return &BusyError{}
	case <-closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns the hold that was passed on to w, nil if none was. w answers for it
// from now on.
func (q *waiters) take(w *waiter) *hold {
	if w.first {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h := w.given
	w.given = nil
	return h
}

// sleep tells the queue that its head was answered busy and waits. Those behind
// it that want one attempt only are sent away with that answer.
func (q *waiters) sleep(w *waiter, busy *BusyError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[w.key]
	n.asleep = busy
	w.tell()
	n.dismiss(busy)
}

// tell tells the releases that wait for it that w has an answer.
func (w *waiter) tell() {
	w.sent = false
	if w.told != nil {
		close(w.told)
		w.told = nil
	}
}

// fail tells the queue that the store did not answer its head. Those behind it
// that want one attempt only are sent away too, and all of them if the server is
// known to be down: one after the other, they would wait for the same time-outs all
// over again.
func (q *waiters) fail(w *waiter, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[w.key]
	if !outage.Known(err) {
		n.dismiss(err)
		return
	}
	for w := n.head().place.Next(); w != nil; w = n.head().place.Next() {
		n.send(w, err)
	}
}

// dismiss sends those behind the head away that want one attempt only.
func (n *queue) dismiss(answer error) {
	for w := n.head().place.Next(); w != nil && n.once > 0; {
		next := w.place.Next()
		if w.once {
			n.send(w, answer)
		}
		w = next
	}
}

// send sends w away.
func (n *queue) send(w *waiter, answer error) {
	n.remove(w)
	w.answer = answer
	close(w.ready)
}

// wake tells the queue that its head asks the store again.
func (q *waiters) wake(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.of[w.key].asleep = nil
}

// leave takes w out of its queue, whether it became the head, was sent away or
// still waits. If it was the head, the next one is. If it leaves with a lease whose
// hold h can be passed on (nil if not), the next one waits for that without asking,
// if it can. Else it asks: a head that leaves with an unused wake-up thereby hands
// that on. A hold that was passed on to w and that it did not take goes to the next
// one, or is returned.
func (q *waiters) leave(w *waiter, h *hold) (unused *hold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	given := w.given
	w.given = nil
	w.tell()
	if w.behind {
		w.behind = false
		q.behind--
	}
	if !w.place.Queued() {
		return nil // was sent away
	}
	n := q.of[w.key]
	head := n.head() == w
	n.remove(w)
	if w.first && !w.once {
		q.learn(w)
	}
	if !head {
		return nil
	}
	n.asleep = nil
	if h != nil && h.stands() {
		n.holder = h // else it was lost meanwhile, and has told nobody
	}
	next := n.head()
	switch {
	case given != nil && next != nil && next.fits(given) && given.moves() && !q.locker.isClosing():
		next.given, next.rests = given, false
		close(next.ready)
		return nil
	case given != nil:
		n.holder, unused = nil, given
	}
	if next != nil && !q.park(n) {
		next.ask()
	}
	q.drop(w.key, n)
	return unused
}

// part ends what the queue knows of l, which has ended and had h: h is passed on to
// the head, if that rests and may have it. Else the key is about to be released, and
// the head takes its place at the store, if it has none yet: asks is closed when it
// has. Where waiters cannot be woken it rests until vacate.
func (q *waiters) part(l *Lease, h *hold) (passed bool, asks <-chan struct{}, rests bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[h.key]
	if n == nil || n.holder != h {
		return false, nil, false
	}
	switch w := n.head(); {
	case w == nil:
	case w.rests && !q.locker.isClosing() && w.fits(h) && h.pass(l):
		w.given, w.rests = h, false
		close(w.ready)
		return true, nil, false
	case w.rests && !q.locker.hears.Load():
		return false, nil, true
	case w.rests || w.sent:
		if w.rests {
			w.ask()
		}
		if w.told == nil {
			w.told = make(chan struct{})
		}
		asks = w.told
	}
	n.holder = nil
	q.drop(h.key, n)
	return false, asks, false
}

// vacate tells the queue that h does not have its key any more, so that its head has
// to ask the store.
func (q *waiters) vacate(h *hold) {
	now := q.locker.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[h.key]
	if n == nil || n.holder != h {
		return
	}
	n.holder = nil
	if w := n.head(); w != nil && w.rests {
		w.pause = min(now.Since(h.arrived), passTime) / 2
		w.ask()
	}
	q.drop(h.key, n)
}
