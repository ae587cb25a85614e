package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// Acquire takes the lock on key, waiting for it until ctx ends or as long as
// Wait allows. Under a context that carries a lease of the same key from the
// same Locker it re-enters: it does not wait, and the key is free when every
// lease of it has been released. It is never re-entered from memory: the store
// confirms that the outer lease is still held.
//
// The lease is extended until Release is called, also when ctx ends, since the
// work may still be running then. So every lease has to be released.
//
// It fails with ErrBusy (a *BusyError, or matching ctx's cause too if ctx ended
// the wait), ErrUnavailable if the store does not answer, ErrLost if the outer
// lease was lost, ErrClosed, ErrUnsupported, or ErrInvalid for a key or option
// that is not allowed or for a claim heavier than the one it re-enters. After
// any error nothing is held.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	return l.acquire(ctx, r)
}

// TryAcquire is Acquire with one attempt: it asks the store once, and fails with
// ErrBusy if the key is held, or if others of this process are waiting for it.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	r.wait = 0
	return l.acquire(ctx, r)
}

func (l *Locker) acquire(ctx context.Context, r *request) (*Lease, error) {
	if !l.begin() {
		return nil, fmt.Errorf("acquire %s: %w", r.name, ErrClosed)
	}
	start := time.Now()
	lease := newLease(l, ctx, r)
	a := attempt{Locker: l, request: r, ctx: ctx, lease: lease}
	if r.wait > 0 {
		a.until = start.Add(r.wait)
	}
	var err error
	for _, key := range r.keys {
		if err = a.take(key); err != nil {
			break
		}
	}
	if err == nil {
		err = lease.start(ctx)
	}
	if err != nil {
		lease.giveBack()
		l.end(lease)
		l.observe(ctx, Event{Kind: GaveUp, Name: r.name, Wait: time.Since(start), Err: err})
		return nil, err
	}
	l.observe(ctx, Event{Kind: Acquired, Name: r.name, Wait: time.Since(start)})
	return lease, nil
}

// attempt is one acquire under way.
type attempt struct {
	*Locker
	*request
	ctx   context.Context
	lease *Lease
	until time.Time // end of the waiting, zero if none
	told  bool      // the store has answered busy
}

// take adds a hold of key to the lease, or leaves nothing behind.
func (a *attempt) take(key string) (err error) {
	c := a.claim(key, a.lease.id)
	defer func() {
		if unsure := a.lease.unsure[key]; a.lease.hold(key) == nil && (unsure || c.Wait) {
			a.cleaner.add(c, a.name, unsure)
		}
	}()
	if !a.permits {
		outer := joinable(a.ctx, key)
		switch {
		case outer == nil:
			c.Via, _ = a.ctx.Value(ownerKey{}).(string)
		case outer.locker == a.Locker:
			return a.join(&c, outer)
		default: // of another Locker, perhaps at the same store
			c.Via = outer.hold(key).claim.Owner
		}
	}
	if c.Via != "" {
		// The one to join may be waiting for us, so we do not queue behind
		// those who wait for it.
		if err := a.once(&c); err == nil || !errors.Is(err, ErrBusy) || a.wait == 0 {
			return err
		}
	}
	t := a.lines.enter(key, a.wait == 0)
	defer a.lines.leave(t)
	if err := t.await(a.ctx, a.until, a.closing); err != nil {
		a.tellBusy(err)
		return a.gaveUp(&c, err)
	}
	return a.lead(t, &c)
}

// join makes c a hold of outer's owner, or fails with ErrLost if that owner does
// not hold the key any more, whatever we believed.
func (a *attempt) join(c *Claim, outer *Lease) error {
	lost := fmt.Errorf("acquire %s again: %w", a.name, ErrLost)
	if !outer.vouch() {
		return lost
	}
	c.Via = outer.hold(c.Key).claim.Owner
	err := a.once(c)
	if errors.Is(err, ErrBusy) {
		outer.lose()
		return lost
	}
	if err != nil {
		return err
	}
	if a.lease.hold(c.Key).claim.Owner != c.Via {
		outer.lose() // and the lease is given back by acquire
		return lost
	}
	return nil
}

