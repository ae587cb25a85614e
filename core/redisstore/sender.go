package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch is how many calls travel in one pipeline.
	maxBatch = 128
	// plenty is how many calls have to wait for a trip not to wait for more.
	plenty = maxBatch / 2
	// maxBytes is how much text travels in one pipeline.
	maxBytes = 64 << 10
	// patience is how long calls wait for a trip before another one sets out: it
	// may be on a connection that has gone silent.
	patience = 5 * time.Millisecond
	// look is how often to look for calls that take too long.
	look = 50 * time.Millisecond
	// crowded is how many calls have to wait for another trip to set out beside
	// those under way: with several, the client works while the server does.
	crowded = 16
	// beside is how many of them are under way at most.
	beside = 4
	// maxTrips bounds the connections that trips use up. One that hangs for
	// longer than giveUp does not count any more: without time-outs of the
	// client's own it may do so for ever, and the pool is then the bound.
	maxTrips = 8
	giveUp   = 2 * callLimit
)

// sender carries calls to one server. A call that finds no other on its way goes
// at once and alone; those that come while one is on its way go together, in one
// pipeline, when it has returned, or when they are many.
type sender struct {
	client redis.UniversalClient
	own    bool          // it is one of go-redis itself
	brief  bool          // the client ends a call at its deadline
	born   time.Time     // what it tells time from: to read one clock costs half of two
	stall  time.Duration // when a trip no longer holds up the calls behind it
	crowd  int           // that has another trip set out
	beside int           // how many trips are under way at most, if none has stalled

	mu    sync.Mutex
	queue []*command
	trips []*trip
	rests []*trip     // have nothing to carry, but may soon
	lone  *trip       // to use again for a call whose caller makes it
	spare []*command  // the array of a queue that has gone
	alarm *time.Timer // looks after what takes long
	armed bool        // alarm will ring
	soon  bool        // because something waits behind a trip
	many  bool        // the last trip set out with more than one call

	closed bool
}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, born: time.Now(), stall: patience, crowd: crowded, beside: beside}
	if c, ok := client.(*redis.Client); ok {
		s.own, s.beside = true, min(beside, connections(c.Options()))
		// Time-outs of the socket would not do, however short: they are for one
		// reading or writing each, and a new connection takes several.
		s.brief = c.Options().ContextTimeoutEnabled
	}
	return s
}

// connections is how many pipelines a client can have under way. Some clients
// refuse one more instead of waiting.
func connections(o *redis.Options) int {
	n := o.PoolSize
	if o.MaxActiveConns > 0 {
		n = min(n, o.MaxActiveConns)
	}
	switch {
	case o.PipelinePoolSize > 0:
		n += o.PipelinePoolSize
	case o.PipelinePoolSize == 0:
		n += redis.DefaultPipelinePoolSize
	}
	return max(n, 1)
}

func (s *sender) now() time.Duration { return time.Since(s.born) }

// do sends c and waits for its answer, until ctx ends or for callLimit.
func (s *sender) do(ctx context.Context, c *command) error {
	if ctx.Err() != nil {
		c.flight.leave()
		return context.Cause(ctx)
	}
	now := s.now()
	c.ctx, c.until = ctx, now+callLimit
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	// Who cannot leave need not be able to: no other goroutine is needed.
	c.stays = s.brief && ctx.Done() == nil
	s.mu.Lock()
	s.queue = append(s.queue, c)
	alone := c.stays && !s.many
	t := s.depart(now, alone)
	if t != nil && alone {
		s.load(t) // before another trip can take everything
	}
	s.arm(t == nil)
	s.mu.Unlock()
	switch {
	case t == nil:
	case alone:
		s.carryOnce(t)
	default:
		s.start(t)
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
func (s *sender) abandon(ctx context.Context, c *command) error {
	c.flight.leave()
	if !c.flight.gone() || c.answered.Load() { // else it was sent back without an answer
		select {
		case <-c.done:
			return c.late()
		default:
		}
	}
	return context.Cause(ctx)
}

// exchange sends c and returns the reply. With an answer, c is not the caller's any
// more.
func (s *sender) exchange(ctx context.Context, c *command) (any, error) {
	if err := s.do(ctx, c); err != nil {
		return nil, err
	}
	v, err := c.reply(c)
	if err == nil && c.answered.Load() {
		c.part()
	}
	return v, err
}

// late is the error of a call that took too long.
func (c *command) late() error {
	if !c.expired {
		return nil
	}
	c.flight.leave()
	return errNoAnswer
}

// depart returns a new trip if none is under way but such as have stalled, or one
// that a crowd waits for. If alone, the caller makes it by itself.
func (s *sender) depart(now time.Duration, alone bool) *trip {
	prompt, under := 0, 0
	for _, t := range s.trips {
		switch age := now - t.since; {
		case age < s.stall:
			prompt++
			under++
		case age < giveUp:
			under++
		}
	}
	if prompt >= s.beside || prompt > 0 && len(s.queue) < s.crowd || under >= maxTrips {
		return nil
	}
	var t *trip
	switch last := len(s.rests) - 1; {
	case alone && s.lone != nil:
		t, s.lone = s.lone, nil
	case !alone && last >= 0:
		t = s.rests[last]
		s.rests = slices.Delete(s.rests, last, last+1)
	default:
		t = &trip{}
	}
	t.since = now
	s.trips = append(s.trips, t)
	return t
}

// idle tells that nothing is under way.
func (s *sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.trips) == 0 && len(s.rests) == 0
}

// close ends what only waits for more to carry. Calls can still be made, and
// none of their trips rests.
func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, t := range s.rests {
		close(t.more)
	}
	s.rests = nil
}

// start has a trip begin.
func (s *sender) start(t *trip) {
	if t.more != nil {
		t.more <- struct{}{}
		return
	}
	t.more = make(chan struct{}, 1)
	go s.carry(t)
}

// arm sets the alarm. It is left to ring once for nothing, since to set a timer
// for each call would cost more.
func (s *sender) arm(soon bool) {
	switch {
	case s.armed && (s.soon || !soon):
		return
	case s.alarm == nil:
		s.alarm = time.AfterFunc(s.pace(soon), s.ring)
	default:
		s.alarm.Reset(s.pace(soon))
	}
	s.armed, s.soon = true, soon
}

func (s *sender) pace(soon bool) time.Duration {
	if soon {
		return min(s.stall, look)
	}
	return look
}

// ring gives up what has taken too long, forgets calls that nobody waits for, and
// lets what waits behind a stalled trip go on another one.
func (s *sender) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	now := s.now()
	s.rests = slices.DeleteFunc(s.rests, func(t *trip) bool {
		long := now-t.since > look
		if long {
			close(t.more)
		}
		return long
	})
	if len(s.trips) == 0 && len(s.rests) == 0 {
		return
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *command) bool {
		c.expire(now)
		return c.signed.Load() || c.flight.gone()
	})
	for _, t := range s.trips {
		for _, c := range t.batch {
			c.expire(now)
		}
		if t.frame != nil && s.born.Add(now).After(t.frame.until) {
			t.frame.end(context.DeadlineExceeded)
		}
	}
	if len(s.queue) > 0 {
		if t := s.depart(now, false); t != nil {
			s.start(t)
		}
	}
	s.arm(len(s.queue) > 0)
}

func (c *command) expire(now time.Duration) {
	if now > c.until && c.signed.CompareAndSwap(false, true) {
		c.expired = true
		c.done <- struct{}{}
	}
}
