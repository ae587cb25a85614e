package storetest

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// env is the environment of one case: two processes that share a server, and a key that
// no other case uses.
type env struct {
	*testing.T
	h     Harness
	store store.Store // of this process
	other store.Store // of another process
	key   string
	long  time.Duration // a TTL that outlives the case
	slept atomic.Int64
}

func newEnv(t *testing.T, h Harness) *env {
	t.Helper()
	connect := h.New(t)
	return &env{
		T: t, h: h,
		store: connect(), other: connect(),
		key:  "storetest:" + rand.Text(),
		long: 60 * h.Unit,
	}
}

// newLease returns a lease ID in the form that the Locker of a new process uses.
func newLease() string { return rand.Text()[:8] + rand.Text() }

// exclusive returns a claim of a new owner for the whole key.
func (e *env) exclusive() store.Claim {
	return store.Claim{
		Key: e.key, Owner: rand.Text(), Lease: newLease(),
		Weight: store.All, Limit: store.All, TTL: e.long,
	}
}

// reader returns a claim of a new owner for a share of the key.
func (e *env) reader() store.Claim {
	c := e.exclusive()
	c.Weight = 1
	return c
}

// permits returns a claim of a new owner for n permits of limit.
func (e *env) permits(n, limit int64) store.Claim {
	c := e.exclusive()
	c.Weight, c.Limit = n, limit
	return c
}

// fair returns a fair claim of a new owner, with Wait.
func (e *env) fair() store.Claim {
	c := e.waiting()
	c.Fair = true
	return c
}

// waiting returns a claim of a new owner, with Wait.
func (e *env) waiting() store.Claim {
	c := e.exclusive()
	c.Wait = true
	return c
}

// nested returns a further claim of c's owner.
func nested(c store.Claim) store.Claim {
	c.Lease = newLease()
	return c
}

func joining(c, held store.Claim) store.Claim {
	c.Via = held.Owner
	return c
}

func (e *env) units(n int) time.Duration { return time.Duration(n) * e.h.Unit }

func (e *env) sleep(d time.Duration) {
	e.h.Sleep(d)
	e.slept.Add(int64(d))
}

// outlive sleeps long enough for a hold with this TTL to expire.
func (e *env) outlive(ttl time.Duration) { e.sleep(ttl + e.h.Unit) }

// stopwatch returns a function that returns the time since the call of stopwatch, by
// the store's clock. Harness.Sleep may advance this clock and not the real one.
func (e *env) stopwatch() func() time.Duration {
	start, slept := time.Now(), e.slept.Load()
	return func() time.Duration {
		return max(time.Since(start), time.Duration(e.slept.Load()-slept))
	}
}

// acquire sends c to s, and fails the case unless c is granted.
func (e *env) acquire(s store.Store, c store.Claim) store.Grant {
	e.Helper()
	g, err := s.Acquire(e.Context(), c)
	if err != nil {
		e.Fatalf("acquire: got %v, want a grant", err)
	}
	if g.Owner == "" {
		e.Fatal("acquire: the grant has no owner")
	}
	if g.Valid < 0 || g.Valid > c.TTL {
		e.Fatalf("acquire: valid for %v, want 0 to the TTL of %v", g.Valid, c.TTL)
	}
	return g
}

// busy sends c to s, and fails the case unless c is refused with a *store.BusyError.
func (e *env) busy(s store.Store, c store.Claim) *store.BusyError {
	e.Helper()
	g, err := s.Acquire(e.Context(), c)
	var busy *store.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, store.ErrBusy) {
		e.Fatalf("acquire: got grant %+v and error %v, want a *BusyError", g, err)
	}
	return busy
}

func (e *env) refused(s store.Store, c store.Claim, want error) {
	e.Helper()
	g, err := s.Acquire(e.Context(), c)
	if !errors.Is(err, want) {
		e.Fatalf("acquire: got grant %+v and error %v, want %v", g, err, want)
	}
}

func (e *env) extend(s store.Store, c store.Claim) {
	e.Helper()
	if x := e.extension(s, c); x.Err != nil {
		e.Fatalf("extend: got %v, want an extension", x.Err)
	} else if x.Valid < 0 || x.Valid > c.TTL {
		e.Fatalf("extend: valid for %v, want 0 to the TTL of %v", x.Valid, c.TTL)
	}
}

// notExtended extends c, and fails the case unless s answers store.ErrLost.
func (e *env) notExtended(s store.Store, c store.Claim) {
	e.Helper()
	if x := e.extension(s, c); !errors.Is(x.Err, store.ErrLost) {
		e.Fatalf("extend: got %v, want %v", x.Err, store.ErrLost)
	}
}

func (e *env) extension(s store.Store, c store.Claim) store.Extension {
	e.Helper()
	answers := s.Extend(e.Context(), []store.Claim{c})
	if len(answers) != 1 {
		e.Fatalf("extend: got %d answers for one claim", len(answers))
	}
	return answers[0]
}

func (e *env) release(s store.Store, c store.Claim) {
	e.Helper()
	if err := s.Release(e.Context(), c); err != nil {
		e.Fatalf("release: got %v, want nil", err)
	}
}

// notReleased releases c, and fails the case unless the store answers ErrLost.
func (e *env) notReleased(s store.Store, c store.Claim) {
	e.Helper()
	if err := s.Release(e.Context(), c); !errors.Is(err, store.ErrLost) {
		e.Fatalf("release: got %v, want %v", err, store.ErrLost)
	}
}

// giveUp releases c, and fails the case unless s answers nil or ErrLost.
func (e *env) giveUp(s store.Store, c store.Claim) {
	e.Helper()
	if err := s.Release(e.Context(), c); err != nil && !isLost(err) {
		e.Fatalf("release: got %v, want nil or %v", err, store.ErrLost)
	}
}

// isHeld sends an exclusive claim of a new owner, and fails the case unless it is busy.
func (e *env) isHeld() {
	e.Helper()
	e.busy(e.other, e.exclusive())
}

// isFree acquires and releases the key for a new owner. It fails the case unless the
// exclusive claim is granted at once.
func (e *env) isFree() {
	e.Helper()
	c := e.exclusive()
	e.acquire(e.other, c)
	e.release(e.other, c)
}

// becomesFree repeats c until it is granted, and returns the time that this took.
func (e *env) becomesFree(s store.Store, c store.Claim) time.Duration {
	e.Helper()
	passed := e.stopwatch()
	limit := 2*e.long + 30*time.Second
	for passed() < limit {
		_, err := s.Acquire(e.Context(), c)
		if err == nil {
			return passed()
		}
		if !errors.Is(err, store.ErrBusy) {
			e.Fatalf("acquire: got %v, want a grant at last", err)
		}
		e.sleep(e.h.Unit / 4)
	}
	e.Fatalf("still busy after %v", limit)
	return 0
}

func isLost(err error) bool { return errors.Is(err, store.ErrLost) }

func (e *env) can(f Feature) bool { return !slices.Contains(e.h.Without, f) }
