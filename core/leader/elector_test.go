package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

var errWork = errors.New("the work failed")

func TestTerms(t *testing.T) {
	t.Parallel()
	// One of three processes leads. When the leader stops, another process leads at
	// once.
	sim(t, "next of three leads", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		all := map[string]*process{}
		for _, name := range []string{"a", "b", "c"} {
			all[name] = start(t, store, b, name, 0)
		}
		for n := 1; n <= 3; n++ {
			after(10 * ttl)
			e, terms := b.last()
			if terms != n {
				t.Fatalf("%d terms, want %d", terms, n)
			}
			for name, p := range all {
				if p.leads() != (name == e.name) {
					t.Errorf("%s leads, and IsLeader of %s is %v", e.name, name, p.leads())
				}
			}
			stopped := time.Now()
			all[e.name].stop(nil)
			synctest.Wait()
			wantErr(t, <-all[e.name].result, context.Canceled)
			if next, n := b.last(); n < 3 && next.begun.Sub(stopped) > time.Second {
				t.Errorf("there was no leader for %v", next.begun.Sub(stopped))
			}
		}
	})
	// A leader that is cut off stops leading before another process begins. The former
	// leader campaigns again when its work has returned.
	sim(t, "partitioned leader steps down first", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "first", time.Hour)
		after(time.Minute)
		start(t, store, b, "second", 0)
		after(time.Minute)
		b.want(t, 1, "first")
		first.link.set(true)
		after(2 * ttl)
		b.want(t, 2, "second")
		first.link.set(false)
		before := first.link.campaigns()
		after(30 * time.Minute) // the work continues
		if n := first.link.campaigns() - before; n > 0 {
			t.Errorf("it has campaigned %d times while its work went on", n)
		}
		after(time.Hour)
		if first.link.campaigns() == before {
			t.Error("it does not campaign again")
		}
		b.want(t, 2, "second")
	})
	// Two electors of one process never run the work at once, even if a lease is lost.
	sim(t, "two electors of one process", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "process", time.Hour)
		synctest.Wait()
		other, err := leader.New(first.locker, election)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx, first.work) }()
		first.link.set(true)
		after(2 * ttl)
		first.link.set(false)
		after(30 * time.Minute)
		b.want(t, 1, "process")
		after(time.Hour)
		b.want(t, 2, "process")
		stop()
		first.stop(nil)
		wantErr(t, <-ended, context.Canceled)
	})
	// Work that returns nil after the loss of its term does not count as done.
	sim(t, "nil after the loss", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := start(t, store, b, "only", 0)
		after(time.Minute)
		p.link.set(true)
		after(2 * ttl)
		if e := b.want(t, 1, "only"); !errors.Is(e.cause, core.ErrLost) {
			t.Errorf("the term ended with %v, want %v", e.cause, core.ErrLost)
		}
		p.link.set(false)
		after(2 * ttl)
		b.want(t, 2, "only")
	})
	// A process continues to campaign while the store is down.
	sim(t, "store is down", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := candidate(t, store, b, "only")
		p.link.set(true)
		p.run(p.work)
		after(time.Hour)
		b.want(t, 0, "")
		if n := p.link.campaigns(); n > 5*3600 {
			t.Errorf("it has asked %d times in an hour", n)
		}
		p.link.set(false)
		after(5 * time.Second)
		b.want(t, 1, "only")
	})
	// A limit on waiting ends an attempt, and not the campaign.
	sim(t, "limit on waiting", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "first", 0)
		after(time.Second)
		start(t, store, b, "second", 0, leader.Acquire(core.Wait(0)))
		after(time.Hour)
		b.want(t, 1, "first")
		first.stop(nil)
		after(5 * time.Second)
		b.want(t, 2, "second")
	})
}

