package casstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

var claimed atomic.Int64

var errBroken = errors.New("the connection broke")

// bad is a memory behind a driver and a network, which pass simulates.
type bad struct {
	*memory
	mu   sync.Mutex
	pass func(op string, write func()) error // nil passes the call unchanged
}

func (b *bad) through(op string, write func()) error {
	b.mu.Lock()
	pass := b.pass
	b.mu.Unlock()
	if pass == nil {
		write()
		return nil
	}
	return pass(op, write)
}

func (b *bad) set(pass func(op string, write func()) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass = pass
}

func (b *bad) Load(ctx context.Context, key string, w casstore.Want) (e casstore.Entry, err error) {
	err = b.through("load", func() { e, _ = b.memory.Load(ctx, key, w) })
	return e, err
}

func (b *bad) Save(ctx context.Context, key string, old, e casstore.Entry) (ok bool, err error) {
	err = b.through("save", func() { ok, _ = b.memory.Save(ctx, key, old, e) })
	return ok, err
}

func (b *bad) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	err = b.through("take", func() { token, ok, _ = b.memory.Take(ctx, c, version) })
	return token, ok, err
}

func (b *bad) Give(ctx context.Context, c store.Claim, version int64) (ok bool, err error) {
	err = b.through("give", func() { ok, _ = b.memory.Give(ctx, c, version) })
	return ok, err
}

func (b *bad) Extend(ctx context.Context, claims []store.Claim, version int64) (done []bool, err error) {
	if err := b.through("extend", func() { done, _ = b.memory.Extend(ctx, claims, version) }); err != nil {
		return nil, err
	}
	return done, nil
}

// twice simulates a driver that sends each write twice and returns the second result.
func twice(op string, write func()) error {
	write()
	if op != "load" {
		write()
	}
	return nil
}

// TestSentTwice checks writes that a driver sends twice. Each write has the result of
// its first copy.
func TestSentTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bad{memory: newMemory()}
		b.set(twice)
		for what, p := range map[string]casstore.Place{"everything": b, "load and save": struct{ casstore.Lister }{b}} {
			s := newStore(t, p)
			for range 3 {
				c := claim(what)
				first := acquire(t, s, c)
				if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
					t.Errorf("%s: extend: got %v, want nil", what, x[0].Err)
				}
				release(t, s, c, nil)
				release(t, s, c, store.ErrLost)
				run := claim(what)
				run.Record = &store.Record{Value: []byte("begun"), Retain: time.Hour}
				if g := acquire(t, s, run); g.Record.Attempt != 1 || g.Token < first.Token+store.TokenStep {
					t.Errorf("%s: got %+v, want the first run and a higher token than %d", what, g, first.Token)
				}
				undo := run
				undo.Record, undo.Undo = nil, true
				release(t, s, undo, nil)
			}
			c := claim(what)
			acquire(t, s, c)
			if err := s.Revoke(t.Context(), what, store.HoldID(c.Lease), 0); err != nil {
				t.Errorf("%s: revoke: got %v, want nil", what, err)
			}
		}
	})
}

// TestSentTwice_TakenBetween checks a release that is sent twice. The first copy frees
// the key, and another process takes the key before the second copy arrives. Then the
// outcome of the release is unknown.
func TestSentTwice_TakenBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bad{memory: newMemory()}
		s, other := newStore(t, struct{ casstore.Place }{b}), newStore(t, b.memory)
		c, next := claim("key"), claim("key")
		acquire(t, s, c)
		b.set(func(op string, write func()) error {
			write()
			if op == "save" {
				b.set(nil)
				acquire(t, other, next)
				write()
			}
			return nil
		})
		err := s.Release(t.Context(), c)
		if err == nil || errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		release(t, s, c, store.ErrLost)
		release(t, other, next, nil)
	})
}

