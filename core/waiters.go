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

// The states of a waiter, and the methods that lead from one to the next. Where the
// method is leave, it is the departure of the head before the waiter:
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
// From each state a waiter leaves the queue by leave: its acquire has a hold or was
// refused, or its caller gives up. Enter refuses a caller whose queue is full, and one
// that does not wait while the head does. Method refuse refuses waiters that are
// behind. It refuses those that do not wait when the head is parked, was answered busy
// or had no answer, and all of them when the server is known to be down. A step from
// behind or from parked, and a refusal, close waiter.ready. If a waiter leaves without
// the hold that was passed on to it, the hold goes to the next waiter.

// queues are reused, each when it has become empty.
var queues = sync.Pool{New: func() any { return new(queue) }}

// waiters are the queues of this process: one for each key that a caller is acquiring,
// or whose hold can be passed on. The head of a queue talks to the store, and so do
// those beside it for which the store probably has room.
type waiters struct {
	perKey, total int // bounds of the waiters behind the first of a queue; 0: none
	now           clock.Clock
	closing       context.Context // of the Locker

	wakeable atomic.Bool // waiters can be woken: the store is a store.Watcher, and its last watch opened

	mu     order.Mutex[waitersRank]
	of     map[string]*queue
	behind int // waiters that are not in front

	// contended is a bounded cache of keys whose last lone caller had to wait. The next
	// lone caller opens its watch before it asks.
	contended map[string]bool
	turns     turns
}

// mostContended bounds the number of keys in contended and in turns.
const mostContended = 1024

// queue is the callers that want a key, in order of arrival.
type queue struct {
	line     fifo.Queue[waiter]
	tries    int // the number of these that are tryOnly
	arrivals int // the number of callers that have come

	// Those in front: the head, and those that ask the store beside it.
	front  int
	weight int64 // the sum for all in front
	beside int   // the number that may ask beside the head: grants add to it, any other answer ends it

	// hold is the hold of this process that has the key and can be passed on, or nil.
	hold *hold
	// asleep is the busy answer after which the head waits, or nil while the head asks
	// the store. While it is set, it is the answer to a caller that does not wait.
	asleep *BusyError
	timed  bool // a timer calls unpark for the hold
	parked bool // the head does not ask the store: it waits for the hold
}

// waiter is one caller's place in a queue.
type waiter struct {
	key       string
	tryOnly   bool              // does not wait for a busy key
	front     bool              // is the head, or asks beside it
	beside    bool              // asks once without a watch and a place: there is probably room
	wide      bool              // a grant to it says that there is room for many
	contended bool              // found the queue empty, but the key will probably be busy
	refused   bool              // is the head, or does not wait, and the store answered busy
	slept     bool              // has waited since then
	number    int               // of its arrival in the queue
	asked     int               // its question began after this arrival
	node      fifo.Node[waiter] // in its queue
	// ready is closed when the waiter may ask, was passed a hold, or was refused. It is
	// nil if the waiter asks the store at once, as the head of a queue that was empty
	// or beside the head.
	ready  chan struct{}
	answer error // the reason of a refusal; set before ready is closed

	// Waiters of one limit ask side by side while their weights fit into it.
	weight, limit int64

	// The claim's weight too: the meaning of a busy answer for other claims depends on
	// it.
	claimed   int64 // the weight
	fair, run bool

	// How it is passed a hold of this process.
	accepts  bool          // takes a hold that is passed on,
	ttl      time.Duration // with this TTL
	minToken uint64        // and at least this token
	given    *hold         // passed on to it, and not yet taken; set before ready is closed
	pause    time.Duration // before it asks: other processes poll, and have the key first
	// placed is made when the waiter is woken to ask the store. It is closed when the
	// waiter has a place in the store's list, or leaves.
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

// toFront makes w ask the store, as the head or beside it.
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

// full reports whether no more waiters may stand behind those in front of q.
func (ws *waiters) full(q *queue) bool {
	return ws.perKey > 0 && q.line.Len()-q.front >= ws.perKey || ws.total > 0 && ws.behind >= ws.total
}

// admits reports whether w may ask beside those in front: none of their answers speaks
// against it, and w is admitted together with them. No one asks beside a head that was
// refused or waits for a hold.
func (q *queue) admits(w *waiter) bool {
	head := q.head()
	return q.front <= min(q.beside, mostInFront-1) && !head.refused && !q.parked &&
		w.limit == head.limit && w.weight <= w.limit-q.weight
}

// noteOutcome records the result of the question of w, which has left. A grant lets
// others ask beside the head. Many may ask if the next one is certain to be admitted,
// as a reader usually is; otherwise one more, so that the questions are at most twice
// the grants.
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

// advance makes those waiters ask that are behind the front and may ask.
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

// noteRefused records that the store answered w busy. Waiters behind w that do not wait
// get that answer where it applies to them. If w asked beside the head and waits, it
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
	w.asked = q.arrivals // if it asks again
	if q.beside = 0; w.beside && !w.tryOnly {
		ws.stepBack(q, w)
		return
	}
	w.refused = true
}

