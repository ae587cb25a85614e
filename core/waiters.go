package core

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/fifo"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/internal/outage"
)

// The states of a waiter, and the methods that lead from one state to the next. In the
// diagram, leave is the departure of the previous head:
//
//	enter ──→ behind ←───────── stepBack ───────── beside ←── enter
//	           │ │ └─────────── advance ────────────↑
//	           │ │
//	           │ └─── leave ──→ parked ── passOn ──→ given
//	           │                ↑ │
//	           │         enter ─┘ │
//	           │ leave            │ unpark, passOn, holdEnded
//	           ↓                  │
//	enter ──→ asks ←──────────────┘
//	           │ ↑
//	           │ └── asleep(nil) ── asleep
//	           └──── asleep(busy) ────↑
//
//	behind   waits in its queue, and asks nothing
//	beside   asks the store once, beside the head: there is probably room
//	asks     is the head, and asks the store
//	asleep   is the head, was answered busy, and waits for a wake-up or a pause
//	parked   is the head, and waits for a hold of this process instead of asking
//	given    is the head, and a hold of this process was passed on to it
//
// From each state a waiter can leave the queue by leave: its acquire has a hold or was
// refused, or its caller gave up. enter refuses a caller whose queue is full. While the
// head is parked or asleep, it also refuses a caller that does not wait for a busy key
// (tryOnly). refuse refuses waiters that are behind. When the head is parked, was
// answered busy or had no answer, it refuses the waiters with tryOnly. When the server
// is known to be down, it refuses all of them. A step from behind or from parked closes
// waiter.ready, and so does a refusal. If a waiter leaves without the hold that was
// passed on to it, the hold goes to the next waiter.

// queues has empty queues for reuse.
var queues = sync.Pool{New: func() any { return new(queue) }}

// waiters has the queues of a Locker: one for each key that a caller is acquiring, or
// whose hold can be passed on. The head of a queue asks the store. Other waiters ask
// beside the head if the store probably has room for their claims.
type waiters struct {
	perKey, total int // limits of the waiters behind the front of a queue; 0: no limit
	now           clock.Clock
	closing       context.Context // done when Close of the Locker begins

	wakeable atomic.Bool // waiters can be woken: the store is a store.Watcher, and its last watch opened

	mu     order.Mutex[waitersRank]
	of     map[string]*queue
	behind int // the number of waiters that are not in front

	// contended is a bounded cache of keys whose last lone caller had to wait. The next
	// lone caller of such a key opens its watch before it asks.
	contended map[string]bool
	turns     turns
}

// mostContended bounds the number of keys in contended and in turns.
const mostContended = 1024

// queue has the callers that want a key, in order of arrival.
type queue struct {
	line     fifo.Queue[waiter]
	tries    int // the number of callers in line with tryOnly
	arrivals int // the number of callers that have entered line

	// The front: the head, and the waiters that ask the store beside the head.
	front  int
	weight int64 // the sum of the weights in front
	beside int   // how many may ask beside the head: grants raise it, other answers reset it

	// hold is the hold of this process that has the key and can be passed on, or nil.
	hold *hold
	// asleep is the busy answer after which the head waits, or nil while the head asks
	// the store. While it is set, callers that do not wait get the same answer.
	asleep *BusyError
	timed  bool // a timer calls unpark for the hold
	parked bool // the head waits for the hold, and does not ask the store
}

