package pipeline

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// stallAfter is the time after which waiting calls do not wait any more for the
	// calls in flight. They use another connection, because the first one may be
	// silent.
	stallAfter = 5 * time.Millisecond
	// enough is the number of waiting calls that start another pipeline. With several
	// pipelines the client works while the server does.
	enough = 16
	// maxBeside is the maximum number of pipelines in flight, if none has stalled.
	maxBeside = 4
	// maxWorkers is the maximum number of connections that workers occupy. A worker
	// that hangs for longer than forgetAfter is not counted. If the client has no
	// time-outs, such a worker can hang forever. Then only the client's pool limits the
	// number of connections.
	maxWorkers  = 8
	forgetAfter = 2 * Limit
	// distrustFor is the time for which all callers use workers after a long delay of a
	// caller that sent its own call. A delay is long if it exceeds forgetAfter. The
	// usual reason for such a delay is a hook or a dialer that ignores deadlines.
	distrustFor = time.Minute
	// idleFor is the time for which a worker stays idle before it returns.
	idleFor = 50 * time.Millisecond
	// maxBatch is the maximum number of calls in one pipeline.
	maxBatch = 128
	// maxBytes is the maximum length of text in a pipeline of several calls.
	maxBytes = 64 << 10
)

// sender sends calls to one server. If no other call is in flight, a call is sent at
// once and alone. Calls that arrive while another call is in flight wait, and are sent
// together in one pipeline. They are sent when the other call has returned or stalled,
// or when many calls wait.
//
// While calls wait, a worker is working. While a worker is working, a check is scheduled.
// So each waiting call is sent or expires, and the context of each flight ends.
type sender struct {
	client redis.UniversalClient
	own    bool          // the client is a *redis.Client
	brief  bool          // the client ends a call at its deadline
	stall  time.Duration // the time after which a worker no longer delays the calls behind it
	enough int           // the number of waiting calls that start another worker
	beside int           // the maximum number of workers, if none has stalled
	limit  time.Duration // the time after which a call has taken too long

	mu       sync.Mutex
	queue    []*Call
	working  []*worker
	caller   worker    // of a caller that sends its call itself; has no goroutine, is never idle
	idle     []*worker // workers that have nothing to send, but may soon
	checking bool      // a call of check is scheduled
	delayed  time.Time // the last long delay of a caller that sent its call itself
	closed   bool      // no worker stays idle
}

// worker is a goroutine that sends the waiting calls, one batch after the other, until
// none is left. Then it stays idle for a while, because waking it costs less than
// starting a goroutine with a new stack.
type worker struct {
	more   chan struct{} // receives when it has to work, closed when it has to return
	since  time.Time     // the start of the batch in flight, or the end of the last batch
	batch  []*Call
	ctx    *flightContext // of the batch
	flight flight
}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, stall: stallAfter, enough: enough, beside: maxBeside, limit: Limit}
	if c, ok := client.(*redis.Client); ok {
		s.own, s.beside = true, min(s.beside, poolSize(c.Options()))
		// Short time-outs of the socket would not be enough. A time-out applies to one
		// read or write, and opening a connection takes several reads and writes.
		s.brief = c.Options().ContextTimeoutEnabled
	}
	return s
}

