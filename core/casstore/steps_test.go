package casstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

const ttl = 30 * time.Second

func claim(key string) store.Claim {
	n := claimed.Add(1)
	return store.Claim{
		Key: key, Owner: fmt.Sprint("owner ", n), Lease: fmt.Sprint("lease ", n),
		Weight: store.All, Limit: store.All, TTL: ttl,
	}
}

func acquire(t *testing.T, s store.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("acquire: got %v, want a grant", err)
	}
	return g
}

func busy(t *testing.T, s store.Store, c store.Claim) {
	t.Helper()
	if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("acquire: got %v, want %v", err, store.ErrBusy)
	}
}

func release(t *testing.T, s store.Store, c store.Claim, want error) {
	t.Helper()
	if err := s.Release(t.Context(), c); !errors.Is(err, want) {
		t.Fatalf("release: got %v, want %v", err, want)
	}
}

// TestSteps checks that an acquire and a release of the usual lock take one step each,
// and that the extension of usual holds takes one step per 512 holds. The extension of
// shared holds takes a Load and a Save per key.
func TestSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStore(t, m)
		for range 3 {
			c := claim("usual")
			acquire(t, s, c)
			release(t, s, c, nil)
		}
		if m.usual != 6 || m.loads+m.saves != 0 {
			t.Errorf("three cycles of the usual lock: got %d statements, %d loads and %d saves, want 6, 0, 0", m.usual, m.loads, m.saves)
		}
		var all []store.Claim
		for i := range 600 {
			c := claim(fmt.Sprint("batch ", i))
			acquire(t, s, c)
			all = append(all, c)
		}
		for i, x := range s.Extend(t.Context(), all) {
			if x.Err != nil {
				t.Fatalf("extension %d: got %v, want nil", i, x.Err)
			}
		}
		if m.extends != 2 || m.loads+m.saves != 0 {
			t.Errorf("an extension of 600 holds: got %d statements, %d loads and %d saves, want 2, 0, 0", m.extends, m.loads, m.saves)
		}
		var readers []store.Claim
		for range 50 {
			c := claim("read")
			c.Weight = 1
			readers = append(readers, c)
		}
		for _, c := range readers {
			acquire(t, s, c)
		}
		loads, saves := m.loads, m.saves
		s.Extend(t.Context(), readers)
		if m.loads != loads+1 || m.saves != saves+1 {
			t.Errorf("an extension of 50 readers of a key: got %d loads and %d saves, want 1, 1", m.loads-loads, m.saves-saves)
		}
	})
}

// TestSteps_Waiting checks that a repeated Acquire of a waiting claim makes a Load, and
// that the claim is written again only after a quarter of its lifetime.
func TestSteps_Waiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, other := newStore(t, m), newStore(t, m)
		held, c := claim("busy"), claim("busy")
		held.TTL = time.Hour
		c.Wait, c.Fair = true, true
		acquire(t, other, held)
		busy(t, s, c)
		usual, saves := m.usual, m.saves
		for range 240 {
			time.Sleep(250 * time.Millisecond)
			busy(t, s, c)
		}
		if n := m.saves - saves; m.usual != usual || n < 12 || n > 24 {
			t.Errorf("a minute of four questions a second: got %d statements and %d saves, want none and 12 to 24", m.usual-usual, n)
		}
		// Each request comes as late as a Locker would send it.
		for range 20 {
			time.Sleep(5500 * time.Millisecond)
			busy(t, s, c)
			if view, err := other.Look(t.Context(), "busy"); err != nil || len(view.Waiters) != 1 || view.Waiters[0].Age < 5*time.Second {
				t.Fatalf("got %+v, %v, want the place of the claim", view, err)
			}
		}
		release(t, other, held, nil)
		acquire(t, s, c)
	})
}

// TestSteps_Polling checks that a repeated Acquire of a claim that is not in the queue
// also begins with a Load. A Save then grants the claim.
func TestSteps_Polling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, other := newStore(t, m), newStore(t, m)
		held, c := claim("busy"), claim("busy")
		acquire(t, other, held)
		usual, saves := m.usual, m.saves
		for range 20 {
			busy(t, s, c)
		}
		if m.usual != usual+1 || m.saves != saves {
			t.Errorf("20 questions: got %d statements and %d saves, want 1 and none", m.usual-usual, m.saves-saves)
		}
		release(t, other, held, nil)
		usual = m.usual
		acquire(t, s, c)
		release(t, s, c, nil)
		if m.usual != usual+1 || m.saves != saves+1 {
			t.Errorf("a cycle: got %d statements and %d saves, want 1 and 1", m.usual-usual, m.saves-saves)
		}
	})
}

// TestSteps_KeptValue checks that operations that do not concern a stored value neither
// read nor write it.
func TestSteps_KeptValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		spy := &spying{memory: m}
		s := newStore(t, spy)
		run := claim("run")
		run.Record = &store.Record{Value: []byte("fingerprint"), Retain: time.Hour}
		acquire(t, s, run)
		saved := run
		saved.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Hour}
		release(t, s, saved, nil)
		spy.values = nil
		plain := claim("run")
		acquire(t, s, plain)
		s.Extend(t.Context(), []store.Claim{plain})
		release(t, s, saved, nil) // a repeated release, which is compared
		release(t, s, plain, nil)
		if len(spy.values) > 0 {
			t.Errorf("got reads and writes of the value %q, want none", spy.values)
		}
		again := claim("run")
		again.Record = run.Record
		if g := acquire(t, s, again); g.Record == nil || !g.Record.Done || string(g.Record.Value) != "answer" {
			t.Errorf("got %+v, want the answer", g.Record)
		}
	})
}

