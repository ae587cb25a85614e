package casstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t testing.TB, p casstore.Place) *casstore.Store {
	t.Helper()
	s, err := casstore.New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		place   func() casstore.Place
		without []storetest.Feature
	}{
		"all methods": {func() casstore.Place { return newMemory() }, nil},
		"two methods": {
			func() casstore.Place { return bare{newMemory()} },
			[]storetest.Feature{storetest.Watching, storetest.Inspecting, storetest.Carding},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					p := c.place()
					return func() store.Store { return placed{newStore(t, p), p} }
				},
				Begin: func(_ testing.TB, s store.Store) storetest.Transaction { return begin(s) },
				Unit:  100 * time.Millisecond, Wrap: synctest.Test, Without: c.without,
			})
		})
	}
}
