package sqltest

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

// TestRows checks changes of rows by compare-and-set.
func TestRows(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, _ := d.place(t)
		binary := []byte("\x00\xff'\\\n\xc3")
		t.Run("saved row", func(t *testing.T) {
			none := load(t, p, "saved", true)
			if none.Version != 0 || none.State != nil || none.Alone != (casstore.Alone{}) || none.Now.Year() < 2024 {
				t.Fatalf("a key without a row: got %+v", none)
			}
			want := casstore.Entry{
				State: bytes.Repeat(binary, 12_000), Value: bytes.Repeat(binary, 20_000), Due: none.Now, Version: version(),
				Alone: casstore.Alone{
					Token: 77, Lease: string(binary), Owner: "\xfe", Since: none.Now, Until: none.Now.Add(5 * time.Microsecond), Written: none.Now,
				},
			}
			if !save(t, p, "saved", none, want) {
				t.Fatal("a new row: got false, want true")
			}
			got := load(t, p, "saved", true)
			if got.Version != want.Version || got.Alone != want.Alone || !bytes.Equal(got.State, want.State) || !bytes.Equal(got.Value, want.Value) {
				t.Errorf("got a row of version %d that differs", got.Version)
			}
			if r := load(t, p, "saved", false); r.Value != nil || r.State == nil {
				t.Error("got a value that was not wanted, or no state")
			}
			next := casstore.Entry{Version: version(), KeepValue: true, Due: none.Now, Alone: casstore.Alone{Token: 77, Written: none.Now}}
			if !save(t, p, "saved", got, next) {
				t.Fatal("got false, want true")
			}
			kept := load(t, p, "saved", true)
			if kept.State != nil || kept.Alone != next.Alone || !bytes.Equal(kept.Value, want.Value) || kept.Version != next.Version {
				t.Errorf("got a row of version %d after %d, a value of %d bytes", kept.Version, next.Version, len(kept.Value))
			}
			if save(t, p, "saved", got, next) {
				t.Error("over an old version: got true, want false")
			}
			if save(t, p, "saved", none, next) {
				t.Error("as a new row: got true, want false")
			}
		})
		t.Run("one of many saves", func(t *testing.T) {
			for range 10 {
				old := load(t, p, "raced", false)
				var saved atomic.Int32
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for {
							r := casstore.Entry{Version: version(), Due: old.Now, State: []byte("{}")}
							ok, err := p.Save(t.Context(), "raced", old, r)
							if errors.Is(err, store.ErrUnavailable) {
								continue // nothing was changed
							}
							if err != nil {
								t.Error(err)
							}
							if ok {
								saved.Add(1)
							}
							return
						}
					})
				}
				all.Wait()
				if n := saved.Load(); n != 1 {
					t.Fatalf("got %d that saved, want 1", n)
				}
			}
		})
		t.Run("usual claim beside a state", func(t *testing.T) {
			old := load(t, p, "state", false)
			save(t, p, "state", old, casstore.Entry{Due: old.Now, State: []byte("{}")})
			before := load(t, p, "state", false)
			if _, ok := take(t, p, claim("state", long)); ok {
				t.Error("got a grant, want a refusal")
			}
			if after := load(t, p, "state", false); after.Version != before.Version {
				t.Error("a refusal has changed the row")
			}
		})
		t.Run("clock set back", func(t *testing.T) {
			c := claim("back", long)
			take(t, p, c)
			old := load(t, p, "back", false)
			ahead := old
			ahead.Alone.Written, ahead.Alone.Until = old.Now.Add(time.Hour), old.Now.Add(-1)
			save(t, p, "back", old, ahead)
			if _, ok := take(t, p, claim("back", long)); ok {
				t.Error("a row from the future: got a grant, want a refusal")
			}
			if give(t, p, c) {
				t.Error("a row from the future: got a release, want none")
			}
		})
		t.Run("a time of another clock", func(t *testing.T) {
			for _, key := range []string{"new", "there"} {
				if key == "there" {
					take(t, p, claim(key, long))
				}
				old := load(t, p, key, false)
				for _, skew := range []time.Duration{-time.Hour, -2 * time.Second, time.Minute, time.Hour} {
					skewed := old
					skewed.Now = old.Now.Add(skew)
					if ok, err := p.Save(t.Context(), key, skewed, casstore.Entry{Version: version(), Due: old.Now}); ok || err != nil {
						t.Errorf("a %s row, %v beside: got %v, %v, want false", key, skew, ok, err)
					}
				}
				if now := load(t, p, key, false); now.Version != old.Version {
					t.Errorf("a %s row has changed", key)
				}
			}
		})
		t.Run("swept and new row", func(t *testing.T) {
			old := load(t, p, "swept", false)
			c := claim("swept", long)
			token, _ := take(t, p, c)
			held := load(t, p, "swept", false)
			// The sweep also raises the floor before it deletes.
			sweep(t, p, "swept", token)
			if save(t, p, "swept", held, held) {
				t.Error("over a row that is gone: got true, want false")
			}
			if save(t, p, "swept", old, casstore.Entry{Due: old.Now}) {
				t.Error("a late row, with tokens below the floor: got true, want false")
			}
			next, ok := take(t, p, claim("swept", long))
			if !ok || next < token+store.TokenStep {
				t.Errorf("got token %d after %d, granted %v", next, token, ok)
			}
			if save(t, p, "swept", held, held) {
				t.Error("over a row made anew: got true, want false")
			}
		})
		t.Run("tokens are above the floor", func(t *testing.T) {
			floor := uint64(load(t, p, "floor", false).Now.UnixMicro()) + 86_400_000_000
			sweep(t, p, "floor", floor)
			if r := load(t, p, "floor", false); r.Floor != floor {
				t.Errorf("got %+v, want the floor %d", r, floor)
			}
			if token, ok := take(t, p, claim("floor", long)); !ok || token != floor+store.TokenStep {
				t.Errorf("got token %d, granted %v, want %d", token, ok, floor+store.TokenStep)
			}
		})
	})
}

