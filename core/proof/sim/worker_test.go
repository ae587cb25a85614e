package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// worker is one goroutine of a client's program.
type worker struct {
	*client
	r    *rand.Rand
	name string
}

// ttls are the TTLs of leases. The longest TTL limits the time for which a hold that was
// left behind blocks a key.
var ttls = []time.Duration{150 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 5 * time.Second}

const longestTTL = 5 * time.Second

func (w *worker) work(n int) {
	for range n {
		time.Sleep(lasting(w.r, time.Millisecond, 3*time.Second))
		if !w.hash || w.r.IntN(10) < 6 {
			key := fmt.Sprint("mutex:", w.r.IntN(2))
			if w.r.IntN(3) == 0 {
				w.rush(key, ttls[w.r.IntN(len(ttls))])
			} else {
				w.lock(key)
			}
			continue
		}
		switch w.r.IntN(4) {
		case 0:
			w.share("rw:0")
		case 1:
			w.lock("rw:0")
		case 2:
			w.permits("sem:0")
		default:
			w.once(fmt.Sprint("job:", w.r.IntN(3)))
		}
	}
}

// terms returns options for an acquire, and a context for it.
func (w *worker) terms() (context.Context, context.CancelFunc, []core.AcquireOption) {
	opts := []core.AcquireOption{core.TTL(ttls[w.r.IntN(len(ttls))])}
	ctx, cancel := w.ctx, context.CancelFunc(func() {})
	switch w.r.IntN(6) {
	case 0:
		opts = append(opts, core.Wait(0))
	case 1:
		opts = append(opts, core.Wait(lasting(w.r, 10*time.Millisecond, 10*time.Second)))
	case 2:
		ctx, cancel = context.WithTimeout(ctx, lasting(w.r, 10*time.Millisecond, 10*time.Second))
	case 3:
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(lasting(w.r, time.Millisecond, 10*time.Second), cancel)
	}
	if w.hash && w.r.IntN(3) == 0 {
		opts = append(opts, core.Fair())
	}
	if w.r.IntN(8) == 0 {
		opts = append(opts, core.NoRenew())
	}
	return ctx, cancel, opts
}

// acquire acquires key, and records the outcome. For one in eight of the leases without
// an outer hold, it also reads the lease's owner.
func (w *worker) acquire(ctx context.Context, outer *hold, key string, weight, limit int64, opts ...core.AcquireOption) (*core.Lease, *hold) {
	from := w.journal.now()
	var q question
	lease, err := w.locker.Acquire(context.WithValue(ctx, infoKey{}, &q), key, opts...)
	w.note(key, from, err)
	if err != nil {
		return nil, nil
	}
	h := w.journal.begin(&hold{
		key: key, client: w.id, outer: outer, weight: weight, limit: limit, token: lease.TokenOf(key),
	}, &q)
	context.AfterFunc(lease.Context(), func() { w.journal.end(h) })
	if outer == nil && w.r.IntN(8) == 0 {
		w.journal.show(h, lease.Owner())
	}
	return lease, h
}

func (w *worker) note(key string, from time.Duration, err error) {
	outcome := "granted"
	if err != nil {
		outcome = err.Error()
	}
	j := w.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waits = append(j.waits, wait{key: key, from: from, until: j.now(), granted: err == nil, outcome: outcome})
	// The caller may have left before the store was asked.
	left := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if err != nil && !left && !errors.Is(err, core.ErrBusy) && !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) {
		j.stuck = append(j.stuck, fmt.Sprintf("%s: an acquire failed with %v", key, err))
	}
}

// release releases a lease, and records the result of the first release.
func (w *worker) release(lease *core.Lease, h *hold) {
	again := w.journal.letGo(h)
	if err := lease.Release(context.Background()); !again {
		w.journal.free(h, err)
	}
}

// rush starts several goroutines that each acquire a key briefly, one to three times.
func (w *worker) rush(key string, ttl time.Duration) {
	var wg sync.WaitGroup
	for i := range 3 + w.r.IntN(4) {
		one := &worker{client: w.client, r: rand.New(rand.NewPCG(w.r.Uint64(), uint64(i))), name: fmt.Sprint(w.name, ".", i)}
		wg.Go(func() {
			for range 1 + one.r.IntN(3) {
				one.brief(key, ttl)
			}
		})
	}
	wg.Wait()
}