func TestWork(t *testing.T) {
	t.Parallel()
	// If the work returns nil, Run returns nil, and the key is free.
	sim(t, "work without error", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only")
		if err := p.elector.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		wantFree(t, p)
		p.close()
	})
	// After a failure the key is free, and the process pauses by its policy.
	sim(t, "work that fails", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only", leader.Pause(retry.Policy{Initial: time.Second, Multiplier: 2, Max: 4 * time.Second}))
		begun, runs := time.Now(), []time.Duration{}
		err := p.elector.Run(t.Context(), func(context.Context) error {
			runs = append(runs, time.Since(begun))
			switch len(runs) {
			case 5:
				time.Sleep(2 * ttl) // longer than a TTL: the pauses start over
			case 7:
				return nil
			}
			time.AfterFunc(time.Second/2, func() { wantFree(t, p) })
			return errWork
		})
		if err != nil {
			t.Error(err)
		}
		want := "[0s 1s 3s 7s 11s 1m12s 1m14s]"
		if got := fmt.Sprint(runs); got != want {
			t.Errorf("the work ran at %s, want %s", got, want)
		}
		p.close()
	})
	sim(t, "attempts used up", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only", leader.Pause(retry.None))
		wantErr(t, p.elector.Run(t.Context(), func(context.Context) error { return errWork }), errWork)
		p.close()
	})
	// Run waits for the work, releases the key and returns, in this order.
	sim(t, "ctx is done", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p, cause := start(t, store, b, "only", time.Hour), errors.New("shutdown")
		after(time.Second)
		p.stop(cause)
		after(time.Minute)
		if p.leads() {
			t.Error("it still leads")
		}
		other := candidate(t, store, nil, "other")
		_, err := other.locker.TryAcquire(t.Context(), election)
		wantErr(t, err, core.ErrBusy)
		select {
		case err := <-p.result:
			t.Errorf("Run has returned before the work: %v", err)
		default:
		}
		err = <-p.result
		wantErr(t, err, cause, context.Canceled)
		wantFree(t, other)
		if e := b.want(t, 1, "only"); !errors.Is(e.cause, cause) || time.Since(e.done) != 0 {
			t.Errorf("got cause %v, %v before Run returned", e.cause, time.Since(e.done))
		}
		other.close()
	})
	// The error of Run matches the error that the work returned after ctx was done.
	sim(t, "error of the work", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, p.elector.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return errWork
		}), errWork, context.DeadlineExceeded)
		p.close()
	})
	// A panic of the work reaches the caller of Run, and the key is released.
	sim(t, "work that panics", func(t *testing.T) {
		var calls []bool
		p := candidate(t, memstore.New(), nil, "only", leader.OnTerm(func(_ uint64, leading bool) { calls = append(calls, leading) }))
		func() {
			defer func() {
				if r := recover(); r != errWork {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = p.elector.Run(t.Context(), func(context.Context) error { panic(errWork) })
		}()
		wantFree(t, p)
		if p.leads() || fmt.Sprint(calls) != "[true false]" {
			t.Errorf("got calls of OnTerm with %v", calls)
		}
		// The process can take part in the election again.
		if err := p.elector.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		p.close()
	})
	sim(t, "closed Locker", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only")
		p.run(nil)
		after(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, p.locker.Close(ctx), context.DeadlineExceeded)
		wantErr(t, <-p.result, core.ErrClosed)
	})
	// OnTerm is called at the beginning and at the end of each term, with the term's
	// token.
	sim(t, "OnTerm", func(t *testing.T) {
		var calls []string
		p := candidate(t, memstore.New(), nil, "only", steady, leader.OnTerm(func(token uint64, leading bool) {
			calls = append(calls, fmt.Sprint(token, leading))
		}))
		var want []string
		_ = p.elector.Run(t.Context(), func(ctx context.Context) error {
			lease, _ := core.LeaseFromContext(ctx)
			want = append(want, fmt.Sprint(lease.Token(), true), fmt.Sprint(lease.Token(), false))
			if len(want) < 6 {
				return errWork
			}
			return nil
		})
		if len(want) != 6 || fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", calls, want)
		}
		p.close()
	})
}