// TestOutcomes checks the classes of errors. If a write may have taken effect, the
// outcome is unknown. The cause of the caller's ctx and the write's error do not change
// that. If nothing was written, the error matches store.ErrUnavailable.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	operations := map[string]func(ctx context.Context, s *casstore.Store, held, free store.Claim) error{
		"acquire": func(ctx context.Context, s *casstore.Store, _, free store.Claim) error {
			_, err := s.Acquire(ctx, free)
			return err
		},
		"extend": func(ctx context.Context, s *casstore.Store, held, _ store.Claim) error {
			return s.Extend(ctx, []store.Claim{held})[0].Err
		},
		"release": func(ctx context.Context, s *casstore.Store, held, _ store.Claim) error {
			return s.Release(ctx, held)
		},
		"revoke": func(ctx context.Context, s *casstore.Store, held, _ store.Claim) error {
			return s.Revoke(ctx, held.Key, store.HoldID(held.Lease), 0)
		},
	}
	known := []error{store.ErrUnavailable, store.ErrLost, store.ErrBusy, store.ErrInvalid, store.ErrUnsupported}
	try := func(t *testing.T, pass func(op string, write func()) error, cause error, check func(what string, err error)) {
		for _, everything := range []bool{true, false} {
			for what, operation := range operations {
				synctest.Test(t, func(t *testing.T) {
					b := &bad{memory: newMemory()}
					s := newStore(t, struct{ casstore.Lister }{b})
					if everything {
						s = newStore(t, b)
					}
					held, free := claim("held"), claim("free")
					acquire(t, s, held)
					b.set(pass)
					ctx, cancel := context.WithCancelCause(t.Context())
					if cause != nil {
						time.AfterFunc(time.Second, func() { cancel(cause) })
					}
					check(what, operation(ctx, s, held, free))
					cancel(nil)
					time.Sleep(time.Minute)
				})
			}
		}
	}
	for _, sentinel := range known {
		try(t, func(op string, write func()) error {
			if op != "load" {
				time.Sleep(1500 * time.Millisecond)
			}
			write()
			return nil
		}, sentinel, func(what string, err error) {
			for _, class := range known {
				if err == nil || errors.Is(err, class) {
					t.Errorf("%s, left for %q: got %v, want an unknown outcome", what, sentinel, err)
				}
			}
		})
		if sentinel == store.ErrUnavailable {
			continue // with this error, the place reports that the write has changed nothing
		}
		try(t, func(op string, write func()) error {
			write()
			if op != "load" {
				return sentinel
			}
			return nil
		}, nil, func(what string, err error) {
			if err == nil || errors.Is(err, sentinel) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s, a write that fails with %q: got %v, want an unknown outcome", what, sentinel, err)
			}
		})
	}
	for what, pass := range map[string]func(op string, write func()) error{
		"nothing can be read": func(op string, write func()) error {
			if op == "load" || op == "take" || op == "give" || op == "extend" {
				return errors.Join(store.ErrUnavailable, errBroken)
			}
			return nil
		},
		"nothing is written": func(op string, write func()) error {
			if op == "load" {
				write()
				return nil
			}
			return errors.Join(store.ErrUnavailable, errBroken)
		},
		"every write is rolled back": func(op string, write func()) error {
			if op == "load" {
				write()
				return nil
			}
			return errors.Join(casstore.ErrConflict, errBroken)
		},
	} {
		try(t, pass, nil, func(op string, err error) {
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errBroken) {
				t.Errorf("%s, %s: got %v, want %v and its reason", what, op, err, store.ErrUnavailable)
			}
		})
	}
	// No Save succeeds. The Place may have sent each one twice, so the first copy can
	// have written.
	try(t, func(op string, write func()) error {
		if op == "load" {
			write()
		}
		return nil
	}, nil, func(what string, err error) {
		for _, class := range known {
			if err == nil || errors.Is(err, class) {
				t.Errorf("%s, no write wins: got %v, want an unknown outcome", what, err)
			}
		}
	})
	errEnded := errors.New("the caller has left")
	try(t, func(op string, write func()) error {
		time.Sleep(1500 * time.Millisecond)
		write()
		return nil
	}, errEnded, func(what string, err error) {
		if !errors.Is(err, errEnded) {
			t.Errorf("%s: got %v, want %v", what, err, errEnded)
		}
	})
}

