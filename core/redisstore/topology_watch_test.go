package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// watched contains two stores with a separate prefix, one of which wakes the other. A
// store does not poll, so only a message can wake it.
type watched struct {
	t              *testing.T
	prefix         string
	holder, waiter *redisstore.Store
	claim          store.Claim
}

func newWatched(t *testing.T, client func() redis.UniversalClient, key string) *watched {
	t.Helper()
	w := &watched{t: t, prefix: rand.Text() + ":"}
	w.holder = newStore(t, client(), redisstore.WithPrefix(w.prefix))
	w.waiter = newStore(t, client(), redisstore.WithPrefix(w.prefix))
	w.claim = store.Claim{Key: key, Weight: store.All, Limit: store.All, TTL: 10 * time.Second}
	return w
}

// wakes returns nil if a release wakes a waiter within some seconds.
func (w *watched) wakes() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
	defer cancel()
	held, waiting := w.claim, w.claim
	held.Owner, held.Lease = rand.Text(), rand.Text()
	waiting.Owner, waiting.Lease, waiting.Wait = rand.Text(), rand.Text(), true
	defer func() { _ = w.waiter.Release(context.WithoutCancel(ctx), waiting) }()
	defer func() { _ = w.holder.Release(context.WithoutCancel(ctx), held) }()
	if _, err := w.holder.Acquire(ctx, held); err != nil {
		return err
	}
	woken, err := w.waiter.Watch(ctx, waiting)
	if err != nil {
		return err
	}
	if _, err := w.waiter.Acquire(ctx, waiting); !errors.Is(err, store.ErrBusy) {
		return fmt.Errorf("got %w, want busy", err)
	}
	if err := w.holder.Release(ctx, held); err != nil {
		return err
	}
	select {
	case _, ok := <-woken:
		if !ok {
			return errors.New("the watch broke")
		}
		return nil
	case <-ctx.Done():
		return errors.New("nobody was woken")
	}
}

// survives opens a watch, calls move, and fails the test unless wake-ups arrive again
// after that.
func (w *watched) survives(move func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	c := w.claim
	c.Owner, c.Lease = rand.Text(), rand.Text()
	if _, err := w.waiter.Watch(ctx, c); err != nil {
		w.t.Fatal(err)
	}
	move()
	var last error
	defer func() { w.t.Logf("before a watch worked again: %v", last) }()
	testserver.Eventually(w.t, 45*time.Second, "a watch works", func() bool {
		err := w.wakes()
		if err != nil {
			last = err
		}
		return err == nil
	})
}