// waiter is one caller in a queue.
type waiter struct {
	key       string
	tryOnly   bool              // the caller does not wait for a busy key
	front     bool              // is the head, or asks beside the head
	beside    bool              // asks once, without a watch or place: there is probably room
	wide      bool              // a grant to this waiter means that there is room for many
	contended bool              // the queue was empty at enter, but the key will probably be busy
	refused   bool              // the store answered busy; set for the head and for a tryOnly waiter
	slept     bool              // has waited since the busy answer
	number    int               // the number of its arrival in the queue
	asked     int               // the number of arrivals when its last request began
	node      fifo.Node[waiter] // its node in queue.line
	// ready is closed when the waiter may ask, was passed a hold, or was refused. It is
	// nil if the waiter asks the store at once: as the head of a queue that was empty,
	// or beside the head.
	ready  chan struct{}
	answer error // the reason of a refusal; set before ready is closed

	// Waiters with the same limit ask side by side while the sum of their weights is at
	// most the limit.
	weight, limit int64

	// Properties of the claim: they decide whether its busy answer also applies to
	// another claim.
	claimed   int64 // the claim's weight
	fair, run bool

	// Passing on: the holds that the waiter accepts, and the hold that it was given.
	accepts  bool          // accepts a hold that is passed on
	ttl      time.Duration // the TTL that the hold must have
	minToken uint64        // the least token that the hold must have
	given    *hold         // the hold that was passed on and not yet taken; set before ready is closed
	pause    time.Duration // the pause before it asks, in which polling processes can get the key
	// placed is created when the waiter is woken to ask the store. It is closed when
	// the waiter has a place in the store's list, or leaves the queue.
	placed chan struct{}
}

func (ws *waiters) init(perKey, total int, wakes bool, now clock.Clock, closing context.Context) {
	ws.perKey, ws.total, ws.now, ws.closing = perKey, total, now, closing
	ws.wakeable.Store(wakes)
	ws.of, ws.contended, ws.turns = make(map[string]*queue), make(map[string]bool), make(turns)
}

func (q *queue) head() *waiter { return q.line.First() }

func (ws *waiters) push(q *queue, w *waiter) {
	q.line.Push(&w.node, w)
	q.arrivals++
	w.number = q.arrivals
	ws.behind++
	if w.tryOnly {
		q.tries++
	}
}

func (ws *waiters) remove(q *queue, w *waiter) {
	q.line.Remove(&w.node)
	if w.front {
		ws.toBack(q, w)
	}
	ws.behind--
	if w.tryOnly {
		q.tries--
	}
}

// toFront moves w to the front, from where it asks the store as the head or beside the
// head.
func (ws *waiters) toFront(q *queue, w *waiter) {
	w.front, w.asked = true, q.arrivals
	q.front++
	q.weight += w.weight
	ws.behind--
}

// toBack reverses toFront.
func (ws *waiters) toBack(q *queue, w *waiter) {
	w.front = false
	q.front--
	q.weight -= w.weight
	ws.behind++
}

// full reports whether the limit of waiters behind the front is reached, in q or in all
// queues.
func (ws *waiters) full(q *queue) bool {
	return ws.perKey > 0 && q.line.Len()-q.front >= ws.perKey || ws.total > 0 && ws.behind >= ws.total
}

// admits reports whether w may ask beside the waiters in front. Earlier grants must
// allow one more waiter to ask, and the weights of w and of all in front must fit into
// the limit. No waiter asks beside a head that was refused or is parked.
func (q *queue) admits(w *waiter) bool {
	head := q.head()
	return q.front <= min(q.beside, mostInFront-1) && !head.refused && !q.parked &&
		w.limit == head.limit && w.weight <= w.limit-q.weight
}

// noteOutcome records the result of the request of w, which has left the queue. A grant
// allows others to ask beside the head. If w is wide, as an unfair reader is, the next
// claims are almost certain to be granted, and besideReaders more may ask. Otherwise
// one more may ask, so that the requests are at most twice the grants.
func (q *queue) noteOutcome(w *waiter, granted bool) {
	head := q.head()
	switch {
	case !granted || head == nil || head.limit != w.limit || head.weight > w.limit-w.weight:
		q.beside = 0
	case w.wide:
		q.beside += besideReaders
	case w.refused:
		q.beside = 0
	default:
		q.beside++
	}
}

// advance moves the next waiters to the front and makes them ask, as long as admits
// allows it.
func (ws *waiters) advance(q *queue) {
	for w := q.head(); w != nil && q.front < q.line.Len(); w = w.node.Next() {
		if w.front {
			continue
		}
		if !q.admits(w) {
			return
		}
		ws.toFront(q, w)
		w.beside = true
		close(w.ready)
	}
}

