package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// server is what is known of the one that a sender's calls go to, and another way to
// it. A pool of go-redis that could not connect a number of times fails for up to a
// second more without trying, so for that time there is a client of the Store's own.
type server struct {
	gate   outage.Gate
	client *redis.Client // nil if it is not go-redis' own

	mu    sync.Mutex
	spare *sender // on the connections of the probe that ended an outage; nil mostly
}

// oversee has the sender know whether its server is down.
func (s *sender) oversee() {
	if client, ok := s.client.(*redis.Client); ok && !s.closed { // else there is no way to probe
		s.server.client = client
		s.server.gate.Watch(callLimit, s.server.probe)
	}
}

// probe asks the server for nothing, on a connection of its own.
func (v *server) probe(ctx context.Context) error {
	o := *v.client.Options()
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.PipelinePoolSize = max(o.PoolSize, 2), 0, 1, -1 // a pool of 1 dials on by itself
	o.DialerRetries, o.MaxRetries, o.ContextTimeoutEnabled = 1, -1, true
	client := redis.NewClient(&o)
	_, err := leave(ctx, &flight{}, func() (struct{}, error) {
		return struct{}{}, client.Process(ctx, single{redis.NewCmd(ctx, "ping")})
	})
	if answers(err) && v.gate.Why() != nil {
		v.lend(newSender(client), o.DialTimeout+callLimit)
		return nil
	}
	_ = client.Close()
	if answers(err) {
		return nil
	}
	return err
}

// lend has calls go by a sender for a time, if they find no other connection.
func (v *server) lend(spare *sender, most time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spare = spare
	time.AfterFunc(most, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.spare == spare {
			v.spare = nil
		}
		spare.close()
		time.AfterFunc(giveUp, func() { _ = spare.client.Close() }) // calls have ended by then
	})
}

// other returns the sender on the Store's own connections, nil if there is none.
func (v *server) other() *sender {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.spare
}

// close ends the probe that is under way and the Store's own connections.
func (v *server) close() {
	v.gate.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.spare != nil {
		v.spare.close()
		_ = v.spare.client.Close()
		v.spare = nil
	}
}

// reach is exchange with a server that may be down. An acquire is refused then.
func (s *sender) reach(ctx context.Context, c *command) (any, error) {
	v := &s.server
	if c.acquires() {
		if err := v.gate.Enter(ctx); err != nil {
			c.flight.leave()
			return nil, err
		}
	}
	begun := v.gate.Begin()
	answer, err := s.exchange(ctx, c)
	if dialed(err) != nil && c.flight.unsent() {
		if spare := v.other(); spare != nil {
			w := c.whole(ctx)
			w.first = nil
			answer, err = spare.exchange(ctx, w)
		}
	}
	return answer, v.judge(ctx, begun, err)
}

// acquires tells that a call asks for a key.
func (c *command) acquires() bool {
	return c.script == nil || c.script == acquireScript || c.script == plainAcquireScript
}

// judge notes the outcome of a call, and returns its error, with what the connection
// says if the client does not: that dials for longer than some calls have time.
func (v *server) judge(ctx context.Context, begun outage.Mark, err error) error {
	switch {
	case answers(err):
		v.gate.Answered()
	case refusedDial(err):
		v.gate.Failed(begun, err)
	default:
		if why := v.gate.Doubt(ctx, begun); why != nil {
			return fmt.Errorf("%w: %v", err, why)
		}
	}
	return err
}

// answers tells that a server has answered, whatever it was.
func answers(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return err == nil || reply
}

// dialed returns the error of a connection that could not be made, nil if err is
// another one.
func dialed(err error) *net.OpError {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" {
		return nil
	}
	return op
}

// refusedDial tells that no connection can be made, however much time there is.
func refusedDial(err error) bool {
	op := dialed(err)
	return op != nil && !op.Timeout()
}
