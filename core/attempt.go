package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// attempt is the state of one acquire in flight. The field key and the notes of the
// table concern the key that the attempt is acquiring. The note unsure is in
// Lease.unsure.
//
//	answer to a request         notes               then         error
//	a grant                     none                holds it     none
//	busy                        foundBusy           waits, asks  ErrBusy
//	ErrInvalid, ErrUnsupported  none                fails        the answer
//	ErrLost: storeReleased      none                fails        ErrUnavailable
//	ErrUnavailable              unanswered          asks again   ErrUnavailable
//	none, or any other error    unanswered, unsure  asks again   ErrUnavailable
//
// A grant that has expired when it arrives counts as no answer. A note stays set if a
// later request is answered, because the earlier request may still arrive. If ctx is
// done, nothing is asked again, and the error is ctxError's. If the acquire fails and
// the claim is unsure or placed, the cleanup releases the claim.
type attempt struct {
	engine  *engine
	request *request
	ctx     context.Context // the caller's; the lease's is also done if an earlier key is lost
	lease   *Lease
	until   time.Time // the end of the wait; zero without a positive Wait
	key     keyAttempt
}

// keyAttempt is the part of an attempt that acquireKey resets for each key.
type keyAttempt struct {
	foundBusy  bool   // the store or the queue of this process answered busy
	placed     bool   // the claim may have a place in the store's list
	unanswered bool   // a request had no answer; ctxError prefers a later answer
	failed     error  // the error of the last request, if the store answered none of its tries
	joinToken  uint64 // the token of the hold to join; 0 if unknown
	byText     bool   // joinToken is from the text of Lease.Owner, not from a lease of this process
}

// inLine acquires c for t, which has entered its queue. It waits until t may ask the
// store or is given a hold, and then continues as the head or beside the head.
func (a *attempt) inLine(t *waiter, c *store.Claim) error {
	for {
		if t.ready != nil {
			a.notifyBusy(ErrBusy)
			_, err := a.sleep(t.ready, forever, &BusyError{})
			if err == nil {
				err = t.answer
			}
			if err != nil {
				return err
			}
		}
		if !t.beside {
			return a.asHead(t, c)
		}
		err := a.askRetrying(c)
		if a.refused(t, err) == nil || t.tryOnly {
			return err
		}
	}
}

// asHead acquires c as the head of the queue: it takes the hold that was given to t, or
// asks the store. After each busy answer it waits for a wake-up or a delay, and then
// asks again.
func (a *attempt) asHead(t *waiter, c *store.Claim) error {
	if h := t.takeGiven(); h != nil {
		if a.lease.take(h) {
			return nil
		}
		a.lease.abandonHold(h)
	}
	var w watch
	defer w.close()
	// A caller that probably finds the key busy opens its watch before it asks. Either
	// it has waited behind other callers of this process, or the key was busy for the
	// last lone caller (contended). Any other caller asks first, and opens its watch
	// after a busy answer.
	early, wakeable := min(budget(c.TTL), earlyLimit), a.engine.waiters.wakeable.Load()
	switch {
	case a.request.wait == 0:
	case (t.ready != nil || t.contended) && wakeable:
		if !w.open(a, c, early) {
			w.retry() // after a busy answer the watch is opened again at once, with more time
		}
	case t.ready != nil: // the last watch has failed, and this one may fail too
		w.open(a, c, early)
	}
	if a.request.wait != 0 && !w.live() && !a.engine.waiters.wakeable.Load() {
		if d := a.engine.waiters.rest(t, a.step()); d > 0 && a.lastsFor(d) {
			if _, err := a.sleep(nil, d, &BusyError{}); err != nil {
				return err
			}
		}
	}
	var pause func() (time.Duration, bool)
	woken := false // whether a wake-up ended the last sleep
	for {
		// A store wakes one claim of its list, and the wake-up is lost if this claim
		// has no watch. So a claim without a watch gets no place in the list, unless it
		// is fair.
		c.Wait = a.request.wait != 0 && (c.Fair || w.live())
		c.Push = c.Wait && w.live()
		err := a.askRetrying(c)
		busy := a.refused(t, err)
		if busy == nil || t.tryOnly {
			return err
		}
		if w.open(a, c, budget(c.TTL)) {
			continue // the key may have become free before the watch was live
		}
		if pause == nil {
			pause = a.request.pace.Delays()
		}
		d, left := pause()
		if !left {
			return err
		}
		switch {
		case w.live():
			d = wakeUpWait(busy, woken)
		case a.request.pace.Attempts == 0 && busy.RetryAfter <= c.TTL && busy.RetryAfter > c.TTL-freshTime:
			// The key changes hands: a longer pause would find it free less often.
			d = min(d, a.step())
		}
		if c.Wait {
			d = min(d, min(c.TTL, store.WaiterLife)*2/3) // ask again before the place expires
		}
		a.engine.waiters.asleep(t, busy)
		asleep := time.Now()
		closed, err := a.sleep(w.wakeUps, d, busy)
		woken = time.Since(asleep) < d
		a.engine.waiters.asleep(t, nil)
		if err != nil {
			return err
		}
		if closed {
			w.failed(a, true)
		}
	}
}

