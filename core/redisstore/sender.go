package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch is how many calls travel in one pipeline.
	maxBatch = 256
	// maxBytes is how much text travels in one pipeline.
	maxBytes = 64 << 10
	// patience is how long calls wait for a trip before another one sets out: it
	// may be on a connection that has gone silent.
	patience = 5 * time.Millisecond
	// look is how often to look for calls that take too long.
	look = 50 * time.Millisecond
	// maxTrips bounds the connections that stalled trips use up.
	maxTrips = 8
)

// sender carries calls to one server. A call that finds no other on its way goes
// at once and alone; those that come while one is on its way go together, in one
// pipeline, when it has returned.
type sender struct {
	client redis.UniversalClient
	brief  bool          // the client ends a call at its deadline
	stall  time.Duration // when a trip no longer holds up the calls behind it

	mu    sync.Mutex
	queue []*command
	trips []*trip
	rests *trip       // has nothing to carry, but may soon
	spare []*command  // the array of a queue that has gone
	bells sync.Pool   // of channels that have been heard
	alarm *time.Timer // looks after what takes long
	armed bool        // alarm will ring
	soon  bool        // because something waits behind a trip

	closed bool
}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, stall: patience}
	if c, ok := client.(*redis.Client); ok {
		// Time-outs of the socket would not do, however short: they are for one
		// reading or writing each, and a new connection takes several.
		s.brief = c.Options().ContextTimeoutEnabled
	}
	return s
}

// trip is a goroutine that carries calls, until none is left.
type trip struct {
	since time.Time // of the batch under way, or the end of the last one
	batch []*command
	more  chan struct{} // receives when it goes on, closed when it ends
}

// bell is a channel by which a call hears that it has come back.
func (s *sender) bell() chan struct{} {
	if b, ok := s.bells.Get().(chan struct{}); ok {
		return b
	}
	return make(chan struct{}, 1)
}

// do sends c and waits for its answer, until ctx ends or for callLimit.
func (s *sender) do(ctx context.Context, c *command) error {
	if ctx.Err() != nil {
		c.flight.leave()
		return context.Cause(ctx)
	}
	now := time.Now()
	c.frame, c.done = limited{Context: ctx, until: now.Add(callLimit)}, s.bell()
	// Who cannot leave need not be able to: no other goroutine is needed.
	stays := s.brief && ctx.Done() == nil
	if stays {
		c.frame.over = s.bell()
	}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	t := s.depart(now, stays)
	if t != nil && stays {
		s.load(t) // before another trip can take everything
	}
	s.arm(t == nil)
	s.mu.Unlock()
	switch {
	case t == nil:
	case stays:
		s.carryOnce(t)
	default:
		s.start(t)
	}
	select {
	case <-c.done:
		s.bells.Put(c.done) // which is rung once for each call
		if stays && !c.expired {
			s.bells.Put(c.frame.over)
		}
		return c.late()
	case <-ctx.Done():
	}
	c.flight.leave()
	select {
	case <-c.done:
		return c.late()
	default:
		return context.Cause(ctx)
	}
}

// exchange sends c and returns the reply.
func (s *sender) exchange(ctx context.Context, c *command) (any, error) {
	if err := s.do(ctx, c); err != nil {
		return nil, err
	}
	return c.reply(c)
}

// late is the error of a call that took too long.
func (c *command) late() error {
	if !c.expired {
		return nil
	}
	c.flight.leave()
	return errNoAnswer
}

// depart returns a new trip if none is under way but such as have stalled. The
// caller makes it by itself if it stays.
func (s *sender) depart(now time.Time, stays bool) *trip {
	if len(s.trips) >= maxTrips {
		return nil
	}
	for _, t := range s.trips {
		if now.Sub(t.since) < s.stall {
			return nil
		}
	}
	t := s.rests
	if t == nil || stays {
		t = &trip{}
	} else {
		s.rests = nil
	}
	t.since = now
	s.trips = append(s.trips, t)
	return t
}

// idle tells that nothing is under way.
func (s *sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.trips) == 0 && s.rests == nil
}

// close ends what only waits for more to carry. Calls can still be made, and
// none of their trips rests.
func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.rests != nil {
		close(s.rests.more)
		s.rests = nil
	}
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