// TestStaleReads checks that an old copy of the place neither grants nor ends a hold.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		p := &replica{memory: m, old: make(map[string]casstore.Entry)}
		for what, s := range map[string]*casstore.Store{"everything": newStore(t, p), "load and save": newStore(t, struct{ casstore.Lister }{p})} {
			c := claim(what)
			acquire(t, s, c)
			p.copy()
			release(t, s, c, nil) // the copy still has the hold
			if err := s.Release(t.Context(), c); err == nil || what == "everything" && !errors.Is(err, store.ErrLost) {
				t.Errorf("%s: a second release: got %v, want %v", what, err, store.ErrLost)
			}
			if x := s.Extend(t.Context(), []store.Claim{c}); !errors.Is(x[0].Err, store.ErrLost) {
				t.Errorf("%s: extend: got %v, want %v", what, x[0].Err, store.ErrLost)
			}
			p.copy()
			other, reader := claim(what), claim(what)
			acquire(t, s, other) // in the copy the key is free
			reader.Weight = 1
			busy(t, s, reader)
			if x := s.Extend(t.Context(), []store.Claim{other}); x[0].Err != nil {
				t.Errorf("%s: extend: got %v, want nil", what, x[0].Err)
			}
			p.copy()
			old := maps.Clone(p.old)
			release(t, s, other, nil)
			p.copy()
			outer, nested := claim(what), claim(what)
			acquire(t, s, outer)
			p.old = old // the copy has the hold of other
			nested.Via = outer.Owner
			if g, err := s.Acquire(t.Context(), nested); err != nil || g.Owner != outer.Owner {
				t.Errorf("%s: re-entry: got owner %q and %v, want %q and nil", what, g.Owner, err, outer.Owner)
			}
			release(t, s, nested, nil)
			if err := s.Revoke(t.Context(), what, store.HoldID(outer.Lease), 0); err != nil {
				t.Errorf("%s: revoke: got %v, want nil", what, err)
			}
		}
	})
}

// TestExtend_InPart checks that the successful claims of a batch keep their results
// when other claims fail.
func TestExtend_InPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &inPart{memory: newMemory(), err: errBroken}
		s := newStore(t, p)
		var claims []store.Claim
		for i := range 6 {
			claims = append(claims, claim(fmt.Sprint("key ", i)))
			acquire(t, s, claims[i])
		}
		for i, x := range s.Extend(t.Context(), claims) {
			if i%2 == 0 && x.Err != nil || i%2 == 1 && (!errors.Is(x.Err, errBroken) || errors.Is(x.Err, store.ErrUnavailable)) {
				t.Errorf("hold %d: got %v", i, x.Err)
			}
		}
		p.err = casstore.ErrConflict
		for i, x := range s.Extend(t.Context(), claims) {
			if x.Err != nil {
				t.Errorf("hold %d, after a deadlock: got %v, want nil", i, x.Err)
			}
		}
	})
}

// inPart extends every second hold, and fails for the other holds.
type inPart struct {
	*memory
	err error
}

func (p *inPart) Extend(ctx context.Context, claims []store.Claim, version int64) ([]bool, error) {
	done := make([]bool, len(claims))
	for i := 0; i < len(claims); i += 2 {
		one, err := p.memory.Extend(ctx, claims[i:i+1], version)
		if err != nil {
			return nil, err
		}
		done[i] = one[0]
	}
	return done, p.err
}

