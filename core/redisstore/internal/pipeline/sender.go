package pipeline

import (
	"context"
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
)

// sender sends calls to one server. A call that finds no other under way goes at once
// and alone; those that come while one is under way go together, in one pipeline,
// when that has come back, or when they are many.
type sender struct {
	client redis.UniversalClient
	own    bool          // it is one of go-redis itself
	brief  bool          // the client ends a call at its deadline
	born   time.Time     // its times count from here: to read one clock costs half of two
	stall  time.Duration // when a worker no longer holds up the calls behind it
	enough int           // calls that wait for another worker
	beside int           // how many workers there are at most, if none has stalled

	mu       sync.Mutex
	queue    []*Call
	working  []*worker
	idle     []*worker   // have nothing to send, but may soon
	once     *worker     // to use again for a call whose caller sends it
	spare    []*Call     // the array of a queue that has been sent
	timer    *time.Timer // looks for calls that take long
	armed    bool        // timer will fire
	soon     bool        // because something waits behind a worker
	together bool        // the last worker began with more than one call

	closed bool
}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, born: time.Now(), stall: stallAfter, enough: enough, beside: maxBeside}
	if c, ok := client.(*redis.Client); ok {
		s.own, s.beside = true, min(s.beside, connections(c.Options()))
		// Time-outs of the socket would not do, however short: they are for one
		// reading or writing each, and a new connection takes several.
		s.brief = c.Options().ContextTimeoutEnabled
	}
	return s
}

// connections is how many pipelines a client can have under way. Some clients
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

func (s *sender) now() time.Duration { return time.Since(s.born) }

// do sends c and returns the reply. It waits for that until ctx ends or for Limit.
// With a reply, c is not the caller's any more.
func (s *sender) do(ctx context.Context, c *Call) (any, error) {
	if err := s.send(ctx, c); err != nil {
		return nil, err
	}
	v, err := c.result(c)
	if err == nil && c.answered.Load() {
		c.part()
	}
	return v, err
}

// send sends c and waits until it has come back.
func (s *sender) send(ctx context.Context, c *Call) error {
	if ctx.Err() != nil {
		c.state.leave()
		return context.Cause(ctx)
	}
	now := s.now()
	c.ctx, c.until = ctx, now+Limit
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	// A caller that cannot leave need not be able to: no other goroutine is needed.
	c.stays = s.brief && ctx.Done() == nil
	s.mu.Lock()
	s.queue = append(s.queue, c)
	alone := c.stays && !s.together
	w := s.engage(now, alone)
	if w != nil && alone {
		w.take() // before another worker can take everything
	}
	s.arm(w == nil)
	s.mu.Unlock()
	switch {
	case w == nil:
	case alone:
		w.workOnce()
	default:
		w.start()
	}
	if quit := ctx.Done(); quit == nil {
		<-c.done
	} else {
		select {
		case <-c.done:
		case <-quit:
			return s.abandon(ctx, c)
		}
	}
	return c.late()
}

// abandon leaves c, unless it has just come back.
func (s *sender) abandon(ctx context.Context, c *Call) error {
	c.state.leave()
	if !c.state.abandoned() || c.answered.Load() { // else it was sent back without a reply
		select {
		case <-c.done:
			return c.late()
		default:
		}
	}
	return context.Cause(ctx)
}

// engage returns a worker that is to begin, if none is at work but such as have
// stalled, or if enough calls wait. If alone, it is for the caller's goroutine.
func (s *sender) engage(now time.Duration, alone bool) *worker {
	prompt, under := 0, 0
	for _, w := range s.working {
		switch age := now - w.since; {
		case age < s.stall:
			prompt++
			under++
		case age < forgetAfter:
			under++
		}
	}
	if prompt >= s.beside || prompt > 0 && len(s.queue) < s.enough || under >= maxWorkers {
		return nil
	}
	var w *worker
	switch last := len(s.idle) - 1; {
	case alone && s.once != nil:
		w, s.once = s.once, nil
	case !alone && last >= 0:
		w = s.idle[last]
		s.idle = slices.Delete(s.idle, last, last+1)
	default:
		w = &worker{sender: s}
	}
	w.since = now
	s.working = append(s.working, w)
	return w
}

// dismiss says that w is not at work any more.
func (s *sender) dismiss(w *worker) {
	s.working = slices.DeleteFunc(s.working, func(o *worker) bool { return o == w })
}

// unused tells that nothing is under way.
func (s *sender) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.working) == 0 && len(s.idle) == 0
}

// close ends the workers that only wait for more to send. Calls can still be made, and
// no worker waits after them.
func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.idle {
		close(w.more)
	}
	s.idle = nil
}

// arm sets the timer. It is left to fire once for nothing, since to set a timer
// for each call would cost more.
func (s *sender) arm(soon bool) {
	after := checkEvery
	if soon {
		after = min(s.stall, after)
	}
	switch {
	case s.armed && (s.soon || !soon):
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.check)
	default:
		s.timer.Reset(after)
	}
	s.armed, s.soon = true, soon
}

// check gives up calls that have taken too long, and forgets those whose callers have
// left. Calls that wait behind a stalled worker go on another connection.
func (s *sender) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	now := s.now()
	s.idle = slices.DeleteFunc(s.idle, func(w *worker) bool {
		long := now-w.since > checkEvery
		if long {
			close(w.more)
		}
		return long
	})
	if len(s.working) == 0 && len(s.idle) == 0 {
		return
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *Call) bool {
		c.expire(now)
		return c.told.Load() || c.state.abandoned()
	})
	for _, w := range s.working {
		w.expire(now)
	}
	if len(s.queue) > 0 {
		if w := s.engage(now, false); w != nil {
			w.start()
		}
	}
	s.arm(len(s.queue) > 0)
}