// ring gives up what has taken too long, and lets what waits behind a stalled
// trip go on another one.
func (s *sender) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	now := time.Now()
	if t := s.rests; t != nil && now.Sub(t.since) > look {
		s.rests = nil
		close(t.more)
	}
	if len(s.trips) == 0 && s.rests == nil {
		return
	}
	for _, c := range s.queue {
		c.expire(now)
	}
	for _, t := range s.trips {
		for _, c := range t.batch {
			c.expire(now)
		}
	}
	if len(s.queue) > 0 {
		if t := s.depart(now, false); t != nil {
			s.start(t)
		}
	}
	s.arm(len(s.queue) > 0)
}

func (c *command) expire(now time.Time) {
	if now.After(c.frame.until) && c.signed.CompareAndSwap(false, true) {
		c.expired = true
		if c.frame.over != nil {
			close(c.frame.over)
		}
		c.done <- struct{}{}
	}
}

// carry makes one trip after the other while there is something to carry.
func (s *sender) carry(t *trip) {
	for {
		s.mu.Lock()
		more := s.load(t)
		s.mu.Unlock()
		if more {
			s.send(t.batch)
		} else if _, more = <-t.more; !more {
			return
		}
	}
}

// carryOnce makes one trip, which is loaded, and leaves what waits then to
// another one.
func (s *sender) carryOnce(t *trip) {
	s.send(t.batch)
	s.mu.Lock()
	var next *trip
	s.unload(t)
	s.end(t)
	if len(s.queue) > 0 {
		next = s.depart(time.Now(), false)
	}
	s.mu.Unlock()
	if next != nil {
		s.start(next)
	}
}

// load gives t the calls that wait. If there are none t rests for a while, since
// a goroutine that is woken costs less than a new one with its stack.
func (s *sender) load(t *trip) bool {
	s.unload(t)
	if len(s.queue) == 0 {
		s.end(t)
		if t.since = time.Now(); s.rests == nil && !s.closed {
			s.rests = t
		} else {
			close(t.more)
		}
		return false
	}
	t.since, t.batch, s.queue, s.spare = time.Now(), s.queue, s.spare, nil
	if n := fitting(t.batch); n < len(t.batch) {
		s.queue = append(s.queue, t.batch[n:]...)
		clear(t.batch[n:])
		t.batch = t.batch[:n]
	}
	return true
}

// unload takes the calls from t that have come back.
func (s *sender) unload(t *trip) {
	if s.spare == nil {
		clear(t.batch)
		s.spare = t.batch[:0]
	}
	t.batch = nil
}

func (s *sender) end(t *trip) {
	s.trips = slices.DeleteFunc(s.trips, func(o *trip) bool { return o == t })
}

// fitting is how many of the calls go together. A long value goes alone, so as
// not to hold up others.
func fitting(all []*command) int {
	bytes := 0
	for i, c := range all {
		if bytes += c.length; i > 0 && (i == maxBatch || bytes > maxBytes) {
			return i
		}
	}
	return len(all)
}

// send sends calls and tells their callers when they have come back.
func (s *sender) send(batch []*command) {
	var err error
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in the client: %v", r)
		}
		for _, c := range batch {
			if err != nil && !c.signed.Load() && c.Cmd.Err() == nil {
				c.Cmd.SetErr(err)
			}
			c.sign()
		}
	}()
	if len(batch) == 1 {
		c := batch[0]
		err = s.client.Process(&c.frame, c)
		return
	}
	ctx, cancel := together(batch)
	defer cancel()
	pipe := s.client.Pipeline()
	for _, c := range batch {
		if c.joined = true; c.flight.board() {
			_ = pipe.Process(ctx, c)
		}
	}
	_, err = pipe.Exec(ctx)
}

// together is a context for calls that travel together: one of them that is
// cancelled does not end the others.
func together(batch []*command) (context.Context, context.CancelFunc) {
	first, last := batch[0], batch[len(batch)-1]
	return context.WithDeadline(context.WithoutCancel(first.frame.Context), last.frame.until)
}

// limited is a context that tells a client until when a call may take, without
// a timer to end it then: that is what the alarm is for.
type limited struct {
	context.Context
	until time.Time
	over  chan struct{} // closed when it has taken too long; nil if nobody waits for that
}

func (l *limited) Done() <-chan struct{} {
	if l.over != nil {
		return l.over
	}
	return l.Context.Done()
}

func (l *limited) Err() error {
	select {
	case <-l.over:
		return context.DeadlineExceeded
	default:
		return l.Context.Err()
	}
}

func (l *limited) Deadline() (time.Time, bool) {
	if end, ok := l.Context.Deadline(); ok && end.Before(l.until) {
		return end, true
	}
	return l.until, true
}