// noteRefused records that the store answered w busy. Waiters behind w with tryOnly get
// the same answer if it applies to them. If w asked beside the head and may wait, w
// steps back.
func (ws *waiters) noteRefused(w *waiter, busy *BusyError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	for b := range q.behind(w, false) {
		if w.answers(b) {
			ws.refuse(q, b, busy)
		}
	}
	w.asked = q.arrivals // for the next request of w
	if q.beside = 0; w.beside && !w.tryOnly {
		ws.stepBack(q, w)
		return
	}
	w.refused = true
}

// answers reports whether a busy answer to w's last request also applies to b. The
// request must have begun when b was in the queue, so that the key was busy after b had
// come. The claim of b must also be of the same kind and no lighter, so that the store
// would have refused it as well.
func (w *waiter) answers(b *waiter) bool {
	return b.number <= w.asked && b.limit == w.limit && b.claimed >= w.claimed &&
		b.fair == w.fair && b.run == w.run && b.minToken == w.minToken
}

// stepBack makes w wait again in the queue after it was refused beside the head. w
// keeps its place in the queue even if the queue is full. If w has become the head in
// the meantime, it asks again as the head.
func (ws *waiters) stepBack(q *queue, w *waiter) {
	w.beside = false
	w.ready = make(chan struct{})
	if q.head() == w {
		w.refused = true
		q.wakeToAsk()
		return
	}
	ws.toBack(q, w)
}

// enter puts w at the end of its key's queue, or refuses it.
func (ws *waiters) enter(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	if q == nil {
		q = queues.Get().(*queue)
		ws.of[w.key] = q
	}
	if q.head() == nil {
		ws.push(q, w)
		ws.toFront(q, w)
		if !ws.park(q) {
			w.contended = ws.contended[w.key]
		}
		return
	}
	if q.front == q.line.Len() && q.admits(w) {
		w.beside = true
		ws.push(q, w)
		ws.toFront(q, w)
		return
	}
	w.ready = make(chan struct{})
	if ws.full(q) {
		w.answer = &BusyError{}
	} else if w.tryOnly {
		w.answer = q.refusal()
	}
	if w.answer != nil {
		close(w.ready)
		return
	}
	ws.push(q, w)
}

// dropEmpty removes a queue without waiters and without a hold.
func (ws *waiters) dropEmpty(key string, q *queue) {
	if q.head() != nil || q.hold != nil {
		return
	}
	delete(ws.of, key)
	*q = queue{}
	queues.Put(q)
}

// queueOf returns the queue whose hold is h, or nil.
func (ws *waiters) queueOf(h *hold) *queue {
	if q := ws.of[h.key]; q != nil && q.hold == h {
		return q
	}
	return nil
}

// wakeToAsk makes a head ask that was parked or has just become the head.
func (q *queue) wakeToAsk() {
	q.parked = false
	w := q.head()
	w.placed = make(chan struct{})
	close(w.ready)
}

// noteContention records whether w, a lone caller, had to wait.
func (ws *waiters) noteContention(w *waiter) {
	if !w.refused {
		delete(ws.contended, w.key)
		return
	}
	if len(ws.contended) >= mostContended && !ws.contended[w.key] {
		clear(ws.contended)
	}
	ws.contended[w.key] = true
}

// rest returns the time for which w, the head, leaves its key to other processes before
// it asks. It is for stores that wake no waiters.
func (ws *waiters) rest(w *waiter, step time.Duration) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return max(w.pause, ws.turns.rest(w.key, step))
}

// refusal returns the busy answer to a caller that does not wait, if the head is asleep
// or parked. It returns nil while the head asks the store.
func (q *queue) refusal() error {
	switch {
	case q.asleep != nil:
		return q.asleep
	case q.parked:
		return &BusyError{RetryAfter: q.hold.ttl}
	}
	return nil
}

