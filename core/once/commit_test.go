package once_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// table is a database in memory that can be down. It is a casstore.Place with
// transactions.
type table struct {
	mu     sync.Mutex
	rows   map[string]casstore.Entry
	locked *transaction // the open transaction that has read a row, and has locked it
	down   bool
}

func newTable(t testing.TB) (*table, *casstore.Store) {
	t.Helper()
	p := &table{rows: make(map[string]casstore.Entry)}
	s, err := casstore.New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return p, s
}

func (p *table) Load(_ context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.rows[key]
	e.Now = time.Now()
	if p.down {
		return e, errDown
	}
	return e, nil
}

func (p *table) Save(_ context.Context, key string, old, e casstore.Entry) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.down:
		return false, errDown
	case p.locked != nil && p.locked.key == key:
		return false, store.ErrUnavailable
	case p.rows[key].Version != old.Version:
		return false, nil
	}
	p.write(key, e)
	return true, nil
}

func (p *table) write(key string, e casstore.Entry) {
	if e.KeepValue {
		e.Value = p.rows[key].Value
	}
	e.KeepValue = false
	p.rows[key] = e
}

func (p *table) set(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

func (p *table) begin() *transaction { return &transaction{table: p} }

type transaction struct {
	table  *table
	key    string
	staged *casstore.Entry
}

func (x *transaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	in, ok := s.(*casstore.Store)
	if !ok {
		return store.ErrUnsupported
	}
	return casstore.Commit(ctx, in, x, c)
}

func (x *transaction) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := x.table.Load(ctx, key, w)
	x.table.mu.Lock()
	defer x.table.mu.Unlock()
	x.key, x.table.locked = key, x
	if x.staged != nil {
		now := e.Now
		e, e.Now = *x.staged, now
	}
	return e, err
}

func (x *transaction) Save(_ context.Context, _ string, _, e casstore.Entry) (bool, error) {
	x.staged = &e
	return true, nil
}

func (x *transaction) commit() error {
	x.table.mu.Lock()
	defer x.table.mu.Unlock()
	x.table.write(x.key, *x.staged)
	x.table.locked = nil
	return nil
}

func (x *transaction) rollback() error {
	x.table.mu.Lock()
	defer x.table.mu.Unlock()
	x.table.locked = nil
	return nil
}

