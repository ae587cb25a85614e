package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// channels are those of Redisson's locks that one server's connection listens to. A lock has
// a channel of its own, which is subscribed to for its first watch, and left a few seconds
// after the last one. In a Cluster Redisson sends sharded messages where the servers have
// them, so each master has a connection, which listens to both kinds.
type channels struct {
	hub *hub.Hub[watched]

	mu   sync.Mutex
	conn *redis.PubSub
	on   map[string]*channel
}

type channel struct {
	live    chan struct{} // closed when all subscriptions are confirmed
	missing int           // of them
	sharded bool
	used    time.Time // when it was last subscribed to
}

// nodes are the channels by the address of their server, "" outside of a Cluster.
type nodes struct {
	mu   sync.Mutex
	all  map[string]*channels
	gone bool
}

// channelsFor returns the channels of the server that has key.
func (s *Store) channelsFor(ctx context.Context, key string) (*channels, error) {
	client, address := s.client, ""
	if s.cluster != nil {
		master, err := away(ctx, func(ctx context.Context) (*redis.Client, error) { return s.cluster.MasterForKey(ctx, s.key(key)) })
		if err != nil {
			return nil, err
		}
		client, address = master, master.Options().Addr
	}
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	c := s.nodes.all[address]
	switch {
	case s.nodes.gone:
		return nil, hub.ErrClosed
	case c == nil:
		c = new(channels)
		c.hub = hub.New(func(ctx context.Context, l *hub.Listener[watched]) error { return s.listenAt(ctx, l, client, c) })
		if s.nodes.all == nil {
			s.nodes.all = make(map[string]*channels)
		}
		s.nodes.all[address] = c
	}
	return c, nil
}

// closeChannels ends all of them, and reports whether they did within limit.
func (s *Store) closeChannels(limit time.Duration) bool {
	s.nodes.mu.Lock()
	s.nodes.gone = true
	all := s.nodes.all
	s.nodes.mu.Unlock()
	ended := true
	for _, c := range all {
		ended = c.hub.Close(limit) && ended
	}
	return ended
}

// watchChannel is Watch for a lock of Redisson's. All watches of a key are woken together.
func (s *Store) watchChannel(ctx context.Context, c *store.Claim) (<-chan struct{}, error) {
	all, err := s.channelsFor(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	name := s.channelOf(c.Key)
	ch, err := all.hub.Watch(watching, name, pipeline.Limit, pipeline.ErrNoAnswer)
	if err == nil {
		bounded, cancel := pipeline.Bounded(ctx)
		err = all.subscribe(bounded, name, s.cluster != nil && !s.split(c.Key))
		cancel()
	}
	if err != nil {
		stop()
		return nil, err
	}
	context.AfterFunc(ctx, stop)
	return ch, nil
}

// begin is called for each new connection.
func (c *channels) begin(conn *redis.PubSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.on = conn, make(map[string]*channel)
}

// subscribe returns when messages on the channel are received, sharded ones too if it is
// sharded.
func (c *channels) subscribe(ctx context.Context, name string, sharded bool) error {
	c.mu.Lock()
	on, conn := c.on[name], c.conn
	fresh := on == nil
	if fresh {
		on = &channel{live: make(chan struct{}), missing: 1, sharded: sharded}
		if sharded {
			on.missing++
		}
		c.on[name] = on
	}
	on.used = time.Now()
	c.mu.Unlock()
	if fresh {
		_, err := away(ctx, func(ctx context.Context) (struct{}, error) {
			err := conn.Subscribe(ctx, name)
			if err == nil && sharded {
				err = conn.SSubscribe(ctx, name)
			}
			return struct{}{}, err
		})
		if err != nil {
			c.hub.End(err) // nobody knows what was sent
			return err
		}
	}
	select {
	case <-on.live:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// confirmed notes what the server says of a channel. It reports whether the connection can
// not be relied on: the client has subscribed again after a break, or the channel was taken
// from it since its slot has moved.
func (c *channels) confirmed(m *redis.Subscription) (broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	on := c.on[m.Channel]
	switch {
	case m.Kind == "unsubscribe" || m.Kind == "sunsubscribe":
		return on != nil
	case on == nil || on.missing == 0:
		return on != nil
	}
	if on.missing--; on.missing == 0 {
		close(on.live)
	}
	return false
}

// tidy leaves the channels that nobody has watched for some seconds.
func (c *channels) tidy(ctx context.Context) {
	c.mu.Lock()
	var left, sharded []string
	for name, on := range c.on {
		if on.missing == 0 && time.Since(on.used) > pingAfter && !c.hub.Each(name, func(*watched) {}) {
			left = append(left, name)
			if on.sharded {
				sharded = append(sharded, name)
			}
			delete(c.on, name)
		}
	}
	conn := c.conn
	c.mu.Unlock()
	if len(left) == 0 {
		return
	}
	// A failure shows where messages are received. A channel that is subscribed to again
	// meanwhile breaks the connection, see confirmed.
	_ = conn.Unsubscribe(ctx, left...)
	for _, name := range sharded { // each of its own slot
		_ = conn.SUnsubscribe(ctx, name)
	}
}
