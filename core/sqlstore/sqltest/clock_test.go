package sqltest

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestMariaDB_ClockSetBack checks that after the clock was set back a hold still
// expires soon, and that tokens still grow.
func TestMariaDB_ClockSetBack(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t, 1)
	server := clock.StartMariaDB()
	d := database{sqlstore.MySQL, "mysql", server.NewDatabase(t).DSN()}
	r := d.store(t)

	const ttl = 3 * time.Second
	held, free := claim("held", ttl), claim("free", long)
	last := make(map[string]uint64)
	for _, c := range []store.Claim{held, free} {
		g, err := r.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		last[c.Key] = g.Token
	}
	if err := r.Release(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	clock.Step(-24 * time.Hour)
	begun := time.Now()
	g, err := r.Acquire(t.Context(), claim("free", long))
	if err != nil || g.Token < last["free"]+store.TokenStep {
		t.Errorf("a free key: got token %d after %d, %v", g.Token, last["free"], err)
	}
	_, err = r.Acquire(t.Context(), claim("held", long))
	var busy *store.BusyError
	if !errors.As(err, &busy) || busy.RetryAfter > ttl {
		t.Errorf("a held key: got %v, want busy for at most %v", err, ttl)
	}
	for {
		if g, err = r.Acquire(t.Context(), claim("held", long)); err == nil {
			break
		}
		if !errors.Is(err, store.ErrBusy) || time.Since(begun) > time.Minute {
			t.Fatalf("after %v: got %v, want a grant", time.Since(begun), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if g.Token < last["held"]+store.TokenStep {
		t.Errorf("a held key: got token %d after %d", g.Token, last["held"])
	}
}