type spying struct {
	*memory
	values []string
}

func (s *spying) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	if w.Value {
		s.values = append(s.values, "read")
	}
	return s.memory.Load(ctx, key, w)
}

func (s *spying) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	if !e.KeepValue {
		s.values = append(s.values, "wrote "+string(e.Value))
	}
	return s.memory.Save(ctx, key, old, e)
}

// TestDamaged checks an entry that another program has changed. A claim that reads the
// changed part gets an error, and is not granted. An entry with a changed state is not
// overwritten.
func TestDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStore(t, m)
		run := claim("run")
		run.Record = &store.Record{Value: []byte("secret"), Retain: time.Hour}
		acquire(t, s, run)
		for what, change := range map[string]func(e *casstore.Entry){
			"state": func(e *casstore.Entry) { e.State = e.State[1:] },
			"later": func(e *casstore.Entry) { e.State = []byte(strings.Replace(string(e.State), `"v":1`, `"v":9`, 1)) },
			"value": func(e *casstore.Entry) { e.Value = []byte("Secret") },
		} {
			whole := m.entry("run")
			e := whole
			change(&e)
			m.put("run", e)
			other := claim("run")
			other.Record = run.Record
			_, err := s.Acquire(t.Context(), other)
			if !errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "ecret") {
				t.Errorf("%s: got %v, want %v without the value", what, err, store.ErrUnsupported)
			}
			if x := s.Extend(t.Context(), []store.Claim{run}); what != "value" && (x[0].Err == nil || errors.Is(x[0].Err, store.ErrLost)) {
				t.Errorf("%s: extension: got %v, want an error that says nothing of the hold", what, x[0].Err)
			}
			if what != "value" && m.entry("run").Version != e.Version {
				t.Errorf("%s: it was written over", what)
			}
			m.put("run", whole)
		}
	})
}

// TestTurn checks callers that wait for another call of their process for the same key,
// because such calls run one after the other. A caller that leaves meanwhile has sent
// nothing. The wait is part of the two seconds of a call.
func TestTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		usual bool
		call  func(ctx context.Context, s *casstore.Store, held store.Claim) error
	}{
		"acquire usual": {true, func(ctx context.Context, s *casstore.Store, held store.Claim) error {
			_, err := s.Acquire(ctx, claim(held.Key))
			return err
		}},
		"release usual": {true, func(ctx context.Context, s *casstore.Store, held store.Claim) error { return s.Release(ctx, held) }},
		"acquire shared": {false, func(ctx context.Context, s *casstore.Store, held store.Claim) error {
			c := claim(held.Key)
			c.Weight = 1
			_, err := s.Acquire(ctx, c)
			return err
		}},
		"extend shared": {false, func(ctx context.Context, s *casstore.Store, held store.Claim) error {
			return s.Extend(ctx, []store.Claim{held})[0].Err
		}},
		"release shared": {false, func(ctx context.Context, s *casstore.Store, held store.Claim) error { return s.Release(ctx, held) }},
		"revoke": {false, func(ctx context.Context, s *casstore.Store, held store.Claim) error {
			return s.Revoke(ctx, held.Key, store.HoldID(held.Lease), 0)
		}},
	} {
		// begin returns a Store with a hold. From then on the Store's place hangs. hung
		// begins a call for the key of the hold, and sent counts the calls that have
		// reached the place.
		begin := func(t *testing.T) (s *casstore.Store, held store.Claim, hung func(), sent *atomic.Int32) {
			b := &bad{memory: newMemory()}
			s, held, sent = newStore(t, b), claim("key"), new(atomic.Int32)
			if !c.usual {
				held.Weight = 1
			}
			acquire(t, s, held)
			b.set(func(_ string, write func()) error {
				sent.Add(1)
				time.Sleep(10 * time.Second)
				write()
				return nil
			})
			hung = func() {
				go func() { _ = s.Release(t.Context(), claim(held.Key)) }()
				synctest.Wait()
			}
			return s, held, hung, sent
		}
		t.Run(name+" as caller leaves", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, held, hung, sent := begin(t)
				hung()
				gone := errors.New("gone")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, gone)
				defer cancel()
				begun := time.Now()
				err := c.call(ctx, s, held)
				if took := time.Since(begun); took != 500*time.Millisecond {
					t.Errorf("got an answer after %v, want one after 500ms", took)
				}
				if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, gone) {
					t.Errorf("got %v, want %v because of %v", err, store.ErrUnavailable, gone)
				}
				time.Sleep(time.Minute) // past the end of the hung call
				if n := sent.Load(); n != 1 {
					t.Errorf("got %d calls of the place, want only the hung one", n)
				}
			})
		})
		t.Run(name+" with time limit", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, held, hung, sent := begin(t)
				hung() // until 2 s
				time.Sleep(500 * time.Millisecond)
				hung() // until 2.5 s
				time.Sleep(500 * time.Millisecond)
				begun := time.Now()
				err := c.call(t.Context(), s, held)
				if took := time.Since(begun); err == nil || took != s.Limit() {
					t.Errorf("got %v after %v, want an error after %v", err, took, s.Limit())
				}
				if n := sent.Load(); n != 3 {
					t.Errorf("got %d calls of the place, want 3", n)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
