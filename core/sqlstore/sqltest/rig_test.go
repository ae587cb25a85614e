package sqltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/keyed"
	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
)

// rig is the least store of all claims on the rows of a Place: it shows that the rows can
// carry the contract. It wakes nobody and shows nothing.
type rig struct {
	p    *sqlstore.Place
	keys keyed.Mutexes[string]

	saves, losses atomic.Int64
}

func (r *rig) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	if err := claims.Check("rig", "acquire", &c, false); err != nil {
		return store.Grant{}, err
	}
	if dialect.Usual(&c) {
		switch token, ok, err := r.p.Take(ctx, c); {
		case ok:
			return store.Grant{Owner: c.Owner, Token: token}, nil
		case err != nil && !errors.Is(err, store.ErrUnavailable), ctx.Err() != nil:
			return store.Grant{}, err
		}
	}
	return g, r.step(ctx, c.Key, c.Record != nil, func(s *keystate.State, now time.Time) (bool, error) {
		g, _, err = s.Acquire(now, c)
		_, busy := errors.AsType[*store.BusyError](err)
		return err == nil && (g.Record == nil || !g.Record.Done) || busy && c.Wait, err
	})
}

func (r *rig) Extend(ctx context.Context, all []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(all))
	done, _ := r.p.Extend(ctx, all)
	for i, c := range all {
		if done[i] {
			continue
		}
		answers[i].Err = r.step(ctx, c.Key, false, func(s *keystate.State, now time.Time) (bool, error) {
			err := s.Extend(now, c)
			return err == nil, err
		})
	}
	return answers
}