// TestExtend_BesideLocked checks that entries locked by other clients do not delay the
// extension of other entries.
func TestExtend_BesideLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &locking{memory: newMemory()}
		s := newStore(t, p)
		var claims []store.Claim
		for i := range 60 {
			c := claim(fmt.Sprint("key ", i))
			c.Weight = 1
			claims = append(claims, c)
			acquire(t, s, c)
		}
		p.locked.Store(true)
		for i, x := range s.Extend(t.Context(), claims) {
			if locked := i < 40; locked != (x.Err != nil) || errors.Is(x.Err, store.ErrLost) {
				t.Errorf("hold %d: got %v", i, x.Err)
			}
		}
		time.Sleep(time.Minute)
	})
}

// locking is a place in which other clients have locked the first forty keys. A Save of
// such a key waits for a second and is rolled back.
type locking struct {
	*memory
	locked atomic.Bool
}

func (l *locking) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	var n int
	if _, err := fmt.Sscanf(key, "key %d", &n); err != nil || n >= 40 || !l.locked.Load() {
		return l.memory.Save(ctx, key, old, e)
	}
	time.Sleep(time.Second)
	return false, casstore.ErrConflict
}

// TestConflict_Load checks that a read that conflicts with a locked entry is repeated.
func TestConflict_Load(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bad{memory: newMemory()}
		s := newStore(t, b)
		tries := 0
		b.set(func(op string, write func()) error {
			if tries++; tries < 4 {
				return casstore.ErrConflict
			}
			write()
			return nil
		})
		c := claim("key")
		c.Weight = 1
		acquire(t, s, c)
	})
}

// TestStaleReads_Clock checks that nothing begins or expires by the clock of a replica.
func TestStaleReads_Clock(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"an hour behind": -time.Hour, "an hour ahead": time.Hour, "a little ahead": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				p := &replica{memory: m, old: m.entries, skew: skew}
				s := newStore(t, struct{ casstore.Lister }{p})
				c := claim("key")
				begun := time.Now()
				acquire(t, s, c)
				for _, what := range []string{"a grant", "an extension"} {
					if end := m.entry("key").Due; end.Before(begun.Add(ttl)) || end.After(time.Now().Add(ttl)) {
						t.Errorf("%s ends %v after it was asked for, want %v", what, end.Sub(begun), ttl)
					}
					busy(t, s, claim("key"))
					time.Sleep(time.Second)
					begun = time.Now()
					if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
						t.Fatalf("extend: got %v, want nil", x[0].Err)
					}
				}
				time.Sleep(ttl - time.Millisecond)
				busy(t, s, claim("key"))
			})
		})
	}
}

// replica answers reads from an old copy, with its own clock, unless the newest entry
// is required.
type replica struct {
	*memory
	old  map[string]casstore.Entry
	skew time.Duration
}

func (r *replica) copy() {
	for key, e := range r.entries {
		r.old[key] = e
	}
}

func (r *replica) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := r.memory.Load(ctx, key, w)
	if !w.Current {
		now, floor := e.Now.Add(r.skew), e.Floor
		e = r.old[key]
		e.Now, e.Floor = now, floor
	}
	return e, err
}

// TestSweep checks that deleting an entry does not make tokens decrease, even if the
// clock is set back.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStore(t, m)
		var last uint64
		for i := range 50 {
			c := claim(fmt.Sprint("key ", i))
			c.TTL = time.Second
			last = acquire(t, s, c).Token
		}
		late := m.entry("key 0") // as loaded by a slow process
		held := claim("held")
		held.TTL = 100 * time.Hour
		acquire(t, s, held)
		run := claim("run")
		run.Record = &store.Record{Value: []byte("x"), Retain: 100 * time.Hour}
		acquire(t, s, run)
		for range 10 {
			time.Sleep(11 * time.Second)
			if raised := m.floor; raised > 0 && raised < last && m.deleted > 0 {
				t.Error("an entry was deleted before the floor was raised to its token")
			}
			c := claim("pace")
			acquire(t, s, c)
			release(t, s, c, nil)
			synctest.Wait()
		}
		if m.deleted < 50 || len(m.entries) > 4 {
			t.Errorf("got %d deleted, %d left, want 50 deleted", m.deleted, len(m.entries))
		}
		if ok, err := m.Save(t.Context(), "key 0", late, late); ok || err != nil {
			t.Errorf("a late write over an entry that was deleted: got %v, %v, want false", ok, err)
		}
		m.skew = -time.Hour
		for _, two := range []bool{true, false} {
			s := newStore(t, casstore.Place(m))
			if two {
				s = newStore(t, struct{ casstore.Sweeper }{m})
			}
			c := claim("key " + map[bool]string{true: "1", false: "2"}[two])
			if g := acquire(t, s, c); g.Token < last+store.TokenStep {
				t.Errorf("got token %d, want one above %d", g.Token, last)
			}
		}
		busy(t, s, claim("held"))
	})
}

