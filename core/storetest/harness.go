package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Harness describes a store to the suite.
type Harness struct {
	// New prepares storage for locks and returns a function that connects to it. New is
	// called once for each case, and several cases call it at once. The cases may share
	// one server, because each case chooses its own keys. Each call of connect returns
	// a Store like the Store of a further process, for the same locks.
	New func(t testing.TB) (connect func() store.Store)

	// Unit is the time scale, at least 10 ms. One Unit after its TTL, a hold that was
	// not extended must have expired for all processes. The store must answer well
	// within a Unit. TTLs are 1 to 60 Units, and at least 9 Units if a case relies on a
	// hold. In one case TTLs are 60 Units plus store.WaiterLife. For a store on a
	// server, 300 ms are enough for a busy machine.
	Unit time.Duration

	// Sleep returns after d has passed on the store's clock. nil means time.Sleep.
	Sleep func(d time.Duration)

	// Wrap runs the body of one case. nil means a plain call. For a store in memory,
	// use synctest.Test: the suite then takes hardly any time.
	Wrap func(t *testing.T, fn func(t *testing.T))

	// Begin begins a transaction of a caller in the database of s, a store that connect
	// has returned. It is nil if the store does not save records in transactions of
	// callers.
	Begin func(t testing.TB, s store.Store) Transaction

	// Without lists the features that the store lacks. For each of these features, one
	// case replaces the feature's cases. That case checks that the store refuses the
	// feature, or works without it.
	Without []Feature
}

// Feature is a part of the contract that a store may lack.
type Feature string

// The features. If a claim needs a feature that the store lacks, the store answers
// ErrUnsupported and takes nothing.
//
// Without Reentry, only the owner distinguishes holds. Without Overtaking, the store
// treats every claim as Fair. Without SameToken, the claim gets a nearby token that no
// other grant has. Without Places, a release wakes all. Without Naming, Process is "" for
// every hold.
const (
	Shared     Feature = "shared"      // weights of 1 of All
	Permits    Feature = "permits"     // limits other than All
	Reentry    Feature = "re-entry"    // several holds of one owner
	Joining    Feature = "joining"     // Claim.Via
	Fair       Feature = "fair"        // Claim.Fair
	Overtaking Feature = "overtaking"  // claims that are not Fair can overtake waiting claims
	Fencing    Feature = "fencing"     // Grant.Token and Claim.MinToken
	SameToken  Feature = "same token"  // a repeated or joining claim gets the grant's first token
	Keeping    Feature = "keeping"     // Claim.Keep
	Records    Feature = "records"     // Claim.Record
	Tombstones Feature = "tombstones"  // Acquire is refused after Release
	Watching   Feature = "watching"    // store.Watcher
	Places     Feature = "places"      // waiting claims are counted, shown, and woken one by one
	Inspecting Feature = "inspecting"  // store.Inspector
	Naming     Feature = "naming"      // store.Hold.Process
	SoleRevoke Feature = "sole revoke" // only one of several concurrent revokes returns nil
	Carding    Feature = "cards"       // store.Cards
)

// testCase is one case of the suite.
type testCase struct {
	name  string
	needs []Feature
	run   func(e *env)
}

type testGroup struct {
	name  string
	cases []testCase
}

// Run checks that the store of h fulfills the contract. Its cases are subtests named
// group/case and run in parallel. The cases leave holds that expire later.
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
