package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// waiters acquire one key once each, and try again when the store is unavailable.
type waiters struct {
	t      testing.TB
	oracle *oracle
	key    string
	ttl    time.Duration

	all     sync.WaitGroup
	refused atomic.Int32
}

// inLine returns the number of claims that wait for key.
func inLine(t testing.TB, client redis.UniversalClient, key string) int {
	t.Helper()
	fields, err := testclient.Fields(context.Background(), client, keyOf(key))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.FieldsFunc(fields["w"], func(r rune) bool { return r == '\n' }))
}

// start adds a waiter. It fails the test if the waiter is not granted the key within
// two minutes, or gets an error that does not match store.ErrUnavailable.
func (w *waiters) start(p *core.Locker) {
	w.all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		for {
			lease, err := p.Acquire(ctx, w.key, core.TTL(w.ttl), core.Fair())
			switch {
			case err == nil:
				v := w.oracle.enter(lease)
				v.work(time.Millisecond)
				if err := v.leave(); err != nil {
					w.t.Errorf("release: %v", err)
				}
				return
			case errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil:
				w.refused.Add(1)
				time.Sleep(50 * time.Millisecond)
			default:
				w.t.Errorf("a waiter was not served: %v", err)
				return
			}
		}
	})
}