// TestSweep_Pages checks that a page of entries is deleted in one step, and that
// processes rarely delete the same pages.
func TestSweep_Pages(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]int{"one process": 1, "four processes": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const keys, page = 5_000, 1_000
				m := newMemory()
				stores := make([]*casstore.Store, processes)
				for i := range stores {
					stores[i] = newStore(t, m)
				}
				fill(t, m, keys)
				for range 10 {
					time.Sleep(11 * time.Second)
					for _, s := range stores {
						c := claim("pace")
						c.TTL = time.Hour
						acquire(t, s, c)
						release(t, s, c, nil)
					}
					synctest.Wait()
				}
				if m.deleted != keys || len(m.entries) != 1 {
					t.Errorf("got %d deleted, %d left, want %d deleted", m.deleted, len(m.entries), keys)
				}
				// Two processes may begin with the same page.
				if most := keys/page + 3*(processes-1); m.deletes > most || m.doomed > most*page {
					t.Errorf("got %d steps with %d entries, want %d steps at most", m.deletes, m.doomed, most)
				}
			})
		})
	}
}

// heavy is a memory that deletes at most 100 entries in one step.
type heavy struct{ *memory }

func (h heavy) Delete(ctx context.Context, items []casstore.Item) (int, error) {
	if len(items) > 100 {
		return 0, errors.New("too much for one step")
	}
	return h.memory.Delete(ctx, items)
}

// TestSweep_Heavy checks that entries that cannot be deleted together are deleted in
// smaller steps.
func TestSweep_Heavy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 1_500
		m := newMemory()
		s := newStore(t, heavy{m})
		fill(t, m, keys)
		for range 100 {
			time.Sleep(11 * time.Second)
			c := claim("pace")
			c.TTL = time.Hour
			acquire(t, s, c)
			release(t, s, c, nil)
			synctest.Wait()
		}
		if m.deleted != keys {
			t.Errorf("got %d entries deleted, want %d", m.deleted, keys)
		}
	})
}

// fill creates entries that expire after a second.
func fill(t *testing.T, m *memory, keys int) {
	t.Helper()
	for i := range keys {
		c := claim(fmt.Sprint("key ", i))
		c.TTL = time.Second
		if _, ok, err := m.Take(t.Context(), c, int64(i)+1); !ok || err != nil {
			t.Fatalf("got %v and %v, want an entry", ok, err)
		}
	}
}

// TestSweep_Slow checks that a sweep that runs out of time continues after ten seconds,
// not after a minute.
func TestSweep_Slow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 10_000
		m := newMemory()
		s := newStore(t, &slow{m})
		fill(t, m, keys)
		time.Sleep(time.Minute)
		for range 50 {
			c := claim("pace")
			c.TTL = time.Hour
			acquire(t, s, c)
			release(t, s, c, nil)
			time.Sleep(time.Second)
		}
		if m.deleted != keys {
			t.Errorf("got %d deleted in 50 s, want %d", m.deleted, keys)
		}
	})
}

type slow struct{ *memory }

func (s *slow) Dead(ctx context.Context, most int) ([]casstore.Item, error) {
	time.Sleep(700 * time.Millisecond)
	return s.memory.Dead(ctx, most)
}