// TestSave_LongValue checks that a Save has more than a second for a long value.
func TestSave_LongValue(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	p, _ := database{sqlstore.SQLite, "sqlite", "file:" + file}.place(t)
	value := make([]byte, 48<<20)
	for _, c := range []struct {
		value []byte
		want  bool
	}{{nil, false}, {value[:1<<20], false}, {value, true}} {
		saved := false
		for range 5 { // on a busy machine a Save can take longer
			old := load(t, p, "key", false)
			old.Now = old.Now.Add(-1300 * time.Millisecond)
			ok, err := p.Save(t.Context(), "key", old, casstore.Entry{Version: version(), Due: old.Now, Value: c.value})
			if err != nil {
				t.Fatal(err)
			}
			saved = saved || ok
		}
		if saved != c.want {
			t.Errorf("a value of %d bytes: saved %v, want %v", len(c.value), saved, c.want)
		}
	}
}

func sweep(t *testing.T, p *rows.Place, key string, floor uint64) {
	t.Helper()
	if err := p.Raise(t.Context(), floor); err != nil {
		t.Fatal(err)
	}
	old := load(t, p, key, false)
	n, err := p.Delete(t.Context(), []casstore.Item{{Key: key, Entry: old}})
	if err != nil || (n == 1) != (old.Version != 0) {
		t.Fatalf("got %d and %v, want the row of version %d deleted", n, err, old.Version)
	}
}

// TestDelete checks that one call deletes a page of rows. Rows that were written after
// they were read stay, and so do locked rows.
func TestDelete(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, db := d.place(t)
		const rows = 50
		for i := range rows {
			c := claim(fmt.Sprint("old ", i), long)
			take(t, p, c)
			give(t, p, c)
		}
		items, err := p.List(t.Context(), "", 1000)
		if err != nil || len(items) != rows {
			t.Fatalf("got %d rows and %v, want %d", len(items), err, rows)
		}
		left := []string{"old 7"}
		held := claim("old 7", long)
		take(t, p, held)
		if d.driver != "sqlite" { // SQLite locks the whole file for a writer
			locks := map[string]string{"mysql": "lockkit_locks", "pgx": "lockkit.locks"}[d.driver]
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), "UPDATE "+locks+" SET owner=NULL WHERE name='old 9'"); err != nil {
				t.Fatal(err)
			}
			left = append(left, "old 9")
		}
		n, err := p.Delete(t.Context(), append(items, casstore.Item{Key: "none", Entry: casstore.Entry{Version: 7}}))
		if err != nil || n != rows-len(left) {
			t.Errorf("got %d rows deleted and %v, want %d", n, err, rows-len(left))
		}
		items, err = p.List(t.Context(), "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range items {
			got = append(got, i.Key)
		}
		if !slices.Equal(got, left) {
			t.Errorf("got %q left, want %q", got, left)
		}
		if !give(t, p, held) {
			t.Error("the row that was written has lost its hold")
		}
	})
}

// TestDelete_LongKeys deletes a page of a thousand items with long keys, of which three
// have rows. Delete needs several statements for these keys.
func TestDelete_LongKeys(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, _ := d.place(t)
		long := strings.Repeat("\xff", 500)
		items := make([]casstore.Item, 1000)
		for i := range items {
			items[i] = casstore.Item{Key: fmt.Sprint(long, i), Entry: casstore.Entry{Version: version()}}
		}
		for _, i := range []int{0, 500, 999} {
			old := load(t, p, items[i].Key, false)
			if !save(t, p, items[i].Key, old, casstore.Entry{Version: items[i].Version, Due: old.Now}) {
				t.Fatal("got false, want true")
			}
		}
		if n, err := p.Delete(t.Context(), items); n != 3 || err != nil {
			t.Errorf("got %d and %v, want 3 rows deleted", n, err)
		}
	})
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		var all sync.WaitGroup
		for range 4 {
			db := d.open(t)
			all.Go(func() {
				if err := sqlstore.Migrate(t.Context(), db, d.dialect); err != nil && !strings.Contains(err.Error(), "locked") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		p, db := d.place(t)
		take(t, p, claim("kept", long))
		if err := sqlstore.Migrate(t.Context(), db, d.dialect); err != nil {
			t.Error(err)
		}
		if r := load(t, p, "kept", false); r.Alone.Lease == "" {
			t.Error("a second Migrate has removed a lock")
		}
	})
}

// TestMigrate_Newer checks that neither Migrate nor the statements of Schema change the
// version of newer tables.
func TestMigrate_Newer(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		_, db := d.place(t)
		setVersion(t, db, d, 1_000)
		for statement := range strings.SplitSeq(sqlstore.Schema(d.dialect), ";\n") {
			if statement == "" {
				continue
			}
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := sqlstore.Migrate(t.Context(), db, d.dialect); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "of version 1000") {
			t.Errorf("got %v, want %v that names the version", err, store.ErrUnsupported)
		}
	})
}
