package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// expired makes n rows without live entries, with the keys "old:1" to "old:n".
func expired(server *testserver.Postgres, n int) {
	server.Exec("INSERT INTO lockkit.locks (name,version,token,since,until,written,due) " +
		fmt.Sprintf("SELECT convert_to('old:'||i,'UTF8'),i,i,0,i,i,1 FROM generate_series(1,%d) i", n))
}

const left = "SELECT convert_from(name,'UTF8') FROM lockkit.locks WHERE name LIKE 'old:%' ORDER BY name"

// swept takes and releases other keys of s until done returns true. Meanwhile s sweeps.
func swept(t *testing.T, s store.Store, done func() bool) {
	t.Helper()
	// The first sweep of a process raises the floor of tokens. The next one deletes, ten
	// seconds later.
	testserver.Eventually(t, 5*patience, "expired rows are swept", func() bool {
		time.Sleep(100 * time.Millisecond)
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
		return done()
	})
}

// TestSweep_Statements checks that few statements delete a thousand expired rows. One
// statement is enough, but on a busy machine it can be repeated.
func TestSweep_Statements(t *testing.T) {
	t.Parallel()
	r := newRig(t, database(t))
	expired(r.server, 1000)
	swept(t, r.store, func() bool { return len(r.server.Exec(left)) == 0 })
	for what, c := range map[string]struct {
		part string
		want int
	}{
		"reads of expired rows": {sweeping, 10},
		"deletes":               {deleting, 4},
		"raises of the floor":   {"UPDATE lockkit.version", 4},
	} {
		if got := len(r.proxy.Statements(c.part)); got > c.want {
			t.Errorf("%s: got %d statements, want at most %d", what, got, c.want)
		}
	}
}

// TestSweep_WrittenMeanwhile checks that a row stays if it was written after the sweep
// has read it. A locked row does not delay the sweep.
func TestSweep_WrittenMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, database(t))
	expired(r.server, 1000)
	held := r.proxy.Inject(testserver.Statement(deleting), testserver.HoldRequest)
	swept(t, r.store, func() bool {
		select {
		case <-held.Fired():
			return true
		default:
			return false
		}
	})
	taken := exclusive("old:1")
	acquire(t, r.direct, taken)
	locked := lockRow(t, r.server, "old:2")
	changed := changeRow(t, r.server, "old:3")
	held.Deliver()
	testserver.Eventually(t, 3*patience, "the other rows are deleted", func() bool {
		rows := r.server.Exec(left)
		if !slices.Contains(rows, "old:1") {
			t.Fatal("the row that was written is gone")
		}
		return slices.Equal(rows, []string{"old:1", "old:2", "old:3"})
	})
	// A later sweep can delete the other rows when they are unlocked.
	if err := errors.Join(locked.Commit(t.Context()), changed.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	release(t, r.direct, taken)
}