// refused returns the store's answer to t if err is a busy answer, and records the
// answer in the queue. It returns nil for any other err. It also returns nil if ctx is
// done, because err can then be the cause of ctx.
func (a *attempt) refused(t *waiter, err error) *BusyError {
	if !errors.Is(err, ErrBusy) || a.ctx.Err() != nil {
		return nil
	}
	var busy *BusyError
	ok := errors.As(err, &busy)
	if !ok {
		busy = &BusyError{}
	}
	a.engine.waiters.noteRefused(t, busy)
	return busy
}

// step returns the first pause of the acquire's retry policy.
func (a *attempt) step() time.Duration {
	d, _ := a.request.pace.Delays()()
	return d
}

// lastsFor reports whether the acquire has more than d left.
func (a *attempt) lastsFor(d time.Duration) bool {
	end := time.Now().Add(d)
	deadline, ends := a.ctx.Deadline()
	return (a.until.IsZero() || end.Before(a.until)) && (!ends || end.Before(deadline))
}

// forever is a duration for sleep without a limit.
const forever = time.Duration(math.MaxInt64)

// sleep waits until wake has a value or is closed, d has passed, or the acquire ends.
// It returns nil, or the reason if the acquire ends. closed reports whether wake was
// closed. busy is the busy answer because of which the caller waits. It is nil for
// other waits, which Wait does not limit.
func (a *attempt) sleep(wake <-chan struct{}, d time.Duration, busy *BusyError) (closed bool, err error) {
	last := false
	if busy != nil && !a.until.IsZero() {
		if left := max(0, time.Until(a.until)); left <= d {
			d, last = left, true
		}
	}
	var over <-chan time.Time
	if d < forever {
		over = time.After(d)
	}
	select {
	case _, received := <-wake:
		return !received, nil
	case <-over:
		if last {
			return false, &BusyError{RetryAfter: max(0, busy.RetryAfter-d), Waiting: busy.Waiting}
		}
		return false, nil
	case <-a.engine.roster.closing.Done():
		return false, ErrClosed
	case <-a.lease.Context().Done():
		return false, context.Cause(a.lease.Context())
	}
}

// askRetrying sends the claim, and adds the granted hold to the lease. It repeats the
// request after transient errors, unless the server is known to be down.
func (a *attempt) askRetrying(c *store.Claim) error {
	var pause func() (time.Duration, bool)
	for {
		err := a.ask(c)
		switch {
		case err == nil, a.ctx.Err() != nil:
			return err
		case answered(a.ctx, err):
			a.notifyBusy(err)
			return err
		}
		a.key.unanswered = true
		if pause == nil {
			pause = retry.Hiccup.Delays()
		}
		d, left := pause()
		if !left || outage.Known(err) {
			a.key.failed = err
			return err
		}
		if _, end := a.sleep(nil, d, nil); end != nil {
			return end
		}
	}
}

// ask sends the claim once, and adds the granted hold to the lease. If a NoRenew lease
// gets a short grant by message, ask sends its claim once more.
func (a *attempt) ask(c *store.Claim) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	a.key.placed = a.key.placed || c.Wait
	unsure := true // stays true if the store panics
	defer func() {
		if unsure {
			a.lease.markUnsure(c.Key)
		}
	}()
	start := a.engine.now()
	ctx, cancel := a.engine.bounded(a.ctx, budget(c.TTL), c.TTL)
	defer cancel()
	g, err := a.engine.store.Acquire(ctx, *c)
	short := err == nil && a.request.noRenew && g.Valid > 0 && g.Valid < c.TTL/2
	if short {
		// A grant by message (store.Claim.Push) is short, because the watchdog is
		// expected to extend it. A lease with NoRenew is not extended. If the same
		// claim is sent again, the grant lasts for its TTL from then on.
		start = a.engine.now()
		g, err = a.engine.store.Acquire(ctx, *c)
	}
	if err != nil {
		// If the second call fails, the store can still have the short grant.
		unsure = short || !answered(a.ctx, err) && !says(a.ctx, err, ErrUnavailable)
		return err
	}
	if c.Record != nil {
		if g.Record == nil {
			return errors.New("the store gave no record")
		}
		a.lease.noteRun(*g.Record)
		if g.Record.Done {
			a.key.placed, unsure = false, false
			return nil // without a hold: nothing was claimed, see Locker.acquire
		}
	}
	err = a.admit(c, g, start)
	unsure = err != nil
	return err
}

