package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// meeting is a connector whose releases wait for each other after begin. It answers no
// release until size releases are at the database at once. Then it delays the answers
// for a moment, so that further releases can arrive. After silence, the releases of some
// keys do not arrive at the database until the channel heard is closed.
type meeting struct {
	of    driver.Driver
	dsn   string
	size  int
	heard chan struct{}
	met   chan struct{} // closed when the releases have met

	begun atomic.Bool

	mu             sync.Mutex
	inFlight, most int
	silent         []string
}

// newMeeting returns a meeting, and a pool of the database that connects through the
// meeting.
func newMeeting(t *testing.T, d database, size int) (*meeting, *sql.DB) {
	t.Helper()
	m := &meeting{of: d.open(t).Driver(), dsn: d.dsn, size: size, heard: make(chan struct{}), met: make(chan struct{})}
	db := sql.OpenDB(m)
	t.Cleanup(func() { _ = db.Close() })
	return m, db
}

// warm opens n connections of the pool, so that no release has to wait for one.
func warm(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	db.SetMaxIdleConns(n)
	for range n {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
}

func (m *meeting) Driver() driver.Driver { return m.of }

func (m *meeting) Connect(context.Context) (driver.Conn, error) {
	c, err := m.of.Open(m.dsn)
	if err != nil {
		return nil, err
	}
	return &meetingConn{c, m}, nil
}

// enter counts a release that has arrived. If the release is the last for which the
// others wait, enter makes all of them continue soon.
func (m *meeting) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight++
	m.most = max(m.most, m.inFlight)
	if m.inFlight == m.size {
		m.size = -1
		time.AfterFunc(200*time.Millisecond, func() { close(m.met) })
	}
}

// begin makes the releases wait for each other from now on. A claim of a key that has
// tombstones is sent by the same statement as a release.
func (m *meeting) begin() { m.begun.Store(true) }

func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
}

func (m *meeting) highest() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

func (m *meeting) silence(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = keys
}

func (m *meeting) isSilent(query string, args []driver.NamedValue) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range m.silent {
		if strings.Contains(query, hex.EncodeToString([]byte(key))) {
			return true
		}
		for _, arg := range args {
			if v, ok := arg.Value.([]byte); ok && string(v) == key {
				return true
			}
		}
	}
	return false
}

