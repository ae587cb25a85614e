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
//	beside   asks the store once while the head asks: there is probably room
//	asks     is the head, and asks the store
//	asleep   is the head, was answered busy, and waits for a wake-up or a pause
//	parked   is the head, and waits for a hold of this process instead of asking
//	given    is the head, and a hold of this process was passed on to it
//
// passOn, unpark, holdEnded and park are in passing.go.
//
// The diagram omits one case. A waiter that steps back after it has become the head
// asks again as the head.
//
// In each state, leave removes a waiter whose acquire has a hold, has failed or gave
// up. If a hold was given to this waiter and not taken, the hold goes to the next
// waiter or is released.
//
// enter refuses a caller that would be behind if its queue or all queues together are
// full. While the head is parked or asleep, enter also refuses a caller that does not
// wait for a busy key (tryOnly). refuse removes waiters that are behind. Waiters with
// tryOnly are refused in three cases: the head is parked or falls asleep, a busy answer
// to another waiter also applies to them, or the store does not answer a waiter before
// them. All waiters behind are refused when the server is known to be down.

var queues = sync.Pool{New: func() any { return new(queue) }}

// waiters manages the queues of a Locker: one queue for each key that a caller is
// acquiring, or whose hold can be passed on. The head of a queue asks the store. Other
// waiters ask beside the head, at the same time, if there is probably room for their
// claims.
type waiters struct {
	perKey, total int // limits of the waiters not in front, in one queue and in all; 0: no limit
	now           clock.Clock
	closing       context.Context // done when Locker.Close begins

	wakeable atomic.Bool // waiters can be woken: the store is a Watcher and the last watch works

	mu     order.Mutex[waitersRank]
	of     map[string]*queue
	behind int // the number of waiters in all queues that are not in front

	// contended has keys that were busy for their last lone caller. A lone caller waits
	// for a busy key and finds its queue empty. The next lone caller of such a key
	// opens its watch before it asks. The map has at most mostContended keys.
	contended map[string]bool
	turns     turns
}

// mostContended bounds the number of keys in waiters.contended and in turns.
const mostContended = 1024

// queue lists the callers that want one key, in order of arrival.
type queue struct {
	line     fifo.Queue[waiter]
	tries    int // the number of callers in line with tryOnly
	arrivals int // the number of callers that were ever added to line

	// The front: the head, and the waiters that ask the store beside the head.
	front  int
	weight int64 // the sum of the weights of the waiters in front
	beside int   // the maximum number of waiters beside the head, see noteOutcome

	queuePassing
	// asleep is the store's busy answer while the head is asleep, and otherwise nil. It
	// is also the answer for callers with tryOnly.
	asleep *BusyError
}

// waiter is one caller in a queue.
type waiter struct {
	key       string
	tryOnly   bool              // the caller does not wait for a busy key
	front     bool              // is the head, or asks beside the head
	beside    bool              // asks once, without a watch or a place: there is probably room
	wide      bool              // a grant to this waiter shows that there is room for many more
	contended bool              // found the queue empty, but the key is probably busy
	refused   bool              // the store answered busy; set for the head and a tryOnly waiter
	slept     bool              // has been asleep at least once
	number    int               // the value of queue.arrivals at its arrival
	asked     int               // the value of queue.arrivals before its last request
	node      fifo.Node[waiter] // its node in queue.line
	// ready is closed when the waiter may ask, was given a hold, or was refused. It is
	// nil if the waiter may ask at once on arrival, as the only waiter of its queue or
	// beside the head.
	ready  chan struct{}
	answer error // the error of a refused waiter; set before ready is closed

	// Waiters with the same limit may ask at the same time if the sum of their weights
	// is at most the limit.
	weight, limit int64

	// The fields claimed, fair, run, limit and minToken decide whether a busy answer to
	// another claim also applies to this waiter's claim, see answers.
	claimed   int64 // the claim's weight
	fair, run bool

	waiterPassing
}

func (ws *waiters) init(perKey, total int, wakes bool, now clock.Clock, closing context.Context) {
	ws.perKey, ws.total, ws.now, ws.closing = perKey, total, now, closing
	ws.setWakeable(wakes)
	ws.of, ws.contended, ws.turns = make(map[string]*queue), make(map[string]bool), make(turns)
}

// setWakeable sets whether waiters can be woken.
func (ws *waiters) setWakeable(wakes bool) { ws.wakeable.Store(wakes) }

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

// toFront moves w to the front: w is the new head, or asks the store beside the head.
func (ws *waiters) toFront(q *queue, w *waiter) {
	w.front, w.asked = true, q.arrivals
	q.front++
	q.weight += w.weight
	ws.behind--
}

func (ws *waiters) toBack(q *queue, w *waiter) {
	w.front = false
	q.front--
	q.weight -= w.weight
	ws.behind++
}

// full reports whether q, or all queues together, have the maximum number of waiters
// behind the front.
func (ws *waiters) full(q *queue) bool {
	return ws.perKey > 0 && q.line.Len()-q.front >= ws.perKey || ws.total > 0 && ws.behind >= ws.total
}

