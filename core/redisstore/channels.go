package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// channels manages the channels of Redisson's locks on the connection to one server.
// Each lock has its own channel. A Store subscribes to the channel for the first watch
// of the lock. It unsubscribes when the lock has no watch, and no watch has begun for a
// few seconds. In a Cluster Redisson sends sharded messages if the servers support
// them. So in a Cluster a Store has a connection to each master of a watched lock, and
// listens to sharded and to ordinary messages.
type channels struct {
	hub    *hub.Hub[watched]
	client atomic.Pointer[redis.Client] // the newest client of a master; nil without a Cluster
	plain  atomic.Bool                  // the server or the user cannot use sharded messages

	send sync.Mutex // serializes sending
	mu   sync.Mutex // guards the next fields
	of   *hub.Listener[watched]
	conn *redis.PubSub // of the Listener
	gone chan struct{} // closed when conn cannot be used any more
	on   map[string]*channel
	left map[string]int // by channel: the unsubscribe replies that are still expected
}

type channel struct {
	live    chan struct{} // closed when all subscriptions are confirmed, or err is set
	missing int           // the number of subscriptions that are not confirmed
	sharded bool
	used    time.Time // the time of the last subscribe call
	err     error     // the server's error
}

// nodes holds the channels by the address of their server, which is "" without a
// Cluster.
type nodes struct {
	mu   sync.Mutex
	all  map[string]*channels
	gone bool
}

// channelsFor returns the channels of the server that stores key.
func (s *Store) channelsFor(ctx context.Context, key string) (*channels, error) {
	var master *redis.Client
	address := ""
	if s.cluster != nil {
		var err error
		master, err = away(ctx, func(ctx context.Context) (*redis.Client, error) { return s.cluster.MasterForKey(ctx, s.key(key)) })
		if err != nil {
			return nil, err
		}
		address = master.Options().Addr
	}
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	c := s.nodes.all[address]
	switch {
	case s.nodes.gone:
		return nil, hub.ErrClosed
	case c == nil:
		c = new(channels)
		c.hub = hub.New(func(ctx context.Context, l *hub.Listener[watched]) error {
			if master := c.client.Load(); master != nil {
				return s.listenAt(ctx, l, master, c)
			}
			return s.listenAt(ctx, l, s.client, c)
		})
		if s.nodes.all == nil {
			s.nodes.all = make(map[string]*channels)
		}
		s.nodes.all[address] = c
	}
	c.client.Store(master)
	return c, nil
}

// closeChannels closes all channels, and reports whether they were closed within the
// time limit.
func (s *Store) closeChannels(limit time.Duration) bool {
	s.nodes.mu.Lock()
	s.nodes.gone = true
	all := s.nodes.all
	s.nodes.mu.Unlock()
	var wg sync.WaitGroup
	var late atomic.Bool
	for _, c := range all {
		wg.Go(func() {
			if !c.hub.Close(limit) {
				late.Store(true)
			}
		})
	}
	wg.Wait()
	return !late.Load()
}

// watchChannel implements Watch for Redisson's locks. A message wakes all watches of a
// key.
func (s *Store) watchChannel(ctx context.Context, c *store.Claim) (<-chan struct{}, error) {
	bounded, cancel := pipeline.Bounded(ctx)
	defer cancel()
	all, err := s.channelsFor(bounded, c.Key)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	name := s.channelOf(c.Key)
	ch, err := all.hub.Watch(watching, name, pipeline.Limit, pipeline.ErrNoAnswer)
	if err == nil {
		err = all.subscribe(bounded, name, s.cluster != nil && !s.split(c.Key))
	}
	if err != nil {
		stop() // removes the watch
		return nil, err
	}
	context.AfterFunc(ctx, stop)
	return ch, nil
}

// begin prepares for the new connection of l, before the connection is live. The last
// connection cannot be used any more, but may still be about to end. If ctx is done, l
// is late, and the last connection can be that of a later Listener.
func (c *channels) begin(ctx context.Context, l *hub.Listener[watched], conn *redis.PubSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	c.stop()
	c.plain.Store(false)
	c.of, c.conn, c.gone, c.on, c.left = l, conn, make(chan struct{}), make(map[string]*channel), make(map[string]int)
}