// TestSweep_WrittenMeanwhile checks that an entry stays if it is written after the
// sweep has read it.
func TestSweep_WrittenMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		c := claim("key")
		s := newStore(t, &late{m, func() {
			if _, ok, err := m.Take(t.Context(), c, 77); !ok || err != nil {
				t.Errorf("got %v and %v, want a grant", ok, err)
			}
		}})
		before := claim("key")
		before.TTL, c.TTL = time.Second, time.Hour
		acquire(t, s, before)
		for range 10 {
			time.Sleep(11 * time.Second)
			pace := claim("pace")
			acquire(t, s, pace)
			synctest.Wait() // the sweep has finished
			release(t, s, pace, nil)
		}
		if m.doomed == 0 {
			t.Fatal("nothing was swept")
		}
		if got := m.entry("key"); got.Version != 77 {
			t.Errorf("got version %d, want the entry that was written", got.Version)
		}
	})
}

// late is a memory in which another client writes once, just before entries are
// deleted.
type late struct {
	*memory
	write func()
}

func (l *late) Delete(ctx context.Context, items []casstore.Item) (int, error) {
	if l.write != nil {
		l.write()
		l.write = nil
	}
	return l.memory.Delete(ctx, items)
}

// TestClockSetBack_Refused checks that after the clock was set back a hold lasts no
// longer than intended, even if other claims are refused in the meantime.
func TestClockSetBack_Refused(t *testing.T) {
	t.Parallel()
	for name, weight := range map[string]int64{"usual": store.All, "shared": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				s := newStore(t, m)
				held := claim("key")
				held.Weight, held.TTL = weight, 3*time.Second
				acquire(t, s, held)
				synctest.Wait() // the sweep has finished
				m.skew = -24 * time.Hour
				for range 3 {
					busy(t, s, claim("key"))
					time.Sleep(time.Second)
				}
				acquire(t, s, claim("key"))
			})
		})
	}
}

// early is a place whose Load returns an entry that was written after the time of the
// Load. A database can fix the time of a statement before the statement reads.
type early struct {
	casstore.Place
	by time.Duration
}

func (l early) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := l.Place.Load(ctx, key, w)
	e.Now = e.Now.Add(-l.by)
	return e, err
}

// TestLoad_BeforeTheWrite checks that a hold is not shortened by a waiter whose Load
// has an earlier time than the entry.
func TestLoad_BeforeTheWrite(t *testing.T) {
	t.Parallel()
	for name, weight := range map[string]int64{"usual": store.All, "shared": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				for _, p := range []casstore.Place{m, bare{m}} {
					s := newStore(t, p)
					held := claim(fmt.Sprintf("%T", p))
					held.Weight, held.TTL = weight, 3*time.Second
					acquire(t, s, held)
					waiter := claim(held.Key)
					waiter.Wait = true
					busy(t, newStore(t, early{p, 800 * time.Millisecond}), waiter)
					if m.entry(held.Key).State == nil {
						t.Error("got no waiter in the entry, want one")
					}
					time.Sleep(2900 * time.Millisecond)
					busy(t, s, claim(held.Key))
					time.Sleep(100 * time.Millisecond)
					acquire(t, s, waiter)
				}
			})
		})
	}
}

// TestOutage checks that a Store detects that its place is down. It then refuses
// acquires and still sends releases, and it acquires again after the outage.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bad{memory: newMemory()}
		s := newStore(t, b)
		held := claim("held")
		acquire(t, s, held)
		var released atomic.Int64
		b.set(func(op string, _ func()) error {
			if op == "give" {
				released.Add(1)
			}
			return errors.Join(store.ErrUnavailable, errBroken)
		})
		down := func() bool {
			_, err := s.Acquire(t.Context(), claim("key"))
			var d interface{ Down() bool }
			return errors.As(err, &d) && d.Down() && errors.Is(err, store.ErrUnavailable) && errors.Is(err, errBroken)
		}
		time.Sleep(2 * time.Second)
		for i := 0; !down(); i++ {
			if i == 20 {
				t.Fatal("acquires are not refused")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := s.Release(t.Context(), held); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errBroken) {
			t.Errorf("release: got %v, want one that was sent", err)
		}
		if n := released.Load(); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}
		b.set(nil)
		time.Sleep(time.Second)
		acquire(t, s, claim("key"))
		release(t, s, held, nil)
	})
}