func TestResign(t *testing.T) {
	t.Parallel()
	// A leader that resigns ends its term, and another process leads.
	sim(t, "term ends", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "first", time.Second)
		after(time.Second)
		second := start(t, store, b, "second", 0)
		after(time.Minute)
		first.elector.Resign()
		if first.leads() {
			t.Error("it leads after Resign")
		}
		after(2 * time.Second)
		b.want(t, 2, "second")
		// The first process campaigns again, because it has seen that the second
		// process leads.
		after(ttl / 2)
		second.stop(nil)
		after(time.Second)
		b.want(t, 3, "first")
	})
	// A leader that resigns does not campaign for a TTL, and then leads again.
	sim(t, "no rivals", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := start(t, store, b, "only", 0)
		after(time.Minute)
		p.elector.Resign()
		n := p.link.campaigns()
		after(ttl - time.Second)
		if p.link.campaigns() != n {
			t.Error("it has campaigned within a TTL")
		}
		b.want(t, 1, "only")
		wantFree(t, p)
		after(2 * time.Second)
		b.want(t, 2, "only")
	})
	// The hold of a term whose release was lost is not taken for another leader.
	sim(t, "lost release", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := start(t, store, b, "only", 0)
		after(time.Minute)
		p.link.setReleases(true)
		p.elector.Resign()
		n := p.link.campaigns()
		after(ttl / 2)
		p.link.setReleases(false)
		after(ttl/2 - time.Second)
		if p.link.campaigns() != n {
			t.Error("it has campaigned within a TTL")
		}
	})
	// The check for another leader keeps no key, even if KeepFor is a default.
	sim(t, "KeepFor as a default", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := candidate(t, store, b, "only")
		p.close()
		var err error
		if p.locker, err = core.New(p.link, core.WithDefaults(core.KeepFor(time.Hour))); err != nil {
			t.Fatal(err)
		}
		if p.elector, err = leader.New(p.locker, election); err != nil {
			t.Fatal(err)
		}
		p.run(p.work)
		for term := range 2 { // the first term is shorter than KeepFor, the second longer
			after(time.Duration(term)*2*time.Hour + time.Minute)
			p.elector.Resign()
			after(ttl + time.Second)
			b.want(t, term+2, "only")
		}
	})
	// Resign does nothing in a process that does not lead, and does not affect its next
	// term.
	sim(t, "not leading", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "first", 0)
		after(time.Second)
		second := start(t, store, b, "second", 0)
		after(time.Second)
		second.elector.Resign()
		after(time.Second)
		first.stop(nil)
		after(time.Second)
		b.want(t, 2, "second")
		if !second.leads() {
			t.Error("got the end of a later term by an early Resign")
		}
	})
	// Work that continues after Resign keeps other processes from leading.
	sim(t, "work goes on", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		first := start(t, store, b, "first", time.Hour)
		after(time.Second)
		start(t, store, b, "second", 0)
		first.elector.Resign()
		after(time.Hour - time.Second)
		b.want(t, 1, "first")
		after(5 * time.Second)
		b.want(t, 2, "second")
	})
}

