package core

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/lockkit/lockkit/core/internal/fifo"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/internal/outage"
)

// askTime bounds the wait of a release until the next waiter of its process has asked
// the store.
const askTime = 50 * time.Millisecond

// spareQueues is how many empty queues are kept to be used again.
const spareQueues = 64

// waiters are the queues of this process: one for each key that a caller is
// acquiring, or whose hold can be passed on. Only the head of a queue talks to the
// store.
type waiters struct {
	locker *Locker

	mu     order.Mutex[waitersRank]
	of     map[string]*queue
	behind int // waiters that were behind the head of a queue when they came

	spare []*queue // a few that were left empty

	// contended are keys whose last lone caller had to wait, each at the index
	// that its hash gives it. The next lone caller opens its watch before it asks.
	contended [64]string
	marked    int // how many there are
	seed      maphash.Seed
}

// queue is the callers that want a key, in order of arrival.
type queue struct {
	line  fifo.Queue[waiter]
	tries int // how many of them are tryOnly
	// holder is a hold of this process that has the key and can be passed on.
	holder *hold
	// asleep is the busy answer after which the head waits; nil while it asks the
	// store. While it is set, it is the answer to a caller that does not wait.
	asleep *BusyError
}

// waiter is one caller's place in a queue.
type waiter struct {
	key       string
	tryOnly   bool              // does not wait for a busy key
	first     bool              // found the queue empty, and asks the store at once; no release waits for it
	behind    bool              // is counted in waiters.behind
	contended bool              // is first, but the key will probably be busy
	refused   bool              // was the head, and the store answered busy
	node      fifo.Node[waiter] // in its queue
	ready     chan struct{}     // closed when it is the head, was given a hold, or was refused
	answer    error             // why it was refused; set before ready is closed

	// How it is passed a hold of this process.
	accepts  bool          // takes a hold that is passed on,
	ttl      time.Duration // with this TTL
	minToken uint64        // and at least this token
	parked   bool          // is the head, and does not ask the store: it waits for the hold
	given    *hold         // passed on to it, and not yet taken
	placing  bool          // asks the store, as the head: a release waits until it has a place in the store's list
	placed   chan struct{} // closed when that is answered, or it leaves; nil if no release waits for that
	pause    time.Duration // before it asks: other processes poll, and have the key first
}

func (q *queue) head() *waiter { return q.line.First() }

func (q *queue) push(w *waiter) {
	q.line.Push(&w.node, w)
	if w.tryOnly {
		q.tries++
	}
}

func (q *queue) remove(w *waiter) {
	q.line.Remove(&w.node)
	if w.tryOnly {
		q.tries--
	}
}

// enter puts w at the end of its key's queue, or refuses it.
func (ws *waiters) enter(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	if q == nil {
		q = ws.addQueue(w.key)
	}
	if q.head() == nil {
		q.push(w)
		if !ws.park(q) {
			w.first = true
			w.contended = ws.marked > 0 && *ws.contendedSlot(w.key) == w.key
		}
		return
	}
	w.ready = make(chan struct{})
	perKey, total := ws.locker.perKey, ws.locker.total
	if perKey > 0 && q.line.Len() > perKey || total > 0 && ws.behind >= total {
		w.answer = &BusyError{}
	} else if w.tryOnly {
		w.answer = q.refusal()
	}
	if w.answer != nil {
		close(w.ready)
		return
	}
	w.behind = true
	ws.behind++
	q.push(w)
}

// addQueue adds an empty queue for key.
func (ws *waiters) addQueue(key string) *queue {
	q := &queue{}
	if last := len(ws.spare) - 1; last >= 0 {
		q, ws.spare = ws.spare[last], ws.spare[:last]
	}
	ws.of[key] = q
	return q
}

// dropEmpty removes a queue without waiters and without a hold.
func (ws *waiters) dropEmpty(key string, q *queue) {
	if q.head() != nil || q.holder != nil {
		return
	}
	delete(ws.of, key)
	if len(ws.spare) < spareQueues {
		*q = queue{}
		ws.spare = append(ws.spare, q)
	}
}

// park has the head wait for the hold of this process instead of asking the store, and
// reports whether it does. Where waiters can be woken, the head is parked only for a hold
// that fits and as long as that may be passed on; then it asks the store for a place in
// its list. Where they cannot be woken there is no such list: the head is parked in any
// case, until the hold is passed on or released.
func (ws *waiters) park(q *queue) bool {
	w, h := q.head(), q.holder
	if h == nil || w.tryOnly || ws.locker.wakeable.Load() && (!w.fits(h) || !h.awaitPass(ws)) {
		return false
	}
	w.parked = true
	if w.ready == nil {
		w.ready = make(chan struct{})
	}
	if q.tries > 0 {
		q.refuseTries(q.refusal())
	}
	return true
}

// fits reports whether h can be passed on to w.
func (w *waiter) fits(h *hold) bool {
	return w.accepts && w.ttl == h.ttl && w.minToken <= h.token
}

// unpark has the head that is parked for h ask the store, since h is not passed on any
// more. Where waiters cannot be woken it stays parked until the key is released.
func (ws *waiters) unpark(h *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.of[h.key]; q != nil && q.holder == h && q.head() != nil && q.head().parked && ws.locker.wakeable.Load() {
		q.head().wakeToAsk()
	}
}

// wakeToAsk wakes a head that is parked, or a waiter that has become the head.
func (w *waiter) wakeToAsk() {
	w.parked, w.placing = false, true
	close(w.ready)
}

// contendedSlot is where key is noted if it is contended.
func (ws *waiters) contendedSlot(key string) *string {
	return &ws.contended[maphash.String(ws.seed, key)%uint64(len(ws.contended))]
}

