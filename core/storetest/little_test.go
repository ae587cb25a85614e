package storetest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

var allFeatures = []storetest.Feature{
	storetest.Shared, storetest.Permits, storetest.Reentry, storetest.Joining, storetest.Fair, storetest.Fencing,
	storetest.Keeping, storetest.Records, storetest.Tombstones, storetest.Watching, storetest.Places,
	storetest.Inspecting, storetest.Naming, storetest.Carding,
}

// tooMuch lists features that the sound store has, although its harness lists them in
// Without.
var tooMuch = append(slices.Clone(allFeatures), storetest.Overtaking)

// little is a store that has only one exclusive hold for each key. The owner identifies
// the hold.
type little struct{ store *memstore.Store }

func (s little) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := s.CheckClaim(c); err != nil {
		return store.Grant{}, err
	}
	c.Wait, c.Lease = false, c.Owner
	g, err := s.store.Acquire(ctx, c)
	g.Token = 0
	return g, err
}

func (s little) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	return extendEach(func(ctx context.Context, c store.Claim) error {
		c.Lease = c.Owner
		return s.store.Extend(ctx, []store.Claim{c})[0].Err
	})(ctx, claims)
}

func (s little) Release(ctx context.Context, c store.Claim) error {
	if c.Keep > 0 || c.Record != nil {
		return store.ErrUnsupported
	}
	c.Lease, c.TTL = c.Owner, 0 // a TTL of 0 leaves no tombstone
	return s.store.Release(ctx, c)
}

func (s little) CheckClaim(c store.Claim) error {
	if c.Keep > 0 || c.Weight != store.All || c.Via != "" || c.Fair || c.MinToken > 0 || c.Record != nil {
		return store.ErrUnsupported
	}
	return nil
}

func TestRun_LittleStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) func() store.Store {
			s := memstore.New()
			return func() store.Store { return little{s} }
		},
		Unit:    100 * time.Millisecond,
		Wrap:    synctest.Test,
		Without: allFeatures,
	})
}

func TestRun_FeaturesInWithout(t *testing.T) {
	t.Parallel()
	got, out := runSuite(tooAble)
	for _, f := range tooMuch {
		c := "unsupported/" + string(f) + " is refused"
		want := "FAIL"
		if f == storetest.Tombstones {
			want = "PASS" // extra tombstones do no harm
		}
		if got[c] != want {
			t.Errorf("%q: %q, want %s", c, got[c], want)
		}
	}
	for c, result := range got {
		if !strings.HasPrefix(c, "unsupported/") && result != "PASS" {
			t.Errorf("%q: %s, want PASS", c, result)
		}
	}
	if t.Failed() {
		t.Logf("output of the child process:\n%s", out)
	}
}
