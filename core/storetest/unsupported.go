package storetest

import (
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// unsupportedCases returns the cases that replace the cases of missing features.
func unsupportedCases(without []Feature) []testCase {
	how := map[Feature]func(e *env){
		Shared:     func(e *env) { e.unsupported(e.reader()) },
		Permits:    func(e *env) { e.unsupported(e.permits(1, 2)) },
		Fair:       func(e *env) { e.unsupported(e.fair()) },
		Joining:    func(e *env) { e.unsupported(joining(e.exclusive(), e.exclusive())) },
		Records:    withoutRecords,
		Keeping:    withoutKeeping,
		Fencing:    withoutFencing,
		Reentry:    withoutReentry,
		Watching:   withoutWatching,
		Places:     withoutPlaces,
		Overtaking: withoutOvertaking,
		Inspecting: withoutInspecting,
		Naming:     withoutNaming,
		SoleRevoke: withoutSoleRevoke,
		Carding:    withoutCarding,
		SameToken:  func(*env) {}, // nothing to check
		Tombstones: func(e *env) {
			e.notReleased(e.store, e.exclusive())
			e.isFree()
		},
	}
	var cases []testCase
	for _, f := range without {
		run, known := how[f]
		if !known {
			run = func(e *env) { e.Fatalf("storetest: %q is no Feature", f) }
		}
		cases = append(cases, testCase{fmt.Sprintf("%s is refused", f), nil, run})
	}
	return cases
}

// unsupported sends c for a free key and for a busy key. It fails the case unless c is
// refused with store.ErrUnsupported both times and takes nothing.
func (e *env) unsupported(c store.Claim) {
	e.Helper()
	if k, ok := e.store.(store.Checker); ok {
		if err := k.CheckClaim(c); !errors.Is(err, store.ErrUnsupported) {
			e.Errorf("check: got %v, want %v", err, store.ErrUnsupported)
		}
	}
	e.refused(e.store, c, store.ErrUnsupported)
	e.notExtended(e.other, e.plain(c))
	e.isFree()
	held := e.exclusive()
	e.acquire(e.store, held)
	e.refused(e.other, c, store.ErrUnsupported)
	e.extend(e.store, held)
}

func (e *env) plain(c store.Claim) store.Claim {
	p := e.exclusive()
	p.Owner, p.Lease = c.Owner, c.Lease
	return p
}

// withoutRecords checks that a claim with a record is refused. It also checks that a
// release that cannot save a record does not release the hold.
func withoutRecords(e *env) {
	e.unsupported(e.run("begun"))
	e.key += ":plain"
	c := e.exclusive()
	e.acquire(e.store, c)
	if err := e.store.Release(e.Context(), e.done(c, "answer")); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("release: got %v, want %v", err, store.ErrUnsupported)
	}
	e.isHeld()
	e.release(e.store, c)
	e.isFree()
}

func withoutKeeping(e *env) {
	c := e.exclusive()
	if k, ok := e.store.(store.Checker); ok {
		if err := k.CheckClaim(keeping(c, e.long)); !errors.Is(err, store.ErrUnsupported) {
			e.Errorf("check: got %v, want %v", err, store.ErrUnsupported)
		}
	}
	e.acquire(e.store, c)
	if err := e.store.Release(e.Context(), keeping(c, e.long)); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("release: got %v, want %v", err, store.ErrUnsupported)
	}
	e.isHeld()
	e.release(e.store, c)
	e.isFree()
}

func withoutFencing(e *env) {
	c := e.exclusive()
	c.MinToken = 1
	e.unsupported(c)
	e.key += ":plain"
	e.sameToken(e.store, e.exclusive(), 0)
}

// withoutReentry checks a store that does not know several holds of one owner. Such a
// store may treat the second claim like the first claim or like the claim of another
// owner, or refuse it as unsupported.
func withoutReentry(e *env) {
	c := e.exclusive()
	e.acquire(e.store, c)
	_, err := e.store.Acquire(e.Context(), nested(c))
	if err != nil && !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("acquire: got %v, want nil, %v or %v", err, store.ErrBusy, store.ErrUnsupported)
	}
	e.isHeld()
	e.extend(e.store, c)
	e.release(e.store, c)
	e.isFree()
}

func withoutWatching(e *env) {
	w, ok := e.store.(store.Watcher)
	if !ok {
		return
	}
	if _, err := w.Watch(e.Context(), e.waiting()); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("watch: got %v, want %v", err, store.ErrUnsupported)
	}
}

// withoutPlaces checks that a store without places counts no waiters and remembers no
// waiting claim.
func withoutPlaces(e *env) {
	c, w := e.exclusive(), e.waiting()
	e.acquire(e.store, c)
	if busy := e.busy(e.other, w); busy.Waiting != 0 {
		e.Errorf("got Waiting %d, want 0", busy.Waiting)
	}
	e.notReleased(e.other, w)
	e.release(e.store, c)
	e.isFree()
}

// withoutOvertaking checks that a store without overtaking treats every claim as fair.
// Each waiter has a place, and only a further claim of the holder overtakes it.
func withoutOvertaking(e *env) {
	c, first, second, last := e.exclusive(), e.waiting(), e.waiting(), e.waiting()
	e.acquire(e.store, c)
	e.busy(e.store, first)
	e.busy(e.other, second)
	if e.can(Reentry) {
		inner := nested(c)
		e.acquire(e.store, inner)
		e.release(e.store, inner)
	}
	e.release(e.store, c)
	e.busy(e.other, e.exclusive())
	e.busy(e.store, last)
	e.busy(e.other, second)
	if e.can(Shared) {
		e.busy(e.store, e.reader())
	}
	e.acquire(e.store, first)
	e.busy(e.other, second)
	e.release(e.store, first)
	e.acquire(e.other, second)
	if !e.can(Watching) {
		return
	}
	e.busy(e.store, last)
	woken := e.watch(e.store, last)
	e.release(e.other, second)
	e.wakes(woken)
	e.busy(e.other, e.exclusive()) // this claim must not overtake the waiter
	e.acquire(e.store, last)
}