// poolSize returns the maximum number of connections of a client. If more connections
// are needed, some clients fail instead of waiting.
func poolSize(o *redis.Options) int {
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// do sends c once and returns its outcome. It waits for the outcome until ctx is done,
// or until check ends a queued call after Limit.
func (s *sender) do(ctx context.Context, c *Call) (Replicated, error) {
	switch {
	case ctx.Err() != nil:
		return Replicated{}, &unsentError{Cause(ctx)}
	case c.waitLimit > 0 || c.asking: // the call has its own connection
		go new(flight).carry(ctx, s, []*Call{c})
	default:
		s.send(ctx, c)
	}
	got, err := c.await(ctx)
	if err != nil && ctx.Err() != nil {
		s.left(c)
	}
	return got, err
}

// left ends the flight of a failed call whose caller has left, if the flight has no
// other calls. Without left, the flight would continue to wait for a connection.
func (s *sender) left(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.working {
		if len(w.batch) == 1 && w.batch[0] == c {
			w.ctx.end(context.Canceled)
		}
	}
}

// doAll sends calls in one pipeline. It returns when all results have arrived or ctx is
// done.
func (s *sender) doAll(ctx context.Context, calls []*Call) []Result {
	results := make([]Result, len(calls))
	if ctx.Err() != nil {
		for i := range results {
			results[i].Err = &unsentError{Cause(ctx)}
		}
		return results
	}
	go new(flight).carry(ctx, s, calls)
	for i, c := range calls {
		got, err := c.await(ctx)
		results[i] = Result{got.Reply, err}
	}
	return results
}

// await waits for the outcome of c until ctx is done. check ends a call of a queue
// after Limit. check does not see other calls (WAIT, ASK, doAll), so their ctx is
// Bounded. The error shows whether c was sent.
func (c *Call) await(ctx context.Context) (Replicated, error) {
	got, err, back := c.outcome(ctx)
	if err == nil || errors.As(err, new(*NoTimeError)) {
		if back && c.clean {
			c.home.Put(c)
		}
		return got, err // a call with a reply was sent, whatever error a hook has set
	}
	if c.payload.leave() || back && c.payload.end() {
		err = &unsentError{err}
	}
	return Replicated{}, err
}

// outcome returns the outcome of c, and reports whether the client has returned.
func (c *Call) outcome(ctx context.Context) (got Replicated, err error, back bool) {
	select {
	case <-c.done:
		return c.got, c.fault, c.fault != ErrNoAnswer
	case <-ctx.Done():
	}
	select {
	case <-c.done: // the outcome arrived at the same moment
		if c.fault == nil {
			return c.got, nil, true
		}
		back = c.fault != ErrNoAnswer
	default:
	}
	if reply, err := c.result(errNoReply); err == nil && !c.timed {
		return Replicated{Reply: reply, Err: errNoReply}, nil, false
	}
	return got, Cause(ctx), back
}

// send makes a worker send c. If nothing else is in flight, a caller that cannot leave
// can send c itself. This saves two switches of goroutines. A hook or a dialer that
// ignores the deadline of the call can then delay the caller beyond Limit, but only
// this caller. Other callers use workers in the meantime. After a delay longer than
// forgetAfter, all callers use workers for distrustFor.
func (s *sender) send(ctx context.Context, c *Call) {
	now := time.Now()
	c.ctx, c.until = ctx, now.Add(s.limit)
	c.deadline, _ = ctx.Deadline()
	cannotLeave := s.brief && ctx.Done() == nil
	s.mu.Lock()
	s.queue = append(s.queue, c)
	s.scheduleCheck()
	if cannotLeave && len(s.working) == 0 && now.Sub(s.delayed) > distrustFor {
		w := &s.caller
		w.begin(now, s.queue, s.limit)
		s.queue, s.working = nil, append(s.working, w)
		s.mu.Unlock()
		s.carry(w)
		s.mu.Lock()
		s.dismiss(w)
		sent := now
		if now = time.Now(); now.Sub(sent) > forgetAfter {
			s.delayed = now
		}
	}
	s.engage(now)
	s.mu.Unlock()
}

func (s *sender) dismiss(w *worker) {
	s.working = slices.DeleteFunc(s.working, func(o *worker) bool { return o == w })
}

// engage starts a worker if all workers in s.working have stalled, or if enough calls
// wait.
func (s *sender) engage(now time.Time) {
	prompt, under := 0, 0
	for _, w := range s.working {
		switch age := now.Sub(w.since); {
		case age < s.stall:
			prompt++
			under++
		case age < forgetAfter:
			under++
		}
	}
	if len(s.queue) == 0 || prompt >= s.beside || prompt > 0 && len(s.queue) < s.enough || under >= maxWorkers {
		return
	}
	var w *worker
	if last := len(s.idle) - 1; last >= 0 {
		w, s.idle = s.idle[last], s.idle[:last]
	} else {
		w = &worker{more: make(chan struct{}, 1)}
		go s.work(w)
	}
	w.since = now
	s.working = append(s.working, w)
	w.more <- struct{}{}
}

// work sends batches while calls are waiting. After a batch of several calls, it lets
// the woken callers run first. Their next calls are then sent together too.
func (s *sender) work(w *worker) {
	for range w.more {
		for s.take(w) {
			if s.carry(w) > 1 {
				runtime.Gosched()
			}
		}
	}
}

// carry sends the batch of w, and returns the number of its calls.
func (s *sender) carry(w *worker) int {
	f := &w.flight
	f.fly(w.ctx, s, w.batch)
	s.mu.Lock()
	w.ctx.end(context.Canceled)
	clear(w.batch) // the calls may be reused from now on
	if cap(s.queue) == 0 {
		s.queue = w.batch[:0]
	}
	w.batch, w.ctx = nil, nil
	s.mu.Unlock()
	n := len(f.calls)
	f.land()
	return n
}

func (w *worker) begin(now time.Time, batch []*Call, limit time.Duration) {
	w.since, w.batch = now, batch
	if len(batch) > 0 {
		w.ctx = newFlightContext(batch, now.Add(limit))
	}
}

// take moves waiting calls to the batch of w. If no call waits, w becomes idle. A long
// value is sent alone, so that it does not delay other calls.
func (s *sender) take(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for ; n < min(len(s.queue), maxBatch); n++ {
		if bytes += s.queue[n].length; n > 0 && bytes > maxBytes {
			break
		}
	}
	w.begin(time.Now(), s.queue[:n:n], s.limit)
	s.queue = s.queue[n:]
	if n == 0 {
		s.dismiss(w)
		s.idle = append(s.idle, w)
		s.retire(w.since)
	}
	return n > 0
}

func (s *sender) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.working)+len(s.idle) == 0
}

func (s *sender) scheduleCheck() {
	if !s.checking {
		s.checking = true
		time.AfterFunc(stallAfter, s.check)
	}
}

// check ends calls that have taken too long, and workers that have been idle for long.
// It moves calls that wait behind a stalled worker to another connection.
func (s *sender) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checking = false
	now := time.Now()
	s.retire(now)
	expire(now, s.queue)
	for _, w := range s.working {
		expire(now, w.batch)
		if len(w.batch) > 0 && now.After(w.ctx.until) {
			w.ctx.end(context.DeadlineExceeded)
		}
	}
	s.engage(now)
	if len(s.working)+len(s.idle) > 0 {
		s.scheduleCheck()
	}
}

// retire ends workers that have been idle for long, and after close all idle workers.
func (s *sender) retire(now time.Time) {
	s.idle = slices.DeleteFunc(s.idle, func(w *worker) bool {
		long := s.closed || now.Sub(w.since) > idleFor
		if long {
			close(w.more)
		}
		return long
	})
}

// close ends idle workers. Calls can still be made.
func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.retire(time.Now())
}

func expire(now time.Time, calls []*Call) {
	for _, c := range calls {
		if now.After(c.until) {
			c.finish(Replicated{}, ErrNoAnswer)
		}
	}
}
