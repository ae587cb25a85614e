package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// trip is a goroutine that carries calls, until none is left.
type trip struct {
	since time.Duration // of the batch under way, or the end of the last one
	batch []*command
	frame *limited      // the client's context
	clean bool          // the client is done with the batch
	more  chan struct{} // receives when it goes on, closed when it ends
}

// carry makes one trip after the other while there is something to carry. Where
// calls travelled together their callers have just been woken: they come first,
// so that what they call next travels together too, unless there is plenty.
func (s *sender) carry(t *trip) {
	for many := false; ; {
		s.mu.Lock()
		if many && len(s.queue) < plenty {
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
		}
		more := s.load(t)
		s.mu.Unlock()
		if more {
			many = len(t.batch) > 1
			t.clean = s.send(t)
		} else if _, more = <-t.more; !more {
			return
		}
	}
}

// carryOnce makes one trip, which is loaded, and leaves what waits then to
// another one.
func (s *sender) carryOnce(t *trip) {
	t.clean = s.send(t)
	s.mu.Lock()
	var next *trip
	s.unload(t)
	s.end(t)
	s.lone = t
	if len(s.queue) > 0 {
		next = s.depart(s.now(), false)
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
		if t.since = s.now(); len(s.rests) < beside && !s.closed {
			s.rests = append(s.rests, t)
		} else {
			close(t.more)
		}
		return false
	}
	s.many = len(s.queue) > 1
	// The client may compare its deadline to the wall clock, which can have been set
	// since the sender was born.
	now := time.Now()
	t.since, t.batch, s.queue, s.spare = now.Sub(s.born), s.queue, s.spare, nil
	if n := fitting(t.batch); n < len(t.batch) {
		s.queue = append(s.queue, t.batch[n:]...)
		clear(t.batch[n:])
		t.batch = t.batch[:n]
	}
	t.frame = s.frame(t.batch, now)
	return true
}

// unload takes the calls from t that have come back.
func (s *sender) unload(t *trip) {
	if t.frame != nil {
		t.frame.end(context.Canceled)
	}
	if t.clean && s.own {
		for _, c := range t.batch {
			c.part()
		}
	}
	if s.spare == nil {
		clear(t.batch)
		s.spare = t.batch[:0]
	}
	t.batch, t.frame = nil, nil
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

// send sends calls and tells their callers when they have come back. It is clean if
// the client has not failed: a hook that gives up on a pipeline may leave it under
// way.
func (s *sender) send(t *trip) (clean bool) {
	var err error
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in the client: %v", r)
		}
		clean = err == nil || err == redis.Nil
		for _, c := range t.batch {
			if !clean && !c.signed.Load() && c.Cmd.Err() == nil {
				c.Cmd.SetErr(err)
			}
			c.sign()
		}
	}()
	if len(t.batch) == 1 {
		c := t.batch[0]
		if err = errLeft; !c.flight.gone() {
			err = s.client.Process(t.frame, c)
		}
		return
	}
	aboard := make([]redis.Cmder, 0, len(t.batch))
	for _, c := range t.batch {
		if c.joined = true; c.flight.board() {
			aboard = append(aboard, c)
		}
	}
	pipe := s.client.Pipeline()
	_ = pipe.BatchProcess(t.frame, aboard...)
	_, err = pipe.Exec(t.frame)
	return
}