// asleep records the busy answer after which w, the head, waits; nil means that w asks
// again. Waiters behind w with tryOnly get the same answer.
func (ws *waiters) asleep(w *waiter, busy *BusyError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	q.asleep = busy
	if busy != nil {
		// A hold of this process that is being released can be the reason of the first
		// busy answer.
		if w.slept && q.hold == nil && !ws.wakeable.Load() {
			ws.turns.noteRival(w.key)
		}
		w.slept = true
		w.notePlaced()
		for b := range q.behind(w, false) {
			ws.refuse(q, b, busy)
		}
	}
}

// takeGiven returns the hold that was passed on to w, or nil, and clears w.given.
func (w *waiter) takeGiven() *hold {
	h := w.given
	w.given = nil
	return h
}

// notePlaced records that w has a place in the store's list, or leaves the queue. A
// release that waits for this then continues.
func (w *waiter) notePlaced() {
	if w.placed != nil {
		close(w.placed)
		w.placed = nil
	}
}

// behind yields the waiters after w that do not ask the store (front is false). Unless
// all is true, it skips waiters without tryOnly. The body of the loop may refuse a waiter.
func (q *queue) behind(w *waiter, all bool) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for b := w.node.Next(); b != nil && (all || q.tries > 0); {
			next := b.node.Next()
			if !b.front && (all || b.tryOnly) && !yield(b) {
				return
			}
			b = next
		}
	}
}

// refuse removes w from its queue, with answer as the result of the acquire. w must not
// be in front.
func (ws *waiters) refuse(q *queue, w *waiter, answer error) {
	ws.remove(q, w)
	w.answer = answer
	close(w.ready)
}

// leave removes w from its queue; granted reports whether the claim of w was granted.
// If w was the head, the next waiter becomes the head:
//   - if h, the hold of w's new lease, can be passed on, the new head is parked for h
//     if possible; h is nil if there is no such hold,
//   - if a hold was passed on to w and w has not taken it, the hold goes to the new
//     head, or is returned for release,
//   - otherwise the new head asks the store, so that a wake-up which w did not use is
//     not lost.
//
// failed is the error of a store that did not answer w, or nil. The waiters behind w
// with tryOnly get the same error. If the server is known to be down, all waiters
// behind w get it. Otherwise they would wait for the same time-outs, one after the
// other.
func (ws *waiters) leave(w *waiter, h *hold, granted bool, failed error) (unused *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	given := w.takeGiven()
	w.notePlaced()
	if !w.node.Queued() {
		return nil // refused before, and no longer in the queue
	}
	q := ws.of[w.key]
	wasHead, wasFront := q.head() == w, w.front
	if failed != nil {
		for b := range q.behind(w, outage.Known(failed)) {
			ws.refuse(q, b, failed)
		}
	}
	ws.remove(q, w)
	if wasFront {
		q.noteOutcome(w, granted)
	}
	if !wasHead {
		ws.advance(q)
		return nil
	}
	if w.ready == nil && !w.tryOnly && !w.beside {
		ws.noteContention(w)
	}
	q.asleep, q.parked = nil, false
	if h != nil && h.remaining(ws.now()) > 0 {
		q.timed = q.timed && q.hold == h
		q.hold = h // a lost hold is not recorded
		ws.turns.noteGrant(w.key)
	}
	next := q.head()
	asks := next != nil && next.front // next has asked beside the old head already
	if next != nil && !asks {
		ws.toFront(q, next)
	}
	switch {
	// Only next can get given: no other waiter is in front. A hold goes only to an
	// exclusive waiter that it fits, and no waiter asks beside an exclusive or a parked
	// head.
	case given != nil && next != nil && next.fits(given) && given.mayMoveOn() && ws.closing.Err() == nil:
		next.given = given
		close(next.ready)
		return nil
	case given != nil:
		q.hold, unused = nil, given
	}
	if next != nil && !asks && !ws.park(q) {
		next.beside = q.beside > 0
		q.wakeToAsk()
	}
	ws.advance(q)
	ws.dropEmpty(w.key, q)
	return unused
}
