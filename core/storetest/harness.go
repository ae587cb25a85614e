package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Harness describes a store to the suite.
type Harness struct {
	// New prepares a place to keep locks in and returns how to reach it. It is
	// called once for each case, from several tests at once; they may share one
	// server, since every case makes up its own keys. Each call of connect
	// gives a Store as another process would have it, on the same locks.
	New func(t testing.TB) (connect func() store.Store)

	// Unit is the time scale, at least 10 ms: a hold that is not extended is
	// gone, for everybody to see, one Unit after its TTL, and the store answers
	// well within a Unit. TTLs are 1 to 60 Units, and at least 9 where a case relies
	// on a hold. On a server, 300 ms leave enough room for a busy machine.
	Unit time.Duration

	// Sleep lets d pass on the store's clock; nil means time.Sleep.
	Sleep func(d time.Duration)

	// Wrap runs the body of one case; nil means to call it. For a store in
	// memory this is synctest.Test, and the suite takes no time.
	Wrap func(t *testing.T, fn func(t *testing.T))

	// Begin begins a transaction of a caller in the database of s, which connect has returned.
	// It is nil if records of the store are not saved in such ones.
	Begin func(t testing.TB, s store.Store) Transaction

	// Without lists the features that the store lacks. The cases of such a feature are
	// replaced by one that checks how the store refuses it.
	Without []Feature
}

// Feature is a part of the contract that a store may lack.
type Feature string

// The features. For those that show in a claim, a store without them answers
// ErrUnsupported, and nothing is taken.
const (
	Shared     Feature = "shared"      // weights of 1 of All
	Permits    Feature = "permits"     // limits other than All
	Reentry    Feature = "re-entry"    // several holds of one owner; without it, an owner is all that tells holds apart
	Joining    Feature = "joining"     // Claim.Via
	Fair       Feature = "fair"        // Claim.Fair
	Overtaking Feature = "overtaking"  // claims that are not Fair pass by those that wait; without it, every claim is as good as Fair, and one that waits keeps its place
	Fencing    Feature = "fencing"     // Grant.Token and Claim.MinToken
	SameToken  Feature = "same token"  // a claim that is sent again, or joins, is told the first token of the grant; without it, one near that, which no other grant has
	Keeping    Feature = "keeping"     // Claim.Keep
	Records    Feature = "records"     // Claim.Record
	Tombstones Feature = "tombstones"  // Acquire is refused after Release
	Watching   Feature = "watching"    // store.Watcher
	Places     Feature = "places"      // claims that wait are remembered: counted, shown, and woken one by one; without it, a release wakes them all
	Inspecting Feature = "inspecting"  // store.Inspector
	Naming     Feature = "naming"      // store.Hold.Process; without it, that is "" of every hold
	SoleRevoke Feature = "sole revoke" // of several that revoke a hold at once, one is told that it did
	Carding    Feature = "cards"       // store.Cards
)

// testCase is one sentence of the contract.
type testCase struct {
	name  string
	needs []Feature
	run   func(e *env)
}

type testGroup struct {
	name  string
	cases []testCase
}

// Run checks that the store of h keeps the contract. Its cases are subtests
// named group/sentence and run in parallel. Their holds are left to expire.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil || h.Unit < 10*time.Millisecond {
		t.Fatal("storetest: a Harness needs New, and a Unit of at least 10ms")
	}
	if h.Sleep == nil {
		h.Sleep = time.Sleep
	}
	if h.Wrap == nil {
		h.Wrap = func(t *testing.T, fn func(t *testing.T)) { fn(t) }
	}
	for _, g := range groups(h) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					h.Wrap(t, func(t *testing.T) { c.run(newEnv(t, h)) })
				})
			}
		})
	}
}

// groups returns the cases that apply to h.
func groups(h Harness) []testGroup {
	all := []testGroup{
		{"check", checkCases},
		{"acquire", acquireCases},
		{"admission", admissionCases},
		{"re-entry", reentryCases},
		{"joining", joiningCases},
		{"expiry", expiryCases},
		{"extend", extendCases},
		{"release", releaseCases},
		{"tombstones", tombstoneCases},
		{"busy", busyCases},
		{"tokens", tokenCases},
		{"token step", stepCases},
		{"fair", fairCases},
		{"waiters", waiterCases},
		{"keep", keepCases},
		{"watch", watchCases},
		{"wake-ups", wakeCases},
		{"records", recordCases},
		{"runs", runCases},
		{"saving", savingCases},
		{"undo", undoCases},
		{"keys", keyCases},
		{"look", lookCases},
		{"list", listCases},
		{"revoke", revokeCases},
		{"cards", cardCases},
		{"concurrency", concurrencyCases},
		{"contexts", contextCases},
		{"unsupported", unsupportedCases(h.Without)},
	}
	if h.Begin != nil {
		all = append(all, testGroup{"commit", commitCases})
	}
	var some []testGroup
	for _, g := range all {
		cases := slices.DeleteFunc(slices.Clone(g.cases), func(c testCase) bool {
			return slices.ContainsFunc(c.needs, func(f Feature) bool { return slices.Contains(h.Without, f) })
		})
		if len(cases) > 0 {
			some = append(some, testGroup{g.name, cases})
		}
	}
	return some
}