// admits reports whether w may ask beside the head. Earlier grants must allow one more
// waiter beside the head (queue.beside), and fewer than mostInFront waiters may be in
// front. w must have the head's limit, and the weights of w and of all waiters in front
// must fit into this limit. No waiter asks beside a head that was refused or is parked.
func (q *queue) admits(w *waiter) bool {
	head := q.head()
	return q.front <= min(q.beside, mostInFront-1) && !head.refused && !q.parked &&
		w.limit == head.limit && w.weight <= w.limit-q.weight
}

// noteOutcome records the outcome for w, which has left the queue. If w has no grant, if
// the queue is empty, or if the head cannot have the key together with w, no waiter may
// ask beside the head. A grant to a wide w, an unfair reader, allows besideReaders more
// waiters, because the next claims are almost certain to be granted. A grant to any
// other w allows one more waiter, so that there are at most twice as many requests as
// grants. If such a w was refused before, its grant allows none.
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

// advance moves the next waiters to the front, where they ask, as long as admits allows
// this.
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
// the same answer if the answer applies to them. No further waiter may ask beside the
// head. If w asked beside the head and is not tryOnly, w steps back.
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

// answers reports whether a busy answer to w's last request also applies to b. b must
// have arrived before that request, so that the key was busy after b's arrival. b's
// claim must be of the same kind as w's claim and at least as heavy, so that the store
// would have refused b's claim too.
func (w *waiter) answers(b *waiter) bool {
	return b.number <= w.asked && b.limit == w.limit && b.claimed >= w.claimed &&
		b.fair == w.fair && b.run == w.run && b.minToken == w.minToken
}

// stepBack makes w wait again after the store refused w beside the head. w keeps its
// place in the queue even if the queue is full. If w has become the head in the
// meantime, w asks again as the head.
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

// enter puts w at the end of its key's queue, or refuses w and sets w.answer.
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

func (ws *waiters) dropEmpty(key string, q *queue) {
	if q.head() != nil || q.hold != nil {
		return
	}
	delete(ws.of, key)
	*q = queue{}
	queues.Put(q)
}

func (ws *waiters) queueOf(h *hold) *queue {
	if q := ws.of[h.key]; q != nil && q.hold == h {
		return q
	}
	return nil
}

// noteContention records whether the key was busy for w, a lone caller. If the map is
// full, it is cleared first.
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

// rest returns the pause before the first request of w, the head. In the pause, polling
// processes can get the key. The caller pauses only if waiters cannot be woken.
func (ws *waiters) rest(w *waiter, step time.Duration) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return max(w.pause, ws.turns.rest(w.key, step))
}

// refusal returns the busy answer for a caller with tryOnly, if the head is asleep or
// parked. It returns nil while the head asks the store.
func (q *queue) refusal() error {
	switch {
	case q.asleep != nil:
		return q.asleep
	case q.parked:
		return &BusyError{RetryAfter: q.hold.ttl}
	}
	return nil
}

// asleep records that w, the head, waits because the store answered busy. Waiters
// behind w with tryOnly get the same answer. If busy is nil, asleep records that w asks
// again.
func (ws *waiters) asleep(w *waiter, busy *BusyError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.of[w.key]
	q.asleep = busy
	if busy != nil {
		// The first busy answer does not show that another process has the key, because
		// this process may still be releasing its own hold.
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

// behind yields the waiters after w that are not in front. Unless all is true, it skips
// waiters without tryOnly. The caller's loop may refuse the waiter that it visits.
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

// refuse removes w from its queue, and makes answer the error of its acquire. w must
// not be in front.
func (ws *waiters) refuse(q *queue, w *waiter, answer error) {
	ws.remove(q, w)
	w.answer = answer
	close(w.ready)
}

// leave removes w from its queue. granted reports whether the acquire of w has a hold.
// h is the hold of w's lease if the lease can pass the hold on, and otherwise nil. If w
// was the head, the next waiter becomes the head:
//   - If a hold was given to w and w has not taken it, the hold goes to the new head if
//     possible. Otherwise leave returns the hold, and the caller releases it.
//   - If the queue now has a hold, either h or an earlier hold, the new head is parked
//     for this hold if possible.
//   - If the new head is neither given a hold nor parked, it asks the store. So a
//     wake-up that w did not use is not lost.
//
// failed is the error of a store that did not answer w, or nil. The waiters behind w
// with tryOnly get the same error. If the server is known to be down, all waiters
// behind w get this error. Without this rule, the waiters would have the same time-out
// one after the other.
func (ws *waiters) leave(w *waiter, h *hold, granted bool, failed error) (unused *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	given := w.takeGiven()
	w.notePlaced()
	if !w.node.Queued() {
		return nil // refuse has already removed w
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
	q.asleep = nil
	ws.noteHold(q, h)
	next := q.head()
	asks := next != nil && next.front // next already asks, beside w
	if next != nil && !asks {
		ws.toFront(q, next)
	}
	if given != nil {
		if ws.moveOn(q, given, next) {
			return nil
		}
		unused = given
	}
	if next != nil && !asks && !ws.park(q) {
		next.beside = q.beside > 0
		q.wakeToAsk()
	}
	ws.advance(q)
	ws.dropEmpty(w.key, q)
	return unused
}