// answers reports whether a busy answer to w's last question applies to b too. It does
// if the question began when b was in the queue, so that the key was busy after b had
// come. The claim of b must also be of the same kind and no lighter, so that the store
// would have refused it as well.
func (w *waiter) answers(b *waiter) bool {
	return b.number <= w.asked && b.limit == w.limit && b.claimed >= w.claimed &&
		b.fair == w.fair && b.run == w.run && b.minToken == w.minToken
}

// stepBack makes w, which was refused when it asked beside the head, wait again at its
// own place. It keeps that place even if the queue is full: it was let in before.
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

// wakeToAsk wakes a head that was parked, or that has just become the head.
func (q *queue) wakeToAsk() {
	q.parked = false
	w := q.head()
	w.placed = make(chan struct{})
	close(w.ready)
}

// noteContention records whether a lone caller had to wait.
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

// rest returns how long w, the head, leaves its key to other processes before it asks,
// where they cannot be woken either.
func (ws *waiters) rest(w *waiter, step time.Duration) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return max(w.pause, ws.turns.rest(w.key, step))
}

// refusal returns the answer to a caller that does not wait while the head waits, or
// nil while the head asks the store.
func (q *queue) refusal() error {
	switch {
	case q.asleep != nil:
		return q.asleep
	case q.parked:
		return &BusyError{RetryAfter: q.hold.ttl}
	}
	return nil
}

// asleep records the busy answer after which w, the head, waits; nil means that it asks
// again. Waiters behind it that do not wait get that answer.
func (ws *waiters) asleep(w *waiter, busy *BusyError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	q.asleep = busy
	if busy != nil {
		// The first answer can be due to a hold of this process that is being released.
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

// takeGiven returns the hold that was passed on to w, which takes it, or nil.
func (w *waiter) takeGiven() *hold {
	h := w.given
	w.given = nil
	return h
}

// notePlaced ends the wait of the release that waits for w's place.
func (w *waiter) notePlaced() {
	if w.placed != nil {
		close(w.placed)
		w.placed = nil
	}
}

// behind yields the waiters behind w that do not ask: all of them, or those that do not
// wait. The loop may refuse them.
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

// refuse makes w, which does not ask, leave its queue with the answer.
func (ws *waiters) refuse(q *queue, w *waiter, answer error) {
	ws.remove(q, w)
	w.answer = answer
	close(w.ready)
}

// leave takes w, whose claim was granted or not, out of its queue. If w was the head,
// the next waiter becomes the head:
//   - w has a lease now, whose hold h can be passed on: the new head is parked for it, if
//     it can be (h is nil if there is none),
//   - a hold was passed on to w, which has not taken it: it goes to the new head, or is
//     returned for release,
//   - otherwise the new head asks the store, so a wake-up that w did not use is not lost.
//
// If the store did not answer w, but failed, those behind w that do not wait get that
// error too. If the server is known to be down all of them get it. Otherwise they would
// wait for the same time-outs, one after the other.
func (ws *waiters) leave(w *waiter, h *hold, granted bool, failed error) (unused *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	given := w.takeGiven()
	w.notePlaced()
	if !w.node.Queued() {
		return nil // was refused
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
		q.hold = h // otherwise it was lost before the queue had it
		ws.turns.noteGrant(w.key)
	}
	next := q.head()
	asks := next != nil && next.front // already
	if next != nil && !asks {
		ws.toFront(q, next)
	}
	switch {
	// Only next can have it: nobody else is in front. A hold goes to waiters that it
	// fits, which are exclusive. Nobody asks beside such a head, nor beside a parked
	// one.
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
