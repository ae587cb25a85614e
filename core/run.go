package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Begin is Acquire for a run whose answer the store keeps under the key. If a
// finished record is kept there, that is what Begin returns, with a nil lease
// and after one call to the store: nothing was claimed. Else the lease is held,
// and the record tells the Attempt that this run is, 1 for the first, and the
// Value that is kept: begin's own, or that of an earlier run that did not
// finish. Of begin, Value and Retain count.
//
// The run ends with Finish. Release gives the lease back and leaves the record
// unfinished, as a crash does; the run then counts as an attempt. It does not if
// Begin fails: what the store may have begun is taken back, in the background
// until the store answers. Nor does it after Withdraw.
//
// The lease is not found by LeaseFromContext or LeaseOf under its own context,
// and never re-entered: a run that is begun again inside itself is busy.
//
// It fails like Acquire, with ErrUnsupported if the store keeps no records, and
// with ErrInvalid also for Shared, Permits, Also and KeepFor, and if Retain is
// not 1ms at least.
func (l *Locker) Begin(ctx context.Context, key string, begin Record, opts ...AcquireOption) (*Lease, Record, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, Record{}, err
	}
	r.record = &begin
	if err := r.checkRun(); err != nil {
		return nil, Record{}, fmt.Errorf("acquire %s: %w: %w", r.name, err, ErrInvalid)
	}
	lease, err := l.acquire(ctx, r)
	switch {
	case err != nil:
		return nil, Record{}, err
	case lease.found.Done:
		return nil, *lease.found, nil
	}
	return lease, *lease.found, nil
}

// CheckRun is Check for Begin. It fails with ErrUnsupported if the store keeps no
// records; nothing is sent to find that out.
func (l *Locker) CheckRun(opts ...AcquireOption) (wait time.Duration, err error) {
	r, err := l.request("check", opts)
	if err != nil {
		return 0, err
	}
	r.record = &Record{Retain: minRetain}
	if err := r.checkRun(); err != nil {
		return 0, fmt.Errorf("acquire %s: %w: %w", r.name, err, ErrInvalid)
	}
	// A store refuses what it cannot serve before it looks at the context, and
	// under an ended one it does nothing else.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	id := newID()
	if _, err := l.store.Acquire(ended, r.claim(Key("check", id), id)); errors.Is(err, ErrUnsupported) {
		return 0, fmt.Errorf("acquire %s: %w", r.name, err)
	}
	return r.wait, nil
}

// checkRun refuses what makes no sense for a run.
func (r *request) checkRun() error {
	switch {
	case r.shared, r.permits:
		return errors.New("a run is exclusive, Shared and Permits are not allowed")
	case len(r.also) > 0:
		return errors.New("a run has one key, Also is not allowed")
	case r.keep > 0:
		return errors.New("a run ends with its answer, KeepFor is not allowed")
	}
	return checkRecord(r.record)
}

func checkRecord(r *Record) error {
	if r.Retain < minRetain {
		return fmt.Errorf("a record is retained for %v, %v at least is allowed", r.Retain, minRetain)
	}
	return nil
}

// Finish ends a run: in one step the store checks that the lease is still held,
// saves r with its Value, Attempt, Done and Retain, and frees the key. It works
// on an ended ctx and is bounded like Release, whose calls it counts as one of.
//
// It fails with ErrLost, and nothing was saved, if the lease was no longer ours
// at the store; that is not so if only this process had stopped to vouch for
// it. After ErrUnavailable the answer may be saved or not; it is tried further
// in the background. It fails with ErrInvalid, and does nothing, for a lease
// that is not of Begin, and if Retain is not 1ms at least.
func (l *Lease) Finish(ctx context.Context, r Record) error {
	if l.opts.record == nil {
		return fmt.Errorf("finish %s: not a lease of Begin: %w", l.name, ErrInvalid)
	}
	if err := checkRecord(&r); err != nil {
		return fmt.Errorf("finish %s: %w: %w", l.name, err, ErrInvalid)
	}
	return l.finish(ctx, "finish", &r, false)
}

// Withdraw is Release for a run whose work has not begun: in the same step the
// store takes the run back, so that it does not count as an attempt and the
// record is as Begin found it. It is bounded like Release, whose calls it counts
// as one of.
//
// It fails like Release. If the lease was no longer ours the run is taken back
// all the same, unless another one has begun since; after ErrUnavailable, and
// where only this process had stopped to vouch for the lease, that goes on in
// the background. It fails with ErrInvalid, and does nothing, for a lease that is
// not of Begin.
func (l *Lease) Withdraw(ctx context.Context) error {
	if l.opts.record == nil {
		return fmt.Errorf("withdraw %s: not a lease of Begin: %w", l.name, ErrInvalid)
	}
	return l.finish(ctx, "withdraw", nil, true)
}
