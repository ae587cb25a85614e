package hazards_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// disguised is a Ring that the store does not recognize.
type disguised struct{ *redis.Ring }

// TestForcedRing checks that some keys of a disguised Ring have two holders as soon as
// one process sees another set of servers (hazard 35). The store refuses a Ring that it
// recognizes.
func TestForcedRing(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	a, b := testserver.StartRedis(t), testserver.StartRedis(t)
	ring := func(servers map[string]string) *redis.Ring {
		r := redis.NewRing(&redis.RingOptions{Addrs: servers, HeartbeatFrequency: time.Hour})
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	both, rest := map[string]string{"a": a.Addr, "b": b.Addr}, map[string]string{"b": b.Addr}
	_, err := redisstore.New(ring(both))
	wantErr(t, "a Ring", err, core.ErrInvalid)
	first := lockerOf(t, disguised{ring(both)}, nil)
	second := lockerOf(t, disguised{ring(rest)}, nil)
	two := 0
	for _, key := range []string{"order:1", "order:2", "order:3", "order:4", "order:5", "order:6", "order:7", "order:8"} {
		lease := acquire(t, first, key)
		rival, err := second.TryAcquire(t.Context(), key)
		if err != nil {
			wantErr(t, "acquire", err, core.ErrBusy) // both have the key on the same server
			continue
		}
		wantHeld(t, lease)
		wantHeld(t, rival)
		two++
	}
	if two == 0 {
		t.Error("no key has two holders; if this is prevented now, the documentation promises too little")
	}
	tally.Note(t, tally.Facts{Part: "limits", Runs: 1, Faults: map[string]int{"ring with other servers": 1}, Expected: map[string]int{"overlaps": two}})
}