func (w *worker) brief(key string, ttl time.Duration) {
	ctx := w.ctx
	if w.r.IntN(10) == 0 {
		c, cancel := context.WithTimeout(ctx, lasting(w.r, 10*time.Microsecond, 10*time.Millisecond))
		defer cancel()
		ctx = c
	}
	lease, h := w.acquire(ctx, nil, key, store.All, store.All, core.TTL(ttl), core.Wait(lasting(w.r, 100*time.Millisecond, 10*time.Second)))
	if lease == nil {
		return
	}
	time.Sleep(lasting(w.r, 10*time.Microsecond, 4*time.Millisecond))
	switch w.r.IntN(10) {
	case 0:
		if ttl < strictTTL {
			w.nest(lease, h)
		}
	case 1:
		time.Sleep(lasting(w.r, time.Millisecond, 30*time.Millisecond))
	case 2:
		if ttl < strictTTL {
			w.journal.extend(lease.Context(), h)
			_ = lease.Extend(lease.Context(), ttl)
		}
	}
	w.write(lease, h)
	if ttl < strictTTL && w.r.IntN(50) == 0 {
		// The server loses a hold that is about to be passed on.
		w.wipe()
		time.Sleep(lasting(w.r, 10*time.Microsecond, time.Millisecond))
	}
	w.release(lease, h)
}

// lock holds a key for a while, and does other work under the lease.
func (w *worker) lock(key string) {
	ctx, cancel, opts := w.terms()
	defer cancel()
	lease, h := w.acquire(ctx, nil, key, store.All, store.All, opts...)
	if lease == nil {
		return
	}
	for range w.r.IntN(4) {
		w.spend(lease)
		switch w.r.IntN(5) {
		case 0:
			w.nest(lease, h)
		case 1:
			w.journal.extend(lease.Context(), h)
			_ = lease.Extend(lease.Context(), ttls[w.r.IntN(len(ttls))])
		default:
			w.write(lease, h)
		}
	}
	w.spend(lease)
	if w.r.IntN(6) == 0 {
		// The worker does not notice that it has lost the key, or has checked just
		// before the loss.
		if w.r.IntN(2) == 0 {
			w.release(lease, h)
		}
		time.Sleep(lasting(w.r, time.Millisecond, 2*longestTTL))
		if w.hash {
			w.journal.write(h)
		}
	}
	w.release(lease, h)
}

// spend waits for a random time, or until the lease's context is done.
func (w *worker) spend(lease *core.Lease) {
	select {
	case <-time.After(lasting(w.r, time.Millisecond, 4*time.Second)):
	case <-lease.Context().Done():
	}
}

// write writes to the key's register if the lease's context is not done.
func (w *worker) write(lease *core.Lease, h *hold) {
	if w.hash && lease.Context().Err() == nil {
		w.journal.write(h)
	}
}

func (w *worker) nest(lease *core.Lease, outer *hold) {
	if w.plain {
		return
	}
	inner, h := w.acquire(lease.Context(), outer, outer.key, store.All, store.All, core.TTL(ttls[w.r.IntN(len(ttls))]))
	if inner == nil {
		return
	}
	w.spend(inner)
	w.write(inner, h)
	w.release(inner, h)
}

func (w *worker) share(key string) {
	ctx, cancel, opts := w.terms()
	defer cancel()
	if lease, h := w.acquire(ctx, nil, key, 1, store.All, append(opts, core.Shared())...); lease != nil {
		w.spend(lease)
		w.release(lease, h)
	}
}

// permits acquires one or two of three permits.
func (w *worker) permits(key string) {
	ctx, cancel, opts := w.terms()
	defer cancel()
	n := 1 + w.r.IntN(2)
	if lease, h := w.acquire(ctx, nil, key, int64(n), 3, append(opts, core.Permits(n, 3))...); lease != nil {
		w.spend(lease)
		w.release(lease, h)
	}
}

func (w *worker) once(key string) {
	ctx, cancel, opts := w.terms()
	defer cancel()
	j := w.journal
	from := j.now()
	long := lasting(w.r, time.Millisecond, 3*time.Second)
	out, err := w.jobs.With(opts...).Do(ctx, once.Call{Name: "job", Key: key}, func(ctx context.Context) (once.Answer, error) {
		run := &work{key: key, called: from, from: j.now(), until: -1}
		end := func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			if run.until < 0 {
				run.until = j.now()
			}
		}
		j.mu.Lock()
		j.works = append(j.works, run)
		j.mu.Unlock()
		stop := context.AfterFunc(ctx, end)
		defer stop()
		defer end()
		select {
		case <-time.After(long):
			return once.Answer{Value: fmt.Append(nil, w.name, " at ", j.now())}, nil
		case <-ctx.Done():
			return once.Answer{}, context.Cause(ctx)
		}
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers = append(j.answers, answer{key, from, j.now(), string(out.Value), err == nil})
}
