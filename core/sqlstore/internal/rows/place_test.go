package rows

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// TestLoad_Standby checks that a read that a standby has answered is an error.
func TestLoad_Standby(t *testing.T) {
	t.Parallel()
	for _, current := range []bool{false, true} {
		row := []driver.Value{true, false, true, int64(dialect.SchemaVersion), "id", int64(0), int64(1), int64(0), nil, int64(0), int64(0), nil, nil, int64(0), int64(0), int64(0), int64(0), nil, nil}
		_, err := newFake(t, answer{tuple: row}).Load(t.Context(), "key", casstore.Want{Current: current})
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to the primary") {
			t.Errorf("got %v, want %v that names the primary", err, store.ErrUnavailable)
		}
		row[1] = true
		if _, err := newFake(t, answer{tuple: row}).Load(t.Context(), "key", casstore.Want{Current: current}); err != nil {
			t.Errorf("of the primary: got %v, want nil", err)
		}
	}
}

// TestRenew_DriverThatHangs checks that calls continue even if the driver ignores the
// context of a ping, or panics.
func TestRenew_DriverThatHangs(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	for name, ping := range map[string]func() error{
		"hangs": func() error { <-leave; return nil }, "panics": func() error { panic("a hook") },
	} {
		f := &fake{answers: []answer{{rows: 1}}, ping: ping}
		db := sql.OpenDB(f)
		t.Cleanup(func() { _ = db.Close() })
		p := New(db, dialect.PostgreSQL{})
		if _, err := p.Change(t.Context(), dialect.Statement{Text: "UPDATE"}); err != nil {
			t.Fatal(err)
		}
		p.silent.Store(true)
		if n, err := p.Change(t.Context(), dialect.Statement{Text: "UPDATE"}); n != 1 || err != nil {
			t.Errorf("%s: got %d and %v", name, n, err)
		}
		if p.silent.Load() {
			t.Errorf("%s: the next call pings again", name)
		}
	}
}

// TestAbandon checks that the refusal of a read-only server closes all idle connections
// of the pool. Another error closes at most its own connection.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]int{1290: 0, 1927: 2, 1142: 3} {
		p := newFake(t, answer{err: &numbered{number}})
		p.DB.SetMaxIdleConns(3)
		var all [3]*sql.Conn
		for i := range all {
			c, err := p.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all[i] = c
		}
		for _, c := range all {
			_ = c.Close()
		}
		if _, err := p.Change(t.Context(), dialect.Statement{Text: "UPDATE"}); err == nil {
			t.Errorf("error %d: got nil, want an error", number)
		}
		if got := p.DB.Stats().OpenConnections; got != want {
			t.Errorf("error %d: got %d connections, want %d", number, got, want)
		}
	}
}

// TestAbandon_DuringPings abandons the pool's connections while pings have taken them.
func TestAbandon_DuringPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 3
		p, f := restarted(t, idle, 0)
		f.ping = func() error {
			time.Sleep(silenceLimit / 2)
			return nil
		}
		p.silent.Store(true)
		renewed := p.renew()
		synctest.Wait()
		if n := p.DB.Stats().InUse; n != idle {
			t.Fatalf("the pings have %d connections, want %d", n, idle)
		}
		p.abandon(t.Context(), p.abandoned.Load())
		<-renewed
		if n := p.DB.Stats().OpenConnections; n != 0 {
			t.Errorf("got %d open connections, want 0", n)
		}
		_ = p.DB.Close()
	})
}

// TestAbandon_BesidePings abandons the pool's connections while pings begin.
func TestAbandon_BesidePings(t *testing.T) {
	t.Parallel()
	for i := range 500 {
		synctest.Test(t, func(t *testing.T) {
			p, _ := restarted(t, 3, 0)
			p.silent.Store(true)
			var all sync.WaitGroup
			all.Go(func() { <-p.renew() })
			all.Go(func() { p.abandon(t.Context(), p.abandoned.Load()) })
			all.Wait()
			if n := p.DB.Stats().OpenConnections; n != 0 {
				t.Fatalf("round %d: got %d open connections, want 0", i, n)
			}
			_ = p.DB.Close()
		})
	}
}

// TestAbandon_InUse abandons the pool's connections during a call, whose connection
// closes after the call.
func TestAbandon_InUse(t *testing.T) {
	t.Parallel()
	p, _ := restarted(t, 3, 0)
	err := p.call(t.Context(), func(*sql.Conn) error {
		p.abandon(t.Context(), p.abandoned.Load())
		if n := p.DB.Stats().OpenConnections; n != 1 {
			t.Errorf("got %d open connections during the call, want 1", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := p.DB.Stats().OpenConnections; n != 0 {
		t.Errorf("got %d open connections, want 0", n)
	}
}

// TestAbandon_Crowd refuses many callers during the pings. One of them closes the
// connections for all.
func TestAbandon_Crowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := restarted(t, 3, 0)
		f.ping = func() error {
			time.Sleep(silenceLimit / 2)
			return nil
		}
		p.silent.Store(true)
		p.renew()
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { p.abandon(t.Context(), 0) })
		}
		all.Wait()
		if n := p.DB.Stats().OpenConnections; n != 0 || p.abandoned.Load() != 1 {
			t.Errorf("got %d open connections after %d visits, want 0 after 1", n, p.abandoned.Load())
		}
		_ = p.DB.Close()
	})
}