// committing returns an fn that calls Commit with value in a new transaction. The fn
// then calls end for the transaction, and returns the error of end.
func (p *table) committing(value string, end func(*transaction) error) func(context.Context) (once.Answer, error) {
	return func(ctx context.Context) (once.Answer, error) {
		x, a := p.begin(), once.Answer{Value: []byte(value)}
		if err := once.Commit(ctx, x, a); err != nil {
			return a, errors.Join(err, x.rollback())
		}
		return a, end(x)
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	commit, rollback := (*transaction).commit, (*transaction).rollback
	lost := func(events []core.Event) bool {
		for _, e := range events {
			if e.Kind == core.Lost || e.Kind == core.CleanedUp && e.Err != nil || e.Kind == core.Released && e.Err != nil {
				return true
			}
		}
		return false
	}
	sim(t, "committed answer", func(t *testing.T) {
		p, s := newTable(t)
		o, events := hearing(t, s)
		out, err := o.Do(t.Context(), charge("1"), p.committing("receipt", commit))
		if err != nil || string(out.Value) != "receipt" || out.Replayed || out.Attempt != 1 {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
		if all := events(); len(all) != 1 || all[0].Kind != core.Ran || all[0].Err != nil {
			t.Errorf("got the events %+v, want a run", all)
		}
		replayed(t, o, charge("1"), "receipt", 1)
	})
	sim(t, "open for long", func(t *testing.T) {
		p, s := newTable(t)
		all := make(chan core.Event, 1000)
		locks, err := core.New(s, core.WithObserver(collect(all)))
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(locks, lasting(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			return p.committing("receipt", func(x *transaction) error {
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					t.Errorf("while it is open: got a context with %v", context.Cause(ctx))
				}
				if err := x.commit(); err != nil {
					return err
				}
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					t.Errorf("when it is committed: got a context with %v", context.Cause(ctx))
				}
				return nil
			})(ctx)
		})
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
		close(all)
		var events []core.Event
		for e := range all {
			events = append(events, e)
		}
		if lost(events) {
			t.Errorf("got the events %+v, want no loss", events)
		}
	})
	sim(t, "rolled back", func(t *testing.T) {
		p, s := newTable(t)
		o, events := hearing(t, s)
		out, err := o.Do(t.Context(), charge("1"), p.committing("untrue", rollback))
		if err == nil || out.Value != nil || !strings.Contains(err.Error(), "was not committed") {
			t.Errorf("got %+v and %v, want an error", out, err)
		}
		if all := events(); len(all) != 1 || all[0].Kind != core.Ran || all[0].Err == nil {
			t.Errorf("got the events %+v, want a run that failed", all)
		}
		own := errors.New("own")
		out, err = o.Do(t.Context(), charge("1"), p.committing("untrue", func(x *transaction) error { return errors.Join(own, x.rollback()) }))
		if !errors.Is(err, own) || out.Value != nil || out.Attempt != 2 {
			t.Errorf("got %+v and %v, want %v", out, err, own)
		}
		first(t, o, charge("1"), "true", 3)
	})
	sim(t, "rolled back at most once", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s, once.AtMostOnce())
		if _, err := o.Do(t.Context(), charge("1"), p.committing("untrue", rollback)); err == nil {
			t.Error("got nil, want an error")
		}
		first(t, o, charge("1"), "true", 2)
		_, err := o.Do(t.Context(), charge("2"), p.committing("untrue", func(x *transaction) error {
			return errors.Join(once.ErrIndeterminate, x.rollback())
		}))
		wantErr(t, err, once.ErrIndeterminate)
		refused(t, o, charge("2"), once.ErrIndeterminate)
	})
	sim(t, "an error after the commit", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s)
		out, err := o.Do(t.Context(), charge("1"), p.committing("receipt", func(x *transaction) error {
			return errors.Join(errors.New("no reply"), x.commit())
		}))
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
		replayed(t, o, charge("1"), "receipt", 1)
	})
	sim(t, "commit in a guard", func(t *testing.T) {
		for _, own := range []error{nil, errors.New("no reply")} {
			p, s := newTable(t)
			pay := once.Guard(newOnce(t, s), func(string) (once.Call, error) { return charge("1"), nil }, func(ctx context.Context, _ string) (int, error) {
				_, err := p.committing("42", func(x *transaction) error { return errors.Join(own, x.commit()) })(ctx)
				return 7, err
			})
			for range 2 {
				if n, err := pay(t.Context(), ""); n != 42 || err != nil {
					t.Errorf("got %d and %v, want 42", n, err)
				}
			}
		}
	})
	sim(t, "withdrawn and rolled back", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s)
		own := errors.New("own")
		_, err := o.Do(t.Context(), charge("1"), p.committing("untrue", func(x *transaction) error { return errors.Join(once.Withdraw(own), x.rollback()) }))
		wantErr(t, err, own)
		out, err := o.Do(t.Context(), charge("1"), p.committing("receipt", func(x *transaction) error { return errors.Join(once.Withdraw(own), x.commit()) }))
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
		replayed(t, o, charge("1"), "receipt", 2)
	})
	sim(t, "not known", func(t *testing.T) {
		noReply := errors.New("no reply to COMMIT")
		for _, c := range []struct {
			committed bool
			end       func(*transaction) error
			worked    error // the error of fn, in addition to the error of end
		}{{true, commit, nil}, {false, rollback, nil}, {true, commit, noReply}, {false, rollback, noReply}} {
			p, s := newTable(t)
			o := newOnce(t, s)
			_, err := o.Do(t.Context(), charge("1"), p.committing("receipt", func(x *transaction) error {
				p.set(true)
				return errors.Join(c.end(x), c.worked)
			}))
			wantErr(t, err, core.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), "unknown whether") {
				t.Errorf("got %v, want an unknown outcome", err)
			}
			p.set(false)
			time.Sleep(time.Minute)
			out, err := o.Do(t.Context(), charge("1"), new(runs).work("again"))
			if want := map[bool]string{true: "receipt", false: "again"}[c.committed]; err != nil || string(out.Value) != want {
				t.Errorf("got %+v and %v, want %q", out, err, want)
			}
			replayed(t, o, charge("1"), string(out.Value), out.Attempt)
		}
	})
	sim(t, "a second one", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s)
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			x := p.begin()
			if err := once.Commit(ctx, x, once.Answer{Value: []byte("untrue")}); err != nil {
				return once.Answer{}, err
			}
			wantErr(t, once.Commit(ctx, x, once.Answer{}), core.ErrInvalid)
			if err := x.rollback(); err != nil {
				return once.Answer{}, err
			}
			a, err := p.committing("receipt", commit)(ctx)
			wantErr(t, once.Commit(ctx, p.begin(), once.Answer{}), core.ErrLost)
			return a, err
		})
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
	})
	sim(t, "taken over", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s, once.Acquire(core.NoRenew(), core.TTL(time.Second)))
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			time.Sleep(time.Minute)
			_, err := o.Do(t.Context(), charge("1"), func(next context.Context) (once.Answer, error) {
				wantErr(t, once.Commit(ctx, p.begin(), once.Answer{}), core.ErrLost)
				return p.committing("receipt", commit)(next)
			})
			if err != nil {
				t.Error(err)
			}
			x := p.begin()
			err = once.Commit(ctx, x, once.Answer{})
			wantErr(t, err, core.ErrLost)
			return once.Answer{}, x.rollback() // fn ignores the error of Commit
		})
		wantErr(t, err, core.ErrLost)
		replayed(t, o, charge("1"), "receipt", 2)
	})
	sim(t, "not final", func(t *testing.T) {
		p, s := newTable(t)
		o := newOnce(t, s)
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			once.NotFinal(ctx)
			wantErr(t, once.Commit(ctx, p.begin(), once.Answer{}), core.ErrInvalid)
			return once.Answer{}, nil
		})
		if err != nil {
			t.Error(err)
		}
		_, err = o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			return p.committing("receipt", func(x *transaction) error {
				if once.NotFinal(ctx) {
					t.Error("got a mark on an answer that is saved, want none")
				}
				return x.commit()
			})(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		replayed(t, o, charge("1"), "receipt", 2)
	})
	sim(t, "closed while it is open", func(t *testing.T) {
		p, s := newTable(t)
		locks, err := core.New(s)
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(locks)
		if err != nil {
			t.Fatal(err)
		}
		out, err := o.Do(t.Context(), charge("1"), p.committing("receipt", func(x *transaction) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = locks.Close(ctx)
			return x.commit()
		}))
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v, want the answer", out, err)
		}
		replayed(t, newOnce(t, s), charge("1"), "receipt", 1)
		time.Sleep(time.Minute) // the clean-up has run
	})
	sim(t, "refused arguments", func(t *testing.T) {
		p, s := newTable(t)
		wantErr(t, once.Commit(t.Context(), p.begin(), once.Answer{}), core.ErrInvalid)
		for i, c := range []struct {
			tx     once.Saver
			length int
		}{{nil, 0}, {p.begin(), 32<<20 + 1}} {
			o := newOnce(t, s)
			out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
				wantErr(t, once.Commit(ctx, c.tx, once.Answer{Value: make([]byte, c.length)}), core.ErrInvalid)
				return once.Answer{Value: []byte("as if nothing had been")}, nil
			})
			if err == nil || out.Value != nil || out.Attempt != i+1 {
				t.Errorf("got %+v and %v, want an error", out, err)
			}
		}
		o := newOnce(t, memstore.New())
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			wantErr(t, once.Commit(ctx, p.begin(), once.Answer{}), core.ErrUnsupported)
			return once.Answer{Value: []byte("without it")}, nil
		})
		if err != nil {
			t.Error(err)
		}
		replayed(t, o, charge("1"), "without it", 1)
	})
}
