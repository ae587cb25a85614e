package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := redisstore.New(server.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	c := core.Claim{Key: "order:1", Owner: "o1", Lease: "l1", Weight: core.All, Limit: core.All, TTL: time.Second}
	g, err := s.Acquire(ctx, c)
	t.Log(g, err)
	g, err = s.Acquire(ctx, c)
	t.Log(g, err)
	d := c
	d.Owner, d.Lease, d.Fair, d.Wait = "o2", "l2", true, true
	_, err = s.Acquire(ctx, d)
	t.Log(err, server.Do("HGETALL", "lk1:{order:1}"))
	if !errors.Is(err, core.ErrBusy) {
		t.Fatal(err)
	}
	t.Log(s.Extend(ctx, []core.Claim{c, d}))
	t.Log(s.Release(ctx, c), server.Do("HGETALL", "lk1:{order:1}"))
	t.Log(s.Acquire(ctx, d))
	t.Log(server.Do("HGETALL", "lk1:{order:1}"), s.Release(ctx, d), server.Do("HGETALL", "lk1:{order:1}"))
	t.Log(s.Release(ctx, d), server.Do("HGETALL", "lk1:{order:1}"))
	t.Log(s.Acquire(ctx, d))
}
