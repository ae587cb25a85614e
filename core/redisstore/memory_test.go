package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestOutOfMemory checks that a server out of memory still extends and releases holds,
// and removes waiters. An acquire must return an error (hazard 27).
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for form, claimed := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			testOutOfMemory(t, form, func(*redisstore.Store) store.Claim { return claimed() })
		})
	}
	t.Run("a hash", func(t *testing.T) {
		t.Parallel()
		testOutOfMemory(t, "a hash", func(s *redisstore.Store) store.Claim {
			c := claimed()
			plant(s, c.Key)
			return c
		})
	})
}

func testOutOfMemory(t *testing.T, form string, make func(s *redisstore.Store) store.Claim) {
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	claimed := func() store.Claim { return make(s) }
	held, inner := claimed(), store.Claim{}
	inner = nested(held)
	waits, keeps, tokens := claimOf(held.Key), claimed(), claimed()
	waits.Wait, waits.Fair = true, true
	keeps.Keep = 20 * time.Second
	tokens.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	for _, c := range []store.Claim{held, inner, keeps, tokens} {
		acquire(t, s, c)
	}
	_, err := s.Acquire(t.Context(), waits)
	wantIs(t, "acquire", err, store.ErrBusy)
	plain := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys())
	plainHeld, plainKept := claimOf("plain:"+form), claimOf("plain, kept:"+form)
	plainKept.Keep = 20 * time.Second
	acquire(t, plain, plainHeld)
	acquire(t, plain, plainKept)
	unknownLease := claimed()

	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	for name, c := range map[string]store.Claim{
		"a free key": claimed(), "a held key, waiting": func() store.Claim { c := claimOf(held.Key); c.Wait = true; return c }(),
		"a further hold": nested(held),
		"a longer hold":  func() store.Claim { c := nested(held); c.TTL = time.Hour; return c }(),
	} {
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire of "+name, err, store.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("acquire of %s: got %v, want OOM", name, err)
		}
	}
	busyWith(t, s, claimOf(held.Key)) // a refusal only reads
	_, err = plain.Acquire(t.Context(), claimOf("plain, free:"+form))
	wantIs(t, "plain acquire", err, store.ErrUnavailable)
	everyKeyExpires(t, server)

	longer := held
	longer.TTL = 10 * time.Minute
	if err := extend(s, longer); err != nil {
		t.Errorf("extend: %v", err)
	}
	if left := testclient.Redis(t, server.Addr).PTTL(t.Context(), stored(held)).Val(); left < 5*time.Minute {
		t.Errorf("the key lives for %v", left)
	}
	wantIs(t, "release of an unknown lease", s.Release(t.Context(), unknownLease), store.ErrLost)
	for name, c := range map[string]store.Claim{"waiting": waits, "inner": inner, "held": held, "kept": keeps, "ahead": tokens} {
		if err := s.Release(t.Context(), c); err != nil {
			t.Errorf("release, %s: %v", name, err)
		}
	}
	if err := extend(plain, plainHeld); err != nil {
		t.Errorf("plain extend: %v", err)
	}
	for _, c := range []store.Claim{plainHeld, plainKept} {
		if err := plain.Release(t.Context(), c); err != nil {
			t.Errorf("plain release: %v", err)
		}
	}
	everyKeyExpires(t, server)

	server.Do("CONFIG", "SET", "maxmemory", "0")
	_, err = s.Acquire(t.Context(), unknownLease)
	wantIs(t, "a straggler", err, store.ErrLost)
	_, err = s.Acquire(t.Context(), claimOf(keeps.Key))
	wantIs(t, "acquire of what is kept", err, store.ErrBusy)
	_, err = plain.Acquire(t.Context(), claimOf(plainKept.Key))
	wantIs(t, "plain acquire of what is kept", err, store.ErrBusy)
}

// TestBusyOutOfMemory checks that a claim is refused as busy even if expired entries
// cannot be removed. A server out of memory refuses that write.
func TestBusyOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	reader := shared(claimed())
	brief := shared(claimOf(reader.Key))
	brief.TTL = time.Millisecond
	acquire(t, s, reader)
	acquire(t, s, brief)
	time.Sleep(5 * time.Millisecond)
	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	_, err := s.Acquire(t.Context(), claimOf(reader.Key))
	wantIs(t, "acquire", err, store.ErrBusy)
}
