package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/hub"
)

// go-redis sends PINGs on a subscription, but does not wait for the replies. So it does
// not detect a connection that died silently. These constants limit the time for which
// a waiter relies on such a connection.
const (
	lookEvery = 2 * time.Second  // between two checks
	pingAfter = 4 * time.Second  // without a message from the server
	deadAfter = 10 * time.Second // without a message from the server
)

// subscription is a subscription to the Store's channel on one connection.
type subscription struct {
	*hub.Listener[watched]
	conn  *redis.PubSub
	heard atomic.Pointer[time.Time] // the time of the server's last message
	own   string                    // the Store's channel
	more  *channels                 // the channels of Redisson's locks, or nil
}

// listen listens to the Store's channel on behalf of the hub.
func (s *Store) listen(ctx context.Context, l *hub.Listener[watched]) error {
	return s.listenAt(ctx, l, s.client, nil)
}

// listenAt listens to the Store's channel, and to the channels of more, on a connection
// of client. more may be nil.
func (s *Store) listenAt(ctx context.Context, l *hub.Listener[watched], client redis.UniversalClient, more *channels) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := &subscription{Listener: l, conn: client.Subscribe(ctx), own: s.channel, more: more}
	sub.heard.Store(new(time.Time))
	dead := time.AfterFunc(deadAfter, func() { l.End(errors.New("the subscription is dead")) })
	defer dead.Stop()
	wg.Go(func() {
		// A Receive that waits ignores ctx, and returns when the connection is closed.
		<-ctx.Done()
		_ = sub.conn.Close()
	})
	if more != nil {
		more.begin(ctx, l, sub.conn)
		defer more.end(sub.conn)
	}
	err := sub.conn.Subscribe(ctx, s.channel)
	if err == nil {
		wg.Go(func() { sub.ping(ctx) })
		err = sub.receive(ctx, dead)
	}
	l.End(err) // first, because closing the connection can hang
	return err
}

// receive passes messages on until the connection fails or the subscription is
// interrupted.
func (sub *subscription) receive(ctx context.Context, dead *time.Timer) error {
	live := false
	for {
		m, err := sub.conn.Receive(ctx)
		if err != nil {
			var reply redis.Error
			if !errors.As(err, &reply) || !live || sub.more == nil {
				return err
			}
			sub.more.refused(sub.conn, reply)
		}
		dead.Reset(deadAfter)
		now := time.Now()
		sub.heard.Store(&now)
		switch m := m.(type) {
		case *redis.Message:
			if sub.more != nil {
				sub.Wake(m.Channel, nil)
			} else {
				wake(sub.Listener, m.Payload)
			}
		case *redis.Subscription:
			if sub.more != nil && m.Channel != sub.own && !sub.more.confirmed(sub.conn, m) {
				continue
			}
			if live {
				// The client has subscribed again after a break, in which messages may
				// have been lost.
				return errors.New("the subscription was interrupted")
			}
			live = true
			sub.Live()
		}
	}
}

// ping sends a PING if the server has been silent, and ends a subscription that has had
// no watches for over a minute. It also calls tidy for the channels of Redisson's locks.
func (sub *subscription) ping(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if sub.Unused() {
			sub.End(errors.New("the subscription is not used"))
			return
		}
		if sub.more != nil {
			sub.more.tidy(ctx)
		}
		if time.Since(*sub.heard.Load()) > pingAfter-lookEvery/2 {
			// receive notices a failure.
			_ = sub.conn.Ping(ctx)
		}
	}
}
