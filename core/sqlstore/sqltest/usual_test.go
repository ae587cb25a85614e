package sqltest

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestUsual checks the usual lock. One statement takes this lock, and one releases it.
func TestUsual(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, _ := d.place(t)
		t.Run("a key is taken by one", func(t *testing.T) {
			key := "order:é'\\\";--"
			first, other := claim(key, long), claim(key, long)
			token, ok := take(t, p, first)
			if !ok {
				t.Fatal("a free key: got a refusal, want a grant")
			}
			// An acquire by the holding lease needs Load and Save.
			for _, c := range []store.Claim{other, first} {
				if _, ok := take(t, p, c); ok {
					t.Error("a held key: got a grant, want a refusal")
				}
			}
			if give(t, p, other) {
				t.Error("a release by another lease: got true, want false")
			}
			if !give(t, p, first) || give(t, p, first) {
				t.Error("two releases: want one that finds the hold")
			}
			next, ok := take(t, p, other)
			if !ok || next < token+store.TokenStep {
				t.Errorf("got token %d after %d, granted %v", next, token, ok)
			}
		})
		t.Run("a hold expires", func(t *testing.T) {
			c := claim("expires", 300*time.Millisecond)
			take(t, p, c)
			time.Sleep(310 * time.Millisecond)
			if give(t, p, c) {
				t.Error("a release of an expired hold: got true, want false")
			}
			if done, err := p.Extend(t.Context(), []store.Claim{c}, version()); err != nil || done[0] {
				t.Errorf("an extension of an expired hold: got %v, %v, want false", done[0], err)
			}
			if _, ok := take(t, p, claim("expires", long)); !ok {
				t.Error("an expired key: got a refusal, want a grant")
			}
		})
		// A duplicate of a Take can arrive after the release. It takes the key again
		// for one TTL, although no process holds the key. An earlier holder, whose hold
		// has expired, stays without the key.
		t.Run("a take is doubled", func(t *testing.T) {
			const ttl = 2 * time.Second
			lost, c, next := claim("doubled", 300*time.Millisecond), claim("doubled", ttl), claim("doubled", long)
			take(t, p, lost)
			var token uint64
			testserver.Eventually(t, long, "an expired key is taken", func() (ok bool) {
				token, ok = take(t, p, c)
				return ok
			})
			if !give(t, p, c) {
				t.Fatal("a release: got false, want true")
			}
			begun := time.Now()
			again, ok := take(t, p, c)
			if !ok || again < token+store.TokenStep {
				t.Fatalf("the same claim again: got token %d after %d, granted %v", again, token, ok)
			}
			if done, err := p.Extend(t.Context(), []store.Claim{lost}, version()); err != nil || done[0] {
				t.Errorf("an extension by the last holder: got %v, %v, want false", done, err)
			}
			if give(t, p, lost) {
				t.Error("a release by the last holder: got true, want false")
			}
			testserver.Eventually(t, long/2, "the key is free after one TTL", func() bool {
				_, ok := take(t, p, next)
				return ok
			})
			if took := time.Since(begun); took < ttl {
				t.Errorf("the key was free after %v, want at least %v", took, ttl)
			}
			if done, err := p.Extend(t.Context(), []store.Claim{c}, version()); err != nil || done[0] {
				t.Errorf("an extension of the doubled take: got %v, %v, want false", done, err)
			}
			if !give(t, p, next) {
				t.Error("the next holder does not hold the key")
			}
		})
		t.Run("tokens grow", func(t *testing.T) {
			var last uint64
			for i := range 50 {
				c := claim("tokens", long)
				if i == 25 {
					c.MinToken = last + 1_000_000_000_000
				}
				token, ok := take(t, p, c)
				if !ok || token < last+store.TokenStep || token < c.MinToken {
					t.Fatalf("got token %d after %d, least %d, granted %v", token, last, c.MinToken, ok)
				}
				last = token
				give(t, p, c)
			}
		})
		t.Run("one of many takes a key", func(t *testing.T) {
			var all sync.WaitGroup
			for round := range 20 {
				var granted atomic.Int32
				key := fmt.Sprint("race ", round/2) // each key is new once, and released once
				var winner atomic.Pointer[store.Claim]
				for range 8 {
					all.Go(func() {
						c := claim(key, long)
						for { // after a deadlock or a busy database nothing has changed
							_, ok, err := p.Take(t.Context(), c, version())
							if err != nil {
								continue
							}
							if ok {
								granted.Add(1)
								winner.Store(&c)
							}
							return
						}
					})
				}
				all.Wait()
				if n := granted.Load(); n != 1 {
					t.Fatalf("round %d: got %d grants, want 1", round, n)
				}
				if !give(t, p, *winner.Load()) {
					t.Fatalf("round %d: the winner does not hold it", round)
				}
			}
		})
		t.Run("holds are extended together", func(t *testing.T) {
			var claims []store.Claim
			for i := range 150 {
				c := claim(fmt.Sprint("extend ", i), long)
				if i%7 == 0 {
					c.TTL = 2 * long
				}
				take(t, p, c)
				claims = append(claims, c)
			}
			give(t, p, claims[77])
			lost := claim("extend 99", long)
			lost.Key = claims[99].Key
			kept := claims[99]
			claims[99] = lost
			before := load(t, p, "extend 3", false)
			done, err := p.Extend(t.Context(), claims, version())
			if err != nil {
				t.Fatal(err)
			}
			for i, ok := range done {
				if want := i != 77 && i != 99; ok != want {
					t.Errorf("hold %d extended: got %v, want %v", i, ok, want)
				}
			}
			if after := load(t, p, "extend 3", false); !after.Alone.Until.After(before.Alone.Until) || after.Alone.Token != before.Alone.Token || after.Version == before.Version {
				t.Errorf("got %+v after %+v", after, before)
			}
			if !give(t, p, kept) {
				t.Error("a hold of another lease is gone")
			}
			short := claims[3]
			short.TTL = time.Millisecond
			if done, err := p.Extend(t.Context(), []store.Claim{short}, version()); err != nil || !done[0] {
				t.Errorf("got %v, %v", done[0], err)
			}
			if r := load(t, p, "extend 3", false); r.Alone.Until.Before(r.Now.Add(long / 2)) {
				t.Error("an extension has made a hold shorter")
			}
		})
	})
}

// TestSQLite_CommitFails checks a COMMIT that waits for readers in a rollback journal.
// The row of a grant is returned first, and then the COMMIT may fail and roll back.
func TestSQLite_CommitFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	d := database{sqlstore.SQLite, "sqlite", "file:" + file + "?_pragma=busy_timeout(100)&_pragma=journal_mode(DELETE)"}
	p, db := d.place(t)
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback() }()
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if token, ok, err := p.Take(t.Context(), claim("k", long), version()); ok || !errors.Is(err, casstore.ErrConflict) {
		t.Fatalf("got token %d, granted %v, %v, want %v", token, ok, err, casstore.ErrConflict)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, ok := take(t, p, claim("k", long)); !ok {
		t.Error("a free key was not granted after the reader")
	}
}