// end marks the connection as unusable, unless another connection has begun.
func (c *channels) end(conn *redis.PubSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.stop()
	}
}

// stop makes the subscribe calls on the connection return. The caller holds mu.
func (c *channels) stop() {
	if c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

var errBroke = errors.New("the subscription broke")

// subscribe subscribes to the channel, and waits until the server has confirmed that.
// If the channel is sharded, it also subscribes to the sharded messages.
func (c *channels) subscribe(ctx context.Context, name string, sharded bool) error {
	c.mu.Lock()
	l, conn, gone := c.of, c.conn, c.gone
	if gone == nil {
		c.mu.Unlock()
		return errBroke
	}
	on := c.on[name]
	fresh := on == nil
	if fresh {
		on = &channel{live: make(chan struct{}), missing: 1, sharded: sharded && !c.plain.Load()}
		if on.sharded {
			on.missing++
		}
		c.on[name] = on
	}
	on.used = time.Now()
	c.mu.Unlock()
	if fresh && !c.hub.Go(func() { c.join(l, conn, name, on.sharded) }) {
		return hub.ErrClosed
	}
	select {
	case <-on.live:
		c.mu.Lock()
		defer c.mu.Unlock()
		return on.err
	case <-gone:
		return errBroke
	case <-ctx.Done():
		return pipeline.Cause(ctx)
	}
}

// join sends the SUBSCRIBE for a new channel. No caller can cancel join.
func (c *channels) join(l *hub.Listener[watched], conn *redis.PubSub, name string, sharded bool) {
	c.send.Lock()
	defer c.send.Unlock()
	ctx, cancel := pipeline.Bounded(context.Background())
	defer cancel()
	err := conn.Subscribe(ctx, name)
	if err == nil && sharded {
		err = conn.SSubscribe(ctx, name)
	}
	if err != nil {
		l.End(err) // the server may have received the commands
	}
}

// confirmed records the server's message about a channel on conn. It reports whether
// the connection is unreliable. A connection is unreliable if the client has subscribed
// again after a break. It is also unreliable if the server has unsubscribed the
// channel, because its slot has moved.
func (c *channels) confirmed(conn *redis.PubSub, m *redis.Subscription) (broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		return false
	}
	on := c.on[m.Channel]
	switch {
	case (m.Kind == "unsubscribe" || m.Kind == "sunsubscribe") && c.left[m.Channel] > 0:
		if c.left[m.Channel]--; c.left[m.Channel] == 0 {
			delete(c.left, m.Channel)
		}
		return false
	case on == nil:
		return false
	case m.Kind == "unsubscribe" || m.Kind == "sunsubscribe" || on.missing == 0:
		return true
	}
	if on.missing--; on.missing == 0 {
		close(on.live)
	}
	return false
}

// refused records an error reply. Either the slot of a channel is elsewhere, or the
// server has no sharded messages for this user. The reply concerns a channel that is
// not confirmed, but does not name the channel. So refused ends all channels that are
// not confirmed.
func (c *channels) refused(conn *redis.PubSub, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		return
	}
	if !isReply(err, "MOVED") && !isReply(err, "CLUSTERDOWN") {
		c.plain.Store(true)
	}
	for name, on := range c.on {
		if on.missing > 0 {
			on.err, on.missing = err, 0
			close(on.live)
			delete(c.on, name)
		}
	}
}

// tidy unsubscribes from the channels that have no watch, if no watch has begun for some
// seconds.
func (c *channels) tidy(ctx context.Context) {
	c.send.Lock()
	defer c.send.Unlock()
	c.mu.Lock()
	var left, sharded []string
	for name, on := range c.on {
		if on.missing == 0 && time.Since(on.used) > pingAfter && !c.hub.Each(name, func(*watched) {}) {
			left = append(left, name)
			c.left[name]++
			if on.sharded {
				sharded = append(sharded, name)
				c.left[name]++
			}
			delete(c.on, name)
		}
	}
	conn := c.conn
	c.mu.Unlock()
	if len(left) == 0 {
		return
	}
	// The goroutine that receives messages notices a failure.
	_ = conn.Unsubscribe(ctx, left...)
	for _, name := range sharded { // each is in its own slot
		_ = conn.SUnsubscribe(ctx, name)
	}
}