// lead is the head of the line: it asks, and as long as the answer is busy
// waits for a wake-up or a while, and asks again.
func (a *attempt) lead(t *turn, c *Claim) error {
	var w watch
	defer w.close()
	// A lone caller asks first and opens a watch only if it has to wait. Who
	// waited behind others of this process knows that it will probably have to.
	asked := t.first || a.wait == 0
	if asked {
		c.Wait = c.Fair && a.wait != 0
		if err := a.once(c); err == nil || !errors.Is(err, ErrBusy) || a.wait == 0 {
			return err
		}
	}
	pause := a.pace.Delays()
	if asked {
		if _, left := pause(); !left {
			return &BusyError{Key: c.Key, Name: a.name}
		}
	}
	for {
		w.open(a, c)
		c.Wait = true
		err := a.once(c)
		busy, ok := errors.AsType[*BusyError](err)
		if !ok {
			return err
		}
		d, left := pause()
		if !left {
			return a.gaveUp(c, err)
		}
		if w.live() {
			d = w.patience(busy.RetryAfter)
		}
		a.lines.sleep(t, busy)
		err = a.sleep(&w, d)
		a.lines.wake(t)
		if err != nil {
			return a.gaveUp(c, err)
		}
	}
}

// sleep returns nil when it is time to ask again, and else why not to.
func (a *attempt) sleep(w *watch, d time.Duration) error {
	last := false
	if !a.until.IsZero() {
		if left := time.Until(a.until); left <= d {
			d, last = left, true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case _, ok := <-w.wakeUps:
		if !ok {
			w.close() // broken: poll, and open it again
		}
		return nil
	case <-timer.C:
		if last {
			return &BusyError{}
		}
		return nil
	case <-a.closing:
		return ErrClosed
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// once asks the store, again after passing errors, and adds the hold if it is
// granted. Its error is complete.
func (a *attempt) once(c *Claim) error {
	var pause func() (time.Duration, bool)
	for {
		err := a.ask(c)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrBusy):
			a.tellBusy(err)
			busy := &BusyError{Key: c.Key, Name: a.name}
			if e, ok := errors.AsType[*BusyError](err); ok {
				busy.RetryAfter = e.RetryAfter
			}
			return busy
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrInvalid), errors.Is(err, ErrLost):
			return fmt.Errorf("acquire %s: %w", a.name, err)
		case a.ctx.Err() != nil:
			return a.gaveUp(c, err)
		}
		if pause == nil {
			pause = retry.Hiccup.Delays()
		}
		d, left := pause()
		if !left {
			return a.gaveUp(c, err)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-a.closing:
			err = ErrClosed
		case <-a.ctx.Done():
		}
		timer.Stop()
		if errors.Is(err, ErrClosed) || a.ctx.Err() != nil {
			return a.gaveUp(c, err)
		}
	}
}

// ask sends the claim once.
func (a *attempt) ask(c *Claim) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	start := a.now()
	ctx, cancel := context.WithTimeout(a.ctx, budget(c.TTL))
	defer cancel()
	g, err := a.store.Acquire(ctx, *c)
	if err != nil {
		if !answered(err) && !errors.Is(err, ErrUnavailable) {
			a.lease.doubt(c.Key)
		}
		return err
	}
	h := &hold{lease: a.lease, claim: *c, token: g.Token, valid: c.TTL, from: start}
	h.claim.Owner, h.claim.Via = g.Owner, ""
	h.claim.Wait = false
	if g.Valid > 0 {
		h.valid = g.Valid
	}
	if !h.alive(a.now()) {
		// The answer took longer than the lease is good for.
		a.lease.doubt(c.Key)
		return errors.New("the grant had expired when it arrived")
	}
	a.lease.add(h)
	return nil
}

// answered tells whether err is an answer of the store: nothing is in doubt.
func answered(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrLost) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported)
}

// tellBusy tells the observer, once, that the key is busy.
func (a *attempt) tellBusy(err error) {
	if !a.told && errors.Is(err, ErrBusy) {
		a.told = true
		a.observe(a.ctx, Event{Kind: Busy, Name: a.name})
	}
}

// gaveUp says why the acquire of c ended without a hold; err is what came last.
func (a *attempt) gaveUp(c *Claim, err error) error {
	sentinel := ErrUnavailable
	switch busy, ok := errors.AsType[*BusyError](err); {
	case ok && a.ctx.Err() == nil:
		return &BusyError{Key: c.Key, Name: a.name, RetryAfter: busy.RetryAfter}
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("acquire %s: %w", a.name, ErrClosed)
	case a.ctx.Err() == nil:
		return fmt.Errorf("acquire %s: %w: %w", a.name, ErrUnavailable, err)
	case ok, a.told, !a.lease.unsure[c.Key] && !errors.Is(err, ErrUnavailable):
		sentinel = ErrBusy
	}
	if cause := context.Cause(a.ctx); cause != a.ctx.Err() {
		return fmt.Errorf("acquire %s: %w: %w (%w)", a.name, sentinel, cause, a.ctx.Err())
	}
	return fmt.Errorf("acquire %s: %w: %w", a.name, sentinel, a.ctx.Err())
}
