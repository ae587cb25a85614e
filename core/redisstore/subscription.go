package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// go-redis pings a subscription, but does not wait for the answer, and so does
// not notice a connection that died in silence. These bound how long a waiter
// relies on one.
const (
	lookEvery  = 2 * time.Second
	pingAfter  = 4 * time.Second  // without any word from the server
	deadAfter  = 10 * time.Second // the same
	closeAfter = time.Minute      // without any watch
)

// hub is all watches of a Store.
type hub struct {
	client  redis.UniversalClient
	channel string

	mu     sync.Mutex
	sub    *subscription // nil while there is none
	closed bool
}

// subscription is one life of the Store's channel, on one connection.
type subscription struct {
	live   chan struct{} // closed when the server has confirmed it
	ended  chan struct{} // closed when it broke, after err was set
	gone   chan struct{} // closed when its goroutines are over
	err    error
	cancel context.CancelFunc

	// Under the hub's mutex.
	watchers map[string][]*watcher
	used     time.Time // when a watch last came or went
	heard    time.Time // when the server last said anything
}

// open starts a subscription. The caller holds the mutex.
func (h *hub) open() *subscription {
	ctx, cancel := context.WithCancel(context.Background())
	sub := &subscription{
		live: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
		cancel: cancel, watchers: make(map[string][]*watcher),
	}
	go h.run(ctx, sub)
	return sub
}

// run lives as long as the subscription.
func (h *hub) run(ctx context.Context, sub *subscription) {
	var wg sync.WaitGroup
	defer close(sub.gone)
	defer wg.Wait()
	defer func() {
		if r := recover(); r != nil {
			h.end(sub, fmt.Errorf("panic in the client: %v", r))
		}
	}()
	conn := h.client.Subscribe(ctx)
	dead := time.AfterFunc(deadAfter, func() { h.end(sub, errors.New("the subscription is dead")) })
	defer dead.Stop()
	wg.Go(func() {
		// Close is what ends a Receive.
		<-ctx.Done()
		_ = conn.Close()
	})
	defer sub.cancel()
	if err := conn.Subscribe(ctx, h.channel); err != nil {
		h.end(sub, err)
		return
	}
	wg.Go(func() { h.ping(ctx, sub, conn) })
	h.end(sub, h.receive(ctx, sub, conn, dead))
}

// receive passes messages on until the connection fails.
func (h *hub) receive(ctx context.Context, sub *subscription, conn *redis.PubSub, dead *time.Timer) error {
	live := false
	for {
		m, err := conn.Receive(ctx)
		if err != nil {
			return err
		}
		dead.Reset(deadAfter)
		h.hears(sub)
		switch m := m.(type) {
		case *redis.Message:
			h.wake(sub, m.Payload)
		case *redis.Subscription:
			if live {
				// The client has subscribed again after a break, during which
				// messages may have been lost.
				return errors.New("the subscription was interrupted")
			}
			live = true
			close(sub.live)
		}
	}
}

// ping has the server say something now and then, and ends a subscription without
// watches.
func (h *hub) ping(ctx context.Context, sub *subscription, conn *redis.PubSub) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if h.unused(sub) {
			h.end(sub, errors.New("the subscription is not used"))
			return
		}
		if h.quiet(sub) {
			// A failure shows where messages are received.
			_ = conn.Ping(ctx)
		}
	}
}

func (h *hub) hears(sub *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub.heard = time.Now()
}

func (h *hub) quiet(sub *subscription) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(sub.heard) > pingAfter-lookEvery/2
}

func (h *hub) unused(sub *subscription) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(sub.watchers) == 0 && time.Since(sub.used) > closeAfter
}