func TestIsLeader(t *testing.T) {
	t.Parallel()
	// IsLeader returns an error when the lease is no longer trusted, even while the
	// work still runs.
	sim(t, "lease expires", func(t *testing.T) {
		b, store := newBook(t), memstore.New()
		p := candidate(t, store, b, "only")
		wantErr(t, p.elector.IsLeader(t.Context()), core.ErrBusy)
		p.linger = time.Hour
		p.run(p.work)
		after(time.Minute)
		if err := p.elector.IsLeader(t.Context()); err != nil {
			t.Error(err)
		}
		p.link.set(true)
		after(2 * ttl)
		wantErr(t, p.elector.IsLeader(t.Context()), core.ErrBusy)
		p.stop(nil)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context) error { return nil }
	sim(t, "refused before anything is sent", func(t *testing.T) {
		p := candidate(t, memstore.New(), nil, "only")
		for name, opts := range map[string][]leader.Option{
			"a nil option": {nil}, "a nil OnTerm": {leader.OnTerm(nil)}, "a bad pause": {leader.Pause(retry.Policy{Initial: -1})},
			"readers": {leader.Acquire(core.Shared())}, "permits": {leader.Acquire(core.Permits(1, 2))}, "a bad TTL": {leader.Acquire(core.TTL(1))},
		} {
			if err := leader.Run(t.Context(), p.locker, election, nothing, opts...); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%s: %v, want %v", name, err, core.ErrInvalid)
			}
		}
		wantErr(t, leader.Run(t.Context(), nil, election, nothing), core.ErrInvalid)
		wantErr(t, leader.Run(t.Context(), p.locker, election, nil), core.ErrInvalid)
		wantErr(t, leader.Run(t.Context(), p.locker, "", nothing), core.ErrInvalid)
		if n := p.link.campaigns(); n > 0 {
			t.Errorf("%d claims were sent", n)
		}
		p.close()
	})
	// A store without tokens is refused, even if it does not report that in advance.
	sim(t, "store without tokens", func(t *testing.T) {
		l, err := core.New(tokenless{memstore.New()})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, leader.Run(t.Context(), l, election, nothing), core.ErrUnsupported)
	})
	// Plain keys and a majority without fencing are refused before anything is sent.
	t.Run("plain keys and quorums", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
			t.Error("it connects")
			return nil, errCut
		}})
		defer func() { _ = client.Close() }()
		plain, err := redisstore.New(client, redisstore.WithPlainKeys())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = plain.Close() }()
		majority, err := redlock.New([]core.Store{memstore.New(), memstore.New(), memstore.New()})
		if err != nil {
			t.Fatal(err)
		}
		for _, store := range []core.Store{plain, majority} {
			l, err := core.New(store)
			if err != nil {
				t.Fatal(err)
			}
			_, err = leader.New(l, election)
			wantErr(t, err, core.ErrUnsupported)
			wantErr(t, leader.Run(t.Context(), l, election, nothing), core.ErrUnsupported)
		}
	})
	// A leader does not re-enter a lease and does not join an owner.
	sim(t, "lease or owner of the key", func(t *testing.T) {
		store := memstore.New()
		leads, other := candidate(t, store, nil, "leads"), candidate(t, store, newBook(t), "other")
		lease, err := leads.locker.Acquire(t.Context(), election)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, leads.elector.Run(lease.Context(), nothing), core.ErrInvalid)
		ctx, cancel := context.WithTimeout(core.ContextWithOwner(t.Context(), lease.Owner()), time.Minute)
		defer cancel()
		wantErr(t, other.elector.Run(ctx, other.work), context.DeadlineExceeded)
		if _, terms := other.book.last(); terms > 0 {
			t.Error("it leads beside the holder")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		leads.close()
		other.close()
	})
	// The name of an election is the key, or the default name of the lock for a key
	// that is not a valid name.
	sim(t, "name of an election", func(t *testing.T) {
		for key, want := range map[string]string{election: election, "shard:of-a-customer": "shard", "no label!": "lock"} {
			names := map[string]bool{}
			l, err := core.New(memstore.New(), core.WithObserver(namer(names)))
			if err != nil {
				t.Fatal(err)
			}
			if err := leader.Run(t.Context(), l, key, nothing); err != nil || len(names) != 1 || !names[want] {
				t.Errorf("%s: %v, %v; want %s", key, names, err, want)
			}
		}
	})
}

type namer map[string]bool

func (n namer) Observe(_ context.Context, e core.Event) { n[e.Name] = true }

type tokenless struct{ core.Store }

func (s tokenless) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken > 0 {
		return store.Grant{}, core.ErrUnsupported
	}
	g, err := s.Store.Acquire(ctx, c)
	g.Token = 0
	return g, err
}

func wantFree(t *testing.T, p *process) {
	t.Helper()
	l, err := core.New(p.link.Store)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), election)
	if err != nil {
		t.Errorf("the key is not free: %v", err)
		return
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
