package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/dialect"
)

// slowly returns a function that waits for d or until its context is done.
func slowly(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// restarted returns a Place with idle connections that were opened before a restart of
// the server.
func restarted(t *testing.T, idle, most int) (*Place, *fake) {
	t.Helper()
	f := &fake{answers: []answer{{rows: 1}}}
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(idle)
	all := make([]*sql.Conn, idle)
	for i := range all {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	for _, c := range all {
		_ = c.Close()
	}
	return New(db, dialect.PostgreSQL{}), f
}

// TestConnect_SlowDial checks that no call is lost after a restart. All idle
// connections are broken or silent, and a new connection takes long.
//
// hazard 23
func TestConnect_SlowDial(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // of a call
	broken := func(context.Context) error { return driver.ErrBadConn }
	silent := func(ctx context.Context) error { <-ctx.Done(); return driver.ErrBadConn }
	for _, c := range []struct {
		name        string
		stale       func(ctx context.Context) error // nil: only a statement shows the break
		dial        time.Duration
		idle, calls int
		most        int  // the limit of the pool, or 0
		quiet       bool // the driver does not ping
	}{
		{"broken", broken, 900 * time.Millisecond, 4, 4, 0, false},
		{"broken slower dial", broken, 1400 * time.Millisecond, 4, 4, 0, false},
		{"broken one call", broken, 1400 * time.Millisecond, 4, 1, 0, false},
		{"broken few calls", broken, 1400 * time.Millisecond, 20, 4, 0, false},
		{"broken many calls", broken, 1400 * time.Millisecond, 4, 50, 0, false},
		{"broken full pool", broken, 900 * time.Millisecond, 4, 4, 4, false},
		{"broken one connection", broken, 900 * time.Millisecond, 1, 1, 1, false},
		{"broken quiet", broken, 1400 * time.Millisecond, 4, 4, 0, true},
		{"broken quiet full pool", broken, 1400 * time.Millisecond, 4, 4, 4, true},
		{"found by statements", nil, 900 * time.Millisecond, 4, 4, 0, true},
		{"found by statements few calls", nil, 1400 * time.Millisecond, 20, 4, 0, true},
		{"found by statements full pool", nil, 1400 * time.Millisecond, 8, 2, 8, true},
		{"silent", silent, 900 * time.Millisecond, 4, 4, 0, false},
		{"silent one call", silent, 900 * time.Millisecond, 4, 1, 0, false},
		{"silent few calls", silent, 900 * time.Millisecond, 20, 4, 0, false},
		{"silent many calls", silent, 900 * time.Millisecond, 4, 50, 0, false},
		{"silent full pool", silent, 900 * time.Millisecond, 4, 4, 4, false},
		{"silent few calls full pool", silent, 900 * time.Millisecond, 8, 2, 8, false},
		{"silent one connection", silent, 900 * time.Millisecond, 1, 1, 1, false},
	} {
		for _, later := range []time.Duration{0, 600 * time.Millisecond} {
			t.Run(fmt.Sprint(c.name, " ", later), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p, f := restarted(t, c.idle, c.most)
					p.quiet = c.quiet
					f.stale, f.lost, f.dial = c.stale, c.stale == nil, slowly(c.dial)
					errs := make(chan error, c.calls)
					for i := range c.calls {
						go func() {
							if i%2 == 1 {
								time.Sleep(later)
							}
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							defer cancel()
							_, err := p.Change(ctx, dialect.Statement{Text: "UPDATE"})
							errs <- err
						}()
					}
					for range c.calls {
						if err := <-errs; err != nil {
							t.Errorf("got %v, want nil", err)
						}
					}
					// Package sql dials one connection after another for the callers in
					// its queue.
					time.Sleep(10 * time.Second)
					s := p.DB.Stats()
					if s.InUse != 0 || s.OpenConnections > c.idle || f.opened-f.closed != s.OpenConnections {
						t.Errorf("got %d connections in use, %d open, %d not closed", s.InUse, s.OpenConnections, f.opened-f.closed)
					}
					if n := len(f.sent); n != c.calls {
						t.Errorf("got %d statements, want %d", n, c.calls)
					}
					if most := 2*c.calls + c.idle; f.dials > most {
						t.Errorf("got %d dials, want at most %d", f.dials, most)
					}
				})
			})
		}
	}
}

// TestConnect_Canceled checks that a call returns as soon as its context is done. A dial
// that has begun continues for the pool.
func TestConnect_Canceled(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context) error { <-ctx.Done(); return driver.ErrBadConn }
	for _, c := range []struct {
		name    string
		renewed bool // the idle connections are pinged first
		after   time.Duration
		opened  int // connections after the restart
	}{
		{"at once", false, 0, 0},
		{"while a connection is pinged", false, 300 * time.Millisecond, 0},
		{"while all are pinged", false, 520 * time.Millisecond, 0},
		{"while a connection is dialed", false, 800 * time.Millisecond, 1},
		{"all silent at once", true, 0, 0},
		{"while all are pinged first", true, 300 * time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const idle = 4
				p, f := restarted(t, idle, 0)
				p.silent.Store(c.renewed)
				f.stale, f.dial = silent, slowly(900*time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(c.after, cancel)
				begun := time.Now()
				_, err := p.Change(ctx, dialect.Statement{Text: "UPDATE"})
				if took := time.Since(begun); !errors.Is(err, context.Canceled) || took != c.after {
					t.Errorf("after %v: got %v, want %v after %v", took, err, context.Canceled, c.after)
				}
				time.Sleep(10 * time.Second)
				if s := p.DB.Stats(); s.InUse != 0 || f.opened != idle+c.opened || len(f.sent) > 0 {
					t.Errorf("got %d connections in use, %d opened, %d statements", s.InUse, f.opened-idle, len(f.sent))
				}
			})
		})
	}
}
