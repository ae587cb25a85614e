package sqltest

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
)

// Rows are changed by compare-and-set.
func TestRows(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, db := d.place(t)
		binary := []byte("\x00\xff'\\\n\xc3")
		t.Run("a row is as it was saved", func(t *testing.T) {
			none := load(t, p, "saved", true)
			if none.Version != 0 || none.State != nil || none.Lease != nil || none.Now < 1_700_000_000_000_000 {
				t.Fatalf("a key without a row: got %+v", none)
			}
			want := sqlstore.Row{
				Token: 77, Lease: binary, Owner: []byte{0xfe}, Since: none.Now, Until: none.Now + 5, Written: none.Now,
				State: bytes.Repeat(binary, 40_000), Answer: bytes.Repeat(binary, 100_000),
			}
			if !save(t, p, "saved", none, want) {
				t.Fatal("a new row: got false, want true")
			}
			got := load(t, p, "saved", true)
			if got.Version == 0 || got.Token != want.Token || !bytes.Equal(got.Lease, want.Lease) || !bytes.Equal(got.Owner, want.Owner) ||
				got.Since != want.Since || got.Until != want.Until || got.Written != want.Written ||
				!bytes.Equal(got.State, want.State) || !bytes.Equal(got.Answer, want.Answer) {
				t.Errorf("got a row of version %d that differs", got.Version)
			}
			if r := load(t, p, "saved", false); r.Answer != nil || r.State == nil {
				t.Error("got an answer that was not wanted, or no state")
			}
			next := want
			next.State, next.Lease, next.Owner, next.Answer, next.Keep = nil, nil, nil, nil, true
			if !save(t, p, "saved", got, next) {
				t.Fatal("got false, want true")
			}
			kept := load(t, p, "saved", true)
			if kept.State != nil || kept.Lease != nil || !bytes.Equal(kept.Answer, want.Answer) || kept.Version == got.Version {
				t.Errorf("got a row of version %d after %d, an answer of %d bytes", kept.Version, got.Version, len(kept.Answer))
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
							r := sqlstore.Row{Token: old.Token + 64, Written: old.Now, State: []byte("{}")}
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
		t.Run("a usual claim leaves a row with a state alone", func(t *testing.T) {
			old := load(t, p, "state", false)
			save(t, p, "state", old, sqlstore.Row{Token: old.Token, Written: old.Now, State: []byte("{}")})
			before := load(t, p, "state", false)
			if _, ok := take(t, p, claim("state", long)); ok {
				t.Error("got a grant, want a refusal")
			}
			if after := load(t, p, "state", false); after.Version != before.Version {
				t.Error("a refusal has changed the row")
			}
		})
		t.Run("a clock that was set back", func(t *testing.T) {
			c := claim("back", long)
			take(t, p, c)
			old := load(t, p, "back", false)
			ahead := old
			ahead.Written, ahead.Until = old.Now+3_600_000_000, old.Now-1
			save(t, p, "back", old, ahead)
			if _, ok := take(t, p, claim("back", long)); ok {
				t.Error("a row from the future: got a grant, want a refusal")
			}
			if give(t, p, c) {
				t.Error("a row from the future: got a release, want none")
			}
		})
		t.Run("a row that was swept and made anew", func(t *testing.T) {
			old := load(t, p, "swept", false)
			c := claim("swept", long)
			token, _ := take(t, p, c)
			held := load(t, p, "swept", false)
			// As the sweep does, which raises the floor before it deletes.
			sweep(t, db, d, "swept", token)
			if save(t, p, "swept", held, held) {
				t.Error("over a row that is gone: got true, want false")
			}
			if save(t, p, "swept", old, sqlstore.Row{Token: old.Token + 64, Written: old.Now}) {
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
			floor := uint64(load(t, p, "floor", false).Now) + 86_400_000_000
			sweep(t, db, d, "floor", floor)
			if r := load(t, p, "floor", false); r.Token != int64(floor) || r.Floor != int64(floor) {
				t.Errorf("got %+v, want the token %d", r, floor)
			}
			if token, ok := take(t, p, claim("floor", long)); !ok || token != floor+store.TokenStep {
				t.Errorf("got token %d, granted %v, want %d", token, ok, floor+store.TokenStep)
			}
		})
	})
}

// sweep raises the floor and deletes the row of key.
func sweep(t *testing.T, db *sql.DB, d database, key string, floor uint64) {
	t.Helper()
	table, quote := "lockkit_", "X'%x'"
	if d.driver == "pgx" {
		table, quote = "lockkit.", `'\x%x'`
	}
	for _, text := range []string{
		fmt.Sprintf("UPDATE %sfloor SET token=%d", table, floor),
		fmt.Sprintf("DELETE FROM %slocks WHERE name="+quote, table, key),
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
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
		if r := load(t, p, "kept", false); r.Lease == nil {
			t.Error("a second Migrate has removed a lock")
		}
	})
}
