package pipeline

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// stallAfter is how long calls wait for those that are under way before they go
	// on another connection: that one may have gone silent.
	stallAfter = 5 * time.Millisecond
	// checkEvery is how often to look for calls that take too long.
	checkEvery = 50 * time.Millisecond
	// enough is how many calls have to wait to go beside those that are under way:
	// with several pipelines the client works while the server does.
	enough = 16
	// maxBeside is how many pipelines are under way at most, if none has stalled.
	maxBeside = 4
	// maxWorkers bounds the connections that workers use up. One that hangs for
	// longer than forgetAfter does not count any more: without time-outs of the
	// client's own it may do so for ever, and the pool is then the bound.
	maxWorkers  = 8
	forgetAfter = 2 * Limit
	// maxBatch is how many calls go in one pipeline, and maxBytes how much text.
	maxBatch = 128
	maxBytes = 64 << 10
)

// sender sends calls to one server. A call that finds no other under way goes at once
// and alone; those that come while one is under way go together, in one pipeline,
// when that has come back, or when they are many.
type sender struct {
	client redis.UniversalClient
	own    bool          // it is one of go-redis itself
	brief  bool          // the client ends a call at its deadline
	stall  time.Duration // when a worker no longer holds up the calls behind it
	enough int           // calls that wait for another worker
	beside int           // how many workers there are at most, if none has stalled

	mu      sync.Mutex
	queue   []*Call
	workers []*worker
	timer   *time.Timer // calls look,
	looks   time.Time   // at this time; zero if it does not
}

// worker is a goroutine that sends batches while calls wait.
type worker struct {
	since time.Time // when the batch under way began
	batch []*Call
}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, stall: stallAfter, enough: enough, beside: maxBeside}
	if c, ok := client.(*redis.Client); ok {
		s.own, s.beside = true, min(s.beside, connections(c.Options()))
		// Time-outs of the socket would not do, however short: they are for one
		// reading or writing each, and a new connection takes several.
		s.brief = c.Options().ContextTimeoutEnabled
	}
	return s
}

// connections returns how many pipelines a client can have under way. Some clients
// refuse one more instead of waiting.
func connections(o *redis.Options) int {
	n := poolSize(o)
	switch {
	case o.PipelinePoolSize > 0:
		n += o.PipelinePoolSize
	case o.PipelinePoolSize == 0:
		n += redis.DefaultPipelinePoolSize
	}
	return max(n, 1)
}

// poolSize returns how many connections there can be for what is no pipeline.
func poolSize(o *redis.Options) int {
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// do sends c and returns the reply. It waits for that until ctx ends, or for Limit.
func (s *sender) do(ctx context.Context, c *Call) (any, error) {
	if s.brief && ctx.Done() == nil {
		if w := s.alone(); w != nil {
			// The caller cannot leave, so no other goroutine is needed.
			c.ctx, c.until = ctx, w.since.Add(Limit)
			s.send([]*Call{c.ready(ctx)}, w.since)
			s.dismiss(w)
			return s.wait(ctx, c)
		}
	}
	s.post(ctx, c)
	return s.wait(ctx, c)
}

// alone returns a worker for the goroutine of the caller, or nil if others are at work.
func (s *sender) alone() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		return nil
	}
	return s.engage(time.Now(), 0)
}