// TestLocker_Faults loses, delays and doubles requests. It checks that a writer holds
// alone, that tokens grow, and that no lock is left behind.
func TestLocker_Faults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(tally.Trials(400)) {
		synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	b := &bad{memory: newMemory()}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 2))
	b.set(func(op string, write func()) error {
		mu.Lock()
		dice, pause := r.IntN(100), time.Duration(r.IntN(300))*time.Millisecond
		mu.Unlock()
		if op == "load" && dice < 30 {
			dice += 60
		}
		switch {
		case dice < 4: // the reply is lost
			write()
			return errBroken
		case dice < 8: // the request is lost
			return errBroken
		case dice < 12: // the request arrives after its caller has left
			go func() { time.Sleep(2*time.Second + 5*pause); write() }()
			return errBroken
		case dice < 18:
			return twice(op, write)
		case dice < 24: // the place refuses the request
			return store.ErrUnavailable
		case dice < 27 && op != "load": // a deadlock rolls the write back
			return casstore.ErrConflict
		case dice < 30 && op != "load": // the write is reported as lost
			return nil
		case dice < 50:
			time.Sleep(pause)
		}
		write()
		return nil
	})
	var inside, highest atomic.Int64
	var rounds, begun atomic.Int64
	var all sync.WaitGroup
	var lockers []*core.Locker
	var shared atomic.Int64
	var p casstore.Place = b
	if seed%2 == 1 {
		p = struct{ casstore.Watcher }{b}
	}
	for i := range 4 {
		locker, err := core.New(newStore(t, p))
		if err != nil {
			t.Fatal(err)
		}
		lockers = append(lockers, locker)
		for j := range 3 {
			all.Go(func() {
				for round := range 6 {
					opts := []core.AcquireOption{core.TTL(20 * time.Second), core.Wait(time.Minute)}
					reads := (i+j+round)%3 == 0
					if reads {
						opts = append(opts, core.Shared())
					} else if round%2 == 0 {
						opts = append(opts, core.Fair())
					}
					begun.Add(1)
					lease, err := locker.Acquire(t.Context(), "key", opts...)
					if err != nil {
						continue
					}
					rounds.Add(1)
					if reads {
						shared.Add(1)
						if inside.Load() > 0 {
							t.Errorf("seed %d: a reader beside a writer", seed)
						}
					} else {
						if inside.Add(1) > 1 || shared.Load() > 0 {
							t.Errorf("seed %d: two holders", seed)
						}
						if token := int64(lease.Token()); token <= highest.Load() {
							t.Errorf("seed %d: token %d after %d", seed, token, highest.Load())
						} else {
							highest.Store(token)
						}
					}
					select {
					case <-time.After(50 * time.Millisecond):
					case <-lease.Context().Done():
					}
					if reads {
						shared.Add(-1)
					} else {
						inside.Add(-1)
					}
					_ = lease.Release(t.Context())
				}
			})
		}
	}
	all.Wait()
	if rounds.Load() < begun.Load()/2 {
		t.Errorf("seed %d: %d of %d acquires were granted, want half at least", seed, rounds.Load(), begun.Load())
	}
	b.set(nil)
	for _, locker := range lockers {
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("seed %d: close: %v", seed, err)
		}
	}
	time.Sleep(30 * time.Second)
	s := newStore(t, struct{ casstore.Lister }{b})
	view, err := s.Look(t.Context(), "key")
	if err != nil || len(view.Holds) > 0 || len(view.Waiters) > 0 {
		t.Errorf("seed %d: got %+v, %v, want nothing left", seed, view, err)
	}
	time.Sleep(time.Minute)
}
