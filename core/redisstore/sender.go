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
	// stall is when a trip no longer holds up the calls behind it: it may be on
	// a connection that has gone silent.
	stall = 5 * time.Millisecond
	// maxTrips bounds the connections that stalled trips use up.
	maxTrips = 8
	abreast  = 1
)

// sender carries calls to one server. A call that finds no other on its way goes
// at once and alone; those that come while one is on its way go together, in one
// pipeline, when it has returned.
type sender struct {
	client redis.UniversalClient

	mu    sync.Mutex
	queue []*command
	trips []*trip
	spare []*command  // the array of a queue that has gone
	alarm *time.Timer // looks after what waits behind a trip
	armed bool
}

// trip is a goroutine that carries calls, until none is left.
type trip struct{ since time.Time }

// do sends c and waits for its answer, or until ctx ends.
func (s *sender) do(ctx context.Context, c *command) error {
	if ctx.Err() != nil {
		c.flight.leave()
		return context.Cause(ctx)
	}
	c.ctx, c.done = ctx, make(chan struct{}, 1)
	s.mu.Lock()
	s.queue = append(s.queue, c)
	t := s.depart()
	if t == nil && !s.armed {
		s.arm()
	}
	s.mu.Unlock()
	if t != nil {
		go s.carry(t)
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	c.flight.leave()
	select {
	case <-c.done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// depart returns a new trip if none is under way but such as have stalled.
func (s *sender) depart() *trip {
	if len(s.trips) >= maxTrips {
		return nil
	}
	var now time.Time
	if len(s.trips) > 0 {
		now = time.Now()
		n := 0
		for _, t := range s.trips {
			if now.Sub(t.since) < stall {
				if n++; n >= abreast {
					return nil
				}
			}
		}
	}
	t := &trip{since: now}
	s.trips = append(s.trips, t)
	return t
}

// arm has somebody look again when what is under way may have stalled.
func (s *sender) arm() {
	s.armed = true
	if s.alarm == nil {
		s.alarm = time.AfterFunc(stall, s.ring)
	} else {
		s.alarm.Reset(stall)
	}
}

func (s *sender) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if len(s.queue) == 0 {
		return
	}
	if t := s.depart(); t != nil {
		go s.carry(t)
	}
	s.arm()
}

// carry makes one trip after the other while there is something to carry.
func (s *sender) carry(t *trip) {
	var batch []*command
	for {
		s.mu.Lock()
		if batch != nil && s.spare == nil {
			clear(batch)
			s.spare = batch[:0]
		}
		if len(s.queue) == 0 {
			s.trips = slices.DeleteFunc(s.trips, func(o *trip) bool { return o == t })
			s.mu.Unlock()
			return
		}
		batch, s.queue, s.spare = s.queue, s.spare, nil
		if len(batch) > maxBatch {
			s.queue = append(s.queue, batch[maxBatch:]...)
			clear(batch[maxBatch:])
			batch = batch[:maxBatch]
		}
		t.since = time.Now()
		s.mu.Unlock()
		s.send(batch)
	}
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
		err = s.client.Process(c.ctx, c)
		return
	}
	ctx, cancel := together(batch)
	defer cancel()
	pipe := s.client.Pipeline()
	for _, c := range batch {
		if c.flight.board() {
			_ = pipe.Process(ctx, c)
		}
	}
	_, err = pipe.Exec(ctx)
}

// together is a context for calls that travel together: one of them that is
// cancelled does not end the others, and the last of their deadlines does.
func together(batch []*command) (context.Context, context.CancelFunc) {
	var until time.Time
	for _, c := range batch {
		if end, ok := c.ctx.Deadline(); ok && end.After(until) {
			until = end
		}
	}
	return context.WithDeadline(context.WithoutCancel(batch[0].ctx), until)
}