// roughToken is the tolerance for the token in an owner's text. That token must be less
// than the sum of the store's token, store.TokenStep and roughToken. Tokens of Redis
// are times in microseconds, and Redis usually knows the time of a grant only to the
// millisecond.
const roughToken = 4096

// admit adds to the lease the hold that was granted to c in a call that began at start.
func (a *attempt) admit(c *store.Claim, g store.Grant, start clock.Moment) error {
	if c.Via != "" && c.Via == g.Owner && a.key.joinToken > 0 && g.Token > 0 {
		// All leases of the owner must have the same token, because a resource may have
		// seen it. The store may report another token, see store.Grant.Token. An
		// owner's text (ContextWithOwner) can be forged, so its token is used only
		// below a bound.
		if !a.key.byText || a.key.joinToken < g.Token+store.TokenStep+roughToken {
			g.Token = a.key.joinToken
		}
	}
	return a.lease.grant(c, g, start)
}

// notifyBusy records that the key is busy, and notifies the observer of the first busy
// key of the acquire.
func (a *attempt) notifyBusy(err error) {
	if !errors.Is(err, ErrBusy) {
		return
	}
	a.key.foundBusy = true
	if !a.lease.contended {
		a.lease.noteContended()
		a.engine.observe(a.ctx, a.lease.outcome(Busy))
	}
}

// acquireError returns the caller's error for an acquire of c that failed with err, the
// last error of the store or of the wait. It returns nil if err is nil.
func (a *attempt) acquireError(c *store.Claim, err error) error {
	switch {
	case err == nil:
		return nil
	case a.ctx.Err() != nil:
		return a.ctxError(c, err)
	case errors.Is(err, ErrBusy):
		e := &BusyError{Key: c.Key, Name: a.request.name}
		var busy *BusyError
		if errors.As(err, &busy) {
			e.RetryAfter, e.Waiting = busy.RetryAfter, busy.Waiting
		}
		return e
	case a.storeReleased(err):
		return fmt.Errorf("core: acquire %q: %w: %v", a.request.name, ErrUnavailable, err)
	case errors.Is(err, ErrClosed), answered(a.ctx, err):
		return fmt.Errorf("core: acquire %q: %w", a.request.name, err)
	}
	return unavailable("acquire", a.request.name, err)
}

// storeReleased reports whether err is the answer that the claim was released before,
// although this process has not released it. The store itself (redlock, or Redis with
// replicas) released the claim after an attempt without an answer, and does not grant
// it again. If the lease has lost an earlier key, err is that loss.
func (a *attempt) storeReleased(err error) bool {
	return says(a.ctx, err, ErrLost) && a.lease.trusted()
}

// ctxError implements acquireError for the case that the caller's context is done. The
// error concerns the key of c only. It matches ErrBusy if the store or the queue of this
// process answered busy. Otherwise, if the last request was answered, the error matches
// that answer, even if an earlier request had no answer. Otherwise it matches
// ErrUnavailable if a request to the store had no answer. If no request was sent, the
// error matches only the context's error and cause.
func (a *attempt) ctxError(c *store.Claim, err error) error {
	cause := context.Cause(a.ctx)
	done := cause
	if cause != a.ctx.Err() {
		done = fmt.Errorf("%w (%w)", cause, a.ctx.Err())
	}
	released := a.storeReleased(err)
	switch {
	case a.key.foundBusy || says(a.ctx, err, ErrBusy):
		return fmt.Errorf("core: acquire %q: %w: %w", a.request.name, ErrBusy, done)
	case answered(a.ctx, err) && !released:
		return fmt.Errorf("core: acquire %q: %w: %w", a.request.name, err, done)
	case released || a.key.unanswered || a.lease.unsure[c.Key] || says(a.ctx, err, ErrUnavailable):
		if !isSame(err, cause) {
			// The text of ErrUnavailable is removed, because the returned error has it
			// already.
			done = fmt.Errorf("%w: %s", done, strings.ReplaceAll(err.Error(), ErrUnavailable.Error()+": ", ""))
		}
		return fmt.Errorf("core: acquire %q: %w: %w", a.request.name, ErrUnavailable, done)
	}
	return fmt.Errorf("core: acquire %q: not asked, the context is done: %w", a.request.name, done)
}

// isSame reports whether a and b are the same error. It returns false for errors of a
// type that cannot be compared, such as a slice. The operator == panics for such errors.
func isSame(a, b error) bool { return reflect.ValueOf(a).Comparable() && a == b }