// noteContention notes whether a lone caller had to wait.
func (ws *waiters) noteContention(w *waiter) {
	if w.refused == w.contended {
		return
	}
	switch m := ws.contendedSlot(w.key); {
	case !w.refused:
		if *m == w.key {
			*m = ""
			ws.marked--
		}
	case *m == "":
		ws.marked++
		fallthrough
	default:
		*m = w.key
	}
}

// refusal is the answer to a caller that does not wait, while the head waits; nil while
// the head asks the store.
func (q *queue) refusal() error {
	switch {
	case q.asleep != nil:
		return q.asleep
	case q.holder != nil && q.head().parked:
		return &BusyError{RetryAfter: q.holder.ttl}
	}
	return nil
}

// await waits until w is ready; it fails at until (if that is not zero), when closing is
// closed or when ctx ends.
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

// collect returns the hold that was passed on to w, nil if none was. The caller has to use
// it or release it.
func (ws *waiters) collect(w *waiter) *hold {
	if w.first {
		return nil
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	h := w.given
	w.given = nil
	return h
}

// sleep notes that w, the head, was answered busy and waits. Those behind it that do not
// wait get that answer.
func (ws *waiters) sleep(w *waiter, busy *BusyError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	q.asleep = busy
	w.notePlaced()
	q.refuseTries(busy)
}

// notePlaced ends the wait of the release that waits for w's place.
func (w *waiter) notePlaced() {
	w.placing = false
	if w.placed != nil {
		close(w.placed)
		w.placed = nil
	}
}

// storeFailed notes that the store did not answer w, the head, but err. Those behind it
// that do not wait get that error too. If the server is known to be down all of them do:
// one after the other, they would wait for the same time-outs.
func (ws *waiters) storeFailed(w *waiter, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	if !outage.Known(err) {
		q.refuseTries(err)
		return
	}
	for w := q.head().node.Next(); w != nil; w = q.head().node.Next() {
		q.refuse(w, err)
	}
}

// refuseTries refuses those behind the head that do not wait.
func (q *queue) refuseTries(answer error) {
	for w := q.head().node.Next(); w != nil && q.tries > 0; {
		next := w.node.Next()
		if w.tryOnly {
			q.refuse(w, answer)
		}
		w = next
	}
}

// refuse takes w out of the queue, with answer.
func (q *queue) refuse(w *waiter, answer error) {
	q.remove(w)
	w.answer = answer
	close(w.ready)
}

// wake notes that w, the head, asks the store again.
func (ws *waiters) wake(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.of[w.key].asleep = nil
}

// leave takes w out of its queue. If w was the head, the next waiter is:
//   - w has a lease now, whose hold h can be passed on: the new head is parked for it, if
//     it can be (h is nil if there is none),
//   - a hold was passed on to w, which has not taken it: it goes to the new head, or is
//     returned for release,
//   - otherwise the new head asks the store, so a wake-up that w did not use is not lost.
func (ws *waiters) leave(w *waiter, h *hold) (unused *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	given := w.given
	w.given = nil
	w.notePlaced()
	if w.behind {
		w.behind = false
		ws.behind--
	}
	if !w.node.Queued() {
		return nil // was refused
	}
	q := ws.of[w.key]
	head := q.head() == w
	q.remove(w)
	if w.first && !w.tryOnly {
		ws.noteContention(w)
	}
	if !head {
		return nil
	}
	q.asleep = nil
	if h != nil && h.remaining(ws.locker.now()) > 0 {
		q.holder = h // else it was lost before the queue knew of it
	}
	next := q.head()
	switch {
	case given != nil && next != nil && next.fits(given) && given.mayMoveOn() && !ws.locker.isClosing():
		next.given, next.parked = given, false
		close(next.ready)
		return nil
	case given != nil:
		q.holder, unused = nil, given
	}
	if next != nil && !ws.park(q) {
		next.wakeToAsk()
	}
	ws.dropEmpty(w.key, q)
	return unused
}

// passOn passes h, the hold of l, which has ended, on to the parked head. If it cannot,
// the key is about to be released, and the head asks the store for a place in its list
// first, if it has none yet: placed is closed when it has been answered. Where waiters
// cannot be woken the head stays parked (parked): the caller calls holdEnded when the
// hold is released.
func (ws *waiters) passOn(l *Lease, h *hold) (passed bool, placed <-chan struct{}, parked bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[h.key]
	if q == nil || q.holder != h {
		return false, nil, false
	}
	switch w := q.head(); {
	case w == nil:
	case w.parked && !ws.locker.isClosing() && w.fits(h) && h.pass(l):
		w.given, w.parked = h, false
		close(w.ready)
		return true, nil, false
	case w.parked && !ws.locker.wakeable.Load():
		return false, nil, true
	case w.parked || w.placing:
		if w.parked {
			w.wakeToAsk()
		}
		if w.placed == nil {
			w.placed = make(chan struct{})
		}
		placed = w.placed
	}
	q.holder = nil
	ws.dropEmpty(h.key, q)
	return false, placed, false
}

// holdEnded notes that h no longer has its key: a parked head has to ask the store.
func (ws *waiters) holdEnded(h *hold) {
	now := ws.locker.now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[h.key]
	if q == nil || q.holder != h {
		return
	}
	q.holder = nil
	if w := q.head(); w != nil && w.parked {
		w.pause = min(now.Since(h.arrived), passTime) / 2 // other processes get half of the time that this one had
		w.wakeToAsk()
	}
	ws.dropEmpty(h.key, q)
}
