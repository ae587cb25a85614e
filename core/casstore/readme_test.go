package casstore_test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestOwn checks that README.md shows the code of own_test.go, which has at most 150
// lines. In the proof, TestOwn also checks that this store satisfies the contract of a
// store.
func TestOwn(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("own_test.go")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(string(code), "package casstore_test\n", "package mylocks\n", 1)
	if blocks := regexp.MustCompile("(?s)```go\n(package .*?)```").FindSubmatch(page); blocks == nil || string(blocks[1]) != own {
		t.Error("README.md shows other code than own_test.go has")
	}
	if n := strings.Count(own, "\n"); n > 150 {
		t.Errorf("got %d lines, want 150 at most", n)
	}
	tally.ProofOnly(t) // takes minutes: it waits for the clock of a server
	url := testserver.StartPostgres(t, "max_connections = 200").URL()
	open := func(t testing.TB) *sql.DB {
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(40)
		return db
	}
	here, there := open(t), open(t)
	if _, err := here.ExecContext(t.Context(), Schema); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			dbs := []*sql.DB{here, there}
			return func() store.Store {
				s, err := New(dbs[0])
				if err != nil {
					t.Fatal(err)
				}
				dbs = dbs[1:]
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
		},
		Unit: 300 * time.Millisecond, Without: []storetest.Feature{storetest.Watching},
	})
}