func (r *rig) Release(ctx context.Context, c store.Claim) error {
	if err := claims.Check("rig", "release", &c, false); err != nil {
		return err
	}
	usual := c
	usual.Weight, usual.Limit = store.All, store.All // a release looks at the lease alone
	if dialect.Usual(&usual) {
		ok, err := r.p.Give(ctx, c)
		if ok || err != nil && !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return r.step(ctx, c.Key, c.Record != nil, func(s *keystate.State, now time.Time) (bool, error) {
		_, err := s.Release(now, c)
		return true, err
	})
}

// step applies fn to the state of key, and saves it if fn says so.
func (r *rig) step(ctx context.Context, key string, answer bool, fn func(s *keystate.State, now time.Time) (save bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.keys.Lock(ctx, key); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer r.keys.Unlock(key)
	for try := 0; ; try++ {
		if try > 1 {
			time.Sleep(rand.N(time.Duration(try) * 2 * time.Millisecond))
		}
		old, err := r.p.Load(ctx, key, answer)
		if err != nil {
			return err
		}
		s, err := decode(old)
		if err != nil {
			return err
		}
		now := time.UnixMicro(old.Now)
		save, refused := fn(s, now)
		// A refusal after the clock was set back moves the deadlines too: seen from each
		// later moment anew, they would never come nearer.
		if !save && old.Written <= old.Now {
			return refused
		}
		row, err := encode(s, now, answer)
		if err != nil {
			return err
		}
		r.saves.Add(1)
		ok, err := r.p.Save(ctx, key, old, row)
		if ok {
			return refused
		}
		r.losses.Add(1)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
	}
}

// text is the form of a state in its row. Leases and owners are any bytes.
type text struct {
	Holds   []textHold
	Waiters []textWaiter
	Tombs   []textTomb
	Record  *textRecord
}

type (
	textHold struct {
		Lease, Owner []byte
		Weight       int64
		Since, Until int64
	}
	textWaiter struct {
		textHold
		Via       []byte
		Limit     int64
		Fair, Run bool
	}
	textTomb struct {
		Lease []byte
		Until int64
	}
	textRecord struct {
		Attempt         int
		Done, Fresh     bool
		Until           int64
		Saver, Beginner []byte
		Before          *textRecord
	}
)

func decode(r sqlstore.Row) (*keystate.State, error) {
	s := &keystate.State{Token: uint64(r.Token)}
	back := max(0, r.Written-r.Now) // the clock was set back
	at := func(us int64) time.Time { return time.UnixMicro(us - back) }
	hold := func(h textHold) keystate.Hold {
		return keystate.Hold{Lease: string(h.Lease), Owner: string(h.Owner), Weight: h.Weight, Since: at(h.Since), Until: at(h.Until)}
	}
	if r.Lease != nil {
		s.Holds = append(s.Holds, hold(textHold{r.Lease, r.Owner, store.All, r.Since, r.Until}))
	}
	if r.State == nil {
		return s, nil
	}
	var t text
	if err := json.Unmarshal(r.State, &t); err != nil {
		return nil, err
	}
	for _, h := range t.Holds {
		s.Holds = append(s.Holds, hold(h))
	}
	for _, w := range t.Waiters {
		h := hold(w.textHold)
		s.Waiters = append(s.Waiters, keystate.Waiter{
			Lease: h.Lease, Owner: h.Owner, Via: string(w.Via), Weight: w.Weight, Limit: w.Limit, Fair: w.Fair, Run: w.Run, Since: h.Since, Until: h.Until,
		})
	}
	for _, tomb := range t.Tombs {
		s.Tombs = append(s.Tombs, keystate.Tombstone{Lease: string(tomb.Lease), Until: at(tomb.Until)})
	}
	record := func(t *textRecord) *keystate.Record {
		if t == nil {
			return nil
		}
		return &keystate.Record{
			Value: r.Answer, Attempt: t.Attempt, Done: t.Done, Fresh: t.Fresh, Until: at(t.Until), Saver: string(t.Saver), Beginner: string(t.Beginner),
		}
	}
	if s.Record = record(t.Record); s.Record != nil {
		s.Record.Before = record(t.Record.Before)
	}
	return s, nil
}

func encode(s *keystate.State, now time.Time, answer bool) (sqlstore.Row, error) {
	r := sqlstore.Row{Token: int64(s.Token), Written: now.UnixMicro(), Keep: s.Record != nil && !answer}
	var t text
	last := now
	at := func(d time.Time) int64 {
		if d.After(last) {
			last = d
		}
		return d.UnixMicro()
	}
	for _, h := range s.Holds {
		t.Holds = append(t.Holds, textHold{[]byte(h.Lease), []byte(h.Owner), h.Weight, h.Since.UnixMicro(), at(h.Until)})
	}
	for _, w := range s.Waiters {
		t.Waiters = append(t.Waiters, textWaiter{
			textHold{[]byte(w.Lease), []byte(w.Owner), w.Weight, w.Since.UnixMicro(), at(w.Until)}, []byte(w.Via), w.Limit, w.Fair, w.Run,
		})
	}
	for _, tomb := range s.Tombs {
		t.Tombs = append(t.Tombs, textTomb{[]byte(tomb.Lease), at(tomb.Until)})
	}
	record := func(k *keystate.Record) *textRecord {
		if k == nil {
			return nil
		}
		return &textRecord{k.Attempt, k.Done, k.Fresh, at(k.Until), []byte(k.Saver), []byte(k.Beginner), nil}
	}
	if t.Record = record(s.Record); t.Record != nil {
		t.Record.Before = record(s.Record.Before)
		if answer {
			r.Answer = append([]byte{}, s.Record.Value...)
		}
	}
	switch {
	case len(t.Waiters) == 0 && len(t.Tombs) == 0 && t.Record == nil && len(t.Holds) == 0:
	case len(t.Waiters) == 0 && len(t.Tombs) == 0 && t.Record == nil && len(t.Holds) == 1 &&
		t.Holds[0].Weight == store.All && len(t.Holds[0].Owner) > 0 && max(len(t.Holds[0].Lease), len(t.Holds[0].Owner)) <= 255:
		r.Lease, r.Owner, r.Since = t.Holds[0].Lease, t.Holds[0].Owner, t.Holds[0].Since
	default:
		var err error
		if r.State, err = json.Marshal(t); err != nil {
			return r, err
		}
	}
	r.Until = last.UnixMicro()
	return r, nil
}