type meetingConn struct {
	driver.Conn
	by *meeting
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *meetingConn) CheckNamedValue(v *driver.NamedValue) error {
	if of, ok := c.Conn.(driver.NamedValueChecker); ok {
		return of.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *meetingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *meetingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	exec := c.Conn.(driver.ExecerContext)
	release := strings.Contains(query, "lease=NULL,owner=NULL")
	if !release || !c.by.begun.Load() {
		return exec.ExecContext(ctx, query, args)
	}
	c.by.enter()
	defer c.by.leave()
	if c.by.isSilent(query, args) {
		select {
		case <-c.by.heard:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r, err := exec.ExecContext(ctx, query, args)
	select {
	case <-c.by.met:
		return r, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func held(t *testing.T, s store.Inspector) (keys []string) {
	t.Helper()
	for after := ""; ; {
		var page []store.State
		var next string
		testserver.Eventually(t, long, "a page is listed", func() (listed bool) {
			var err error
			page, next, err = s.List(t.Context(), after, store.MostListed)
			return err == nil
		})
		for _, state := range page {
			keys = append(keys, state.Key)
		}
		if after = next; after == "" {
			return keys
		}
	}
}

// TestRelease_ManyKeys checks that the keys of one lease are released side by side. The
// releases use all connections of the pool, or 32 connections of a pool without a
// limit.
func TestRelease_ManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 64
	also := make([]string, keys-1)
	for i := range also {
		also[i] = fmt.Sprint("order:", i+1)
	}
	everywhere(t, func(t *testing.T, d database) {
		// The database does not wait for the disk.
		d.dsn = strings.Replace(d.dsn, "synchronous(FULL)", "synchronous(OFF)", 1)
		for name, c := range map[string]struct{ connections, atOnce int }{
			"one connection": {1, 1}, "four connections": {4, 4}, "pool without a limit": {0, 32},
		} {
			t.Run(name, func(t *testing.T) {
				other := d.store(t)
				next := lockerOn(t, other)
				m, db := newMeeting(t, d, c.atOnce)
				db.SetMaxOpenConns(c.connections)
				opened := c.connections
				if opened == 0 {
					opened = keys // no release has to open a connection first
				}
				warm(t, db, opened)
				l := lockerOn(t, newStore(t, db, d))
				var lease *core.Lease
				var err error
				// On a busy machine, one of the 64 acquires can have no answer in time.
				// The next one waits while the keys are released in the background.
				testserver.Eventually(t, 5*time.Minute, "the keys are acquired", func() bool {
					if lease, err = l.Acquire(t.Context(), "order", core.Also(also...), core.TTL(time.Hour), core.Wait(long)); err != nil {
						t.Logf("acquire: %v", err)
					}
					return !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrBusy)
				})
				if err != nil {
					t.Fatal(err)
				}
				m.begin()
				// On a busy machine a part of the release can continue in the background.
				err = lease.Release(t.Context())
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("release: got %v, want nil", err)
				}
				if left := held(t, other); err == nil && len(left) > 0 {
					t.Errorf("got %d keys that are held after the release, want none: %q", len(left), left)
				}
				testserver.Eventually(t, long, "the keys are free", func() bool { return len(held(t, other)) == 0 })
				if most := m.highest(); most != c.atOnce {
					t.Errorf("got %d releases at once, want %d", most, c.atOnce)
				}
				testserver.Eventually(t, long, "another owner has all keys", func() bool {
					return next.Do(t.Context(), "order", func(context.Context) error { return nil }, core.Also(also...), core.Wait(0)) == nil
				})
				testserver.Eventually(t, long, "the keys are free after Do", func() bool { return len(held(t, other)) == 0 })
			})
		}
		t.Run("two keys unanswered", func(t *testing.T) {
			other := d.store(t)
			m, db := newMeeting(t, d, 1)
			l, next := lockerOn(t, newStore(t, db, d)), lockerOn(t, other)
			lease, err := l.Acquire(t.Context(), "order", core.Also(also...))
			if err != nil {
				t.Fatal(err)
			}
			m.begin()
			m.silence(also[7], also[30])
			err = lease.Release(t.Context())
			reported := 0
			if found := regexp.MustCompile(`(\d+) of 64 keys are not released yet`).FindStringSubmatch(fmt.Sprint(err)); found != nil {
				reported, _ = strconv.Atoi(found[1])
			}
			if left := held(t, other); !errors.Is(err, store.ErrUnavailable) || reported < 2 || len(left) < 2 || len(left) > reported {
				t.Errorf("release: got %v, and %d keys that are held, want %v with their number", err, len(left), store.ErrUnavailable)
			}
			close(m.heard)
			testserver.Eventually(t, long, "another owner has all keys", func() bool {
				err := next.Do(t.Context(), "order", func(context.Context) error { return nil }, core.Also(also...), core.Wait(0))
				return err == nil
			})
		})
	})
}

// TestRelease_LeftWhileWaiting checks that a release sends nothing if its caller leaves
// while 32 others are in flight.
func TestRelease_LeftWhileWaiting(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	d := database{sqlstore.SQLite, "sqlite", dsn}
	other := d.store(t)
	m, db := newMeeting(t, d, -1)
	m.begin()
	warm(t, db, 32)
	s := newStore(t, db, d)
	claims := make([]store.Claim, 33)
	for i := range claims {
		claims[i] = claim(fmt.Sprint("key ", i), long)
		if _, err := other.Acquire(t.Context(), claims[i]); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	var all sync.WaitGroup
	for _, c := range claims[1:] {
		all.Go(func() { _ = s.Release(t.Context(), c) })
	}
	testserver.Eventually(t, long, "32 releases are in flight", func() bool { return m.highest() == 32 })
	errLeft := errors.New("left")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errLeft)
	defer cancel()
	err := s.Release(ctx, claims[0])
	if time.Since(begun) < s.Limit() { // on a busy machine the others may have failed by now
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errLeft) {
			t.Errorf("got %v, want %v because of %v", err, store.ErrUnavailable, errLeft)
		}
		if left := held(t, other); !slices.Contains(left, claims[0].Key) || m.highest() != 32 {
			t.Errorf("got %d releases at once, and %q that are held, want 32 and key 0", m.highest(), left)
		}
	}
	close(m.met)
	all.Wait()
	if err := s.Release(t.Context(), claims[0]); err != nil {
		t.Errorf("release: got %v, want nil", err)
	}
}

// TestRelease_SlowDatabase checks that the error of a release without an answer does not
// blame other releases if only a few are in flight.
func TestRelease_SlowDatabase(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	d := database{sqlstore.SQLite, "sqlite", dsn}
	other := d.store(t)
	claims := make([]store.Claim, 8)
	keys := make([]string, len(claims))
	for i := range claims {
		claims[i] = claim(fmt.Sprint("key ", i), long)
		keys[i] = claims[i].Key
		if _, err := other.Acquire(t.Context(), claims[i]); err != nil {
			t.Fatal(err)
		}
	}
	m, db := newMeeting(t, d, 1)
	s := newStore(t, db, d)
	m.begin()
	m.silence(keys...)
	var all sync.WaitGroup
	for _, c := range claims {
		all.Go(func() {
			err := s.Release(t.Context(), c)
			if err == nil || errors.Is(err, store.ErrLost) || strings.Contains(err.Error(), "other releases") {
				t.Errorf("got %v, want an error that does not blame other releases", err)
			}
		})
	}
	all.Wait()
	close(m.heard)
}

func lockerOn(t *testing.T, s store.Store) *core.Locker {
	t.Helper()
	l, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}
