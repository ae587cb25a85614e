package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
)

// fake is a server in memory that answers pings.
type fake struct {
	mu       sync.Mutex
	dial     time.Duration // the time of a dial
	sessions int           // sessions since the restart
	old      []*line       // all lines; a restart breaks the lines that exist at that time
}

// line is the server's end of a connection.
type line struct {
	net.Conn
	silent bool
}

// Dial implements pgconn.DialFunc.
func (f *fake) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	pause := time.After(f.dial)
	f.mu.Unlock()
	select {
	case <-pause:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, server := net.Pipe()
	l := &line{Conn: server}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = append(f.old, l)
	go f.serve(l)
	return client, nil
}

func (f *fake) serve(l *line) {
	defer l.Close()
	b := pgproto3.NewBackend(l, l)
	if m, err := b.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := m.(*pgproto3.StartupMessage); !ok {
		return // the request to cancel a statement
	}
	f.mu.Lock()
	f.sessions++
	f.mu.Unlock()
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		f.mu.Lock()
		silent := l.silent
		f.mu.Unlock()
		if !silent && b.Flush() != nil {
			return
		}
		if m, err := b.Receive(); err != nil {
			return
		} else if _, ok := m.(*pgproto3.Query); ok {
			b.Send(&pgproto3.EmptyQueryResponse{})
		}
	}
}

// restart breaks the lines, or makes them silent. From then on a dial takes d.
func (f *fake) restart(silent bool, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dial, f.sessions = d, 0
	for _, l := range f.old {
		l.silent = silent
		if !silent {
			_ = l.Close()
		}
	}
}

// restarted returns a pool of a fake with idle connections.
func restarted(t *testing.T, idle, most int) (*pgxpool.Pool, *fake) {
	t.Helper()
	config, err := pgxpool.ParseConfig("host=127.0.0.1 user=postgres sslmode=disable connect_timeout=5")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	config.MaxConns = int32(most)
	config.ConnConfig.DialFunc = f.Dial
	// The pool's own clock does not follow the time of a test, so a hook pings.
	config.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool {
		return ctx.Err() != nil || conn.Ping(ctx) == nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	fill(t, pool, idle)
	return pool, f
}

// slowDial is a restart after which opening a connection takes long.
type slowDial struct {
	name              string
	silent            bool // the idle connections are silent, not broken
	dial              time.Duration
	idle, calls, most int
}

// test checks that no call is lost, whether all calls begin at once or half of them
// begin later.
func (c slowDial) test(t *testing.T) {
	t.Helper()
	const limit = 2 * time.Second // of a call
	for _, later := range []time.Duration{0, 600 * time.Millisecond} {
		t.Run(fmt.Sprint(c.name, " ", later), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, f := restarted(t, c.idle, c.most)
				connection := pgstore.Connection(pool)
				f.restart(c.silent, c.dial)
				errs := make(chan error, c.calls)
				for i := range c.calls {
					go func() {
						if i%2 == 1 {
							time.Sleep(later)
						}
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						defer cancel()
						conn, err := connection(ctx)
						if err == nil {
							conn.Release()
						}
						errs <- err
					}()
				}
				for range c.calls {
					if err := <-errs; err != nil {
						t.Errorf("got %v, want nil", err)
					}
				}
				time.Sleep(20 * time.Second) // pgx can take 15 s to close a connection
				if s := pool.Stat(); s.AcquiredConns() != 0 || s.ConstructingConns() != 0 {
					t.Errorf("got %d connections in use, %d dials", s.AcquiredConns(), s.ConstructingConns())
				}
				if most := 2*c.calls + c.idle; f.sessions > most {
					t.Errorf("got %d sessions, want at most %d", f.sessions, most)
				}
			})
		})
	}
}

// TestConnection_SlowDial checks that no call is lost if a new connection takes long.
// All idle connections are broken or silent, as after a restart.
//
// hazard 23
func TestConnection_SlowDial(t *testing.T) {
	t.Parallel()
	for _, c := range []slowDial{
		{"broken", false, 900 * time.Millisecond, 4, 4, 20},
		{"broken slower dial", false, 1400 * time.Millisecond, 4, 4, 20},
		{"broken one call", false, 1400 * time.Millisecond, 4, 1, 20},
		{"broken few calls", false, 1400 * time.Millisecond, 20, 4, 40},
		{"broken many calls", false, 1400 * time.Millisecond, 4, 50, 200},
		// In a full pool pgx first dials to cancel the broken ping.
		{"broken full pool", false, 900 * time.Millisecond, 4, 4, 4},
		{"broken one connection", false, 900 * time.Millisecond, 1, 1, 1},
		{"silent", true, 900 * time.Millisecond, 4, 4, 20},
		{"silent one call", true, 900 * time.Millisecond, 4, 1, 20},
		{"silent few calls", true, 900 * time.Millisecond, 20, 4, 40},
		{"silent full pool", true, 900 * time.Millisecond, 4, 1, 4},
	} {
		c.test(t)
	}
}

// TestConnection_Canceled checks that a caller whose context is done does not wait for a
// ping or a dial.
func TestConnection_Canceled(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, f := restarted(t, 4, 8)
				f.restart(true, 1400*time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(after, cancel)
				begun := time.Now()
				conn, err := pgstore.Connection(pool)(ctx)
				if err == nil {
					conn.Release()
				}
				if took := time.Since(begun); !errors.Is(err, context.Canceled) || took != after {
					t.Errorf("after %v: got %v, want %v after %v", took, err, context.Canceled, after)
				}
				time.Sleep(20 * time.Second)
				if n := pool.Stat().AcquiredConns(); n != 0 {
					t.Errorf("got %d connections in use, want none", n)
				}
			})
		})
	}
}