// post puts calls into the queue.
func (s *sender) post(ctx context.Context, calls ...*Call) {
	now := time.Now()
	for _, c := range calls {
		c.ready(ctx)
		c.ctx, c.until = ctx, now.Add(Limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, calls...)
	s.advance(now)
}

// doAll sends calls and returns their results, those that are there when ctx ends.
func (s *sender) doAll(ctx context.Context, calls []*Call) []Result {
	s.post(ctx, calls...)
	results := make([]Result, len(calls))
	for i, c := range calls {
		results[i].Reply, results[i].Err = s.wait(ctx, c)
	}
	return results
}

// wait returns the reply to c, which was posted, or why the caller leaves it.
func (s *sender) wait(ctx context.Context, c *Call) (any, error) {
	var why error
	select {
	case <-c.done:
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	v, err, known := c.result()
	if why == nil && !known {
		why = ErrNoAnswer
	}
	if why != nil {
		if c.state.leave(); !known || c.state.abandoned() {
			return nil, c.state.outcome(why)
		}
	}
	return v, c.state.outcome(err)
}

// advance has another worker begin if one is needed, and look be called. The caller holds
// the mutex.
func (s *sender) advance(now time.Time) {
	after := checkEvery
	if w := s.engage(now, len(s.queue)); w != nil {
		go s.work(w)
	} else if len(s.queue) > 0 {
		after = s.stall
	}
	at := now.Add(after)
	switch {
	case !s.looks.IsZero() && !at.Before(s.looks):
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.look)
	default:
		s.timer.Reset(after)
	}
	s.looks = at
}

// look gives up calls that take too long, and forgets those whose callers have left. Calls
// that wait behind a stalled worker go on another connection.
func (s *sender) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = time.Time{}
	now := time.Now()
	s.queue = slices.DeleteFunc(s.queue, func(c *Call) bool { return c.expire(now) || c.state.abandoned() })
	for _, w := range s.workers {
		for _, c := range w.batch {
			c.expire(now)
		}
	}
	if len(s.workers) > 0 || len(s.queue) > 0 {
		s.advance(now)
	}
}

// engage returns a worker that is to begin, if none is at work but such as have
// stalled, or if enough calls wait. The caller holds the mutex.
func (s *sender) engage(now time.Time, waiting int) *worker {
	prompt, under := 0, 0
	for _, w := range s.workers {
		switch age := now.Sub(w.since); {
		case age < s.stall:
			prompt++
			under++
		case age < forgetAfter:
			under++
		}
	}
	if prompt >= s.beside || prompt > 0 && waiting < s.enough || under >= maxWorkers {
		return nil
	}
	w := &worker{since: now}
	s.workers = append(s.workers, w)
	return w
}

// dismiss notes that w is not at work any more. What came meanwhile is another's.
func (s *sender) dismiss(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = slices.DeleteFunc(s.workers, func(o *worker) bool { return o == w })
	if len(s.queue) > 0 {
		s.advance(time.Now())
	}
}

// unused reports whether nothing is under way.
func (s *sender) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers) == 0
}

// work sends batches while calls wait.
func (s *sender) work(w *worker) {
	defer s.dismiss(w)
	for batch := s.take(w); batch != nil; batch = s.take(w) {
		s.send(batch, w.since)
		if len(batch) > 1 {
			runtime.Gosched() // its callers run first, so that their next calls go together too
		}
	}
}

// take returns the calls for the next batch, nil if none wait. A long value goes alone, so
// as not to hold up others.
func (s *sender) take(w *worker) []*Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for ; n < min(len(s.queue), maxBatch); n++ {
		if bytes += s.queue[n].length; n > 0 && bytes > maxBytes {
			break
		}
	}
	if n == 0 {
		return nil
	}
	w.since, w.batch = time.Now(), s.queue[:n:n]
	s.queue = slices.Clone(s.queue[n:])
	return w.batch
}

// send sends the batch and notes how it came back.
func (s *sender) send(batch []*Call, now time.Time) {
	first, last := batch[0], batch[len(batch)-1]
	ctx := first.ctx
	if len(batch) > 1 {
		ctx = context.WithoutCancel(ctx) // one that is cancelled does not end the others
	}
	ctx, cancel := context.WithDeadline(ctx, now.Add(last.until.Sub(now)))
	defer cancel()
	var err error
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in the client: %v", r)
		}
		for _, c := range batch {
			c.finish(err)
		}
	}()
	if len(batch) == 1 && !first.timed {
		if err = errLeft; !first.state.abandoned() {
			err = s.client.Process(ctx, first)
		}
		return
	}
	pipe, timed := s.client.Pipeline(), false
	for _, c := range batch {
		if len(batch) == 1 || c.state.batch() {
			_ = pipe.Process(ctx, c)
			timed = timed || c.timed
		}
	}
	if timed {
		_ = pipe.Process(ctx, &clock{*redis.NewTimeCmd(ctx, "time"), batch})
	}
	if pipe.Len() > 0 {
		_, err = pipe.Exec(ctx)
	}
}
