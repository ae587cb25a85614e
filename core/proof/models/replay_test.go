package models_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

const (
	key  = "key"
	tick = time.Second
	ttl  = 2 * tick // TTL of key.pml
	many = 3        // MANY of run.pml
)

// replay applies a model's events to a store, and compares the answers.
type replay struct {
	store  store.Store
	data   *database      // the place of the store, or nil if the store has no transactions
	runs   bool           // the claims have records
	token  uint64         // of the last grant
	number [3]int         // number of each lease's run
	saves  [3]bool        // the lease has tried to save or commit the end of its run
	unsaid int            // runs with an unknown end that the model expects in the next grant
	undo   bool           // the next release is an undo
	count  map[string]int // number of each answer
}

// newReplay returns a replay with an empty store. The store is a memstore. Only for
// commit.pml it is a casstore, because a memstore has no transactions of its callers.
func newReplay(t *testing.T, model string, count map[string]int) *replay {
	t.Helper()
	r := &replay{store: memstore.New(), runs: model == "once" || model == "commit", count: count}
	if model == "commit" {
		r.data = newDatabase()
		s, err := casstore.New(r.data)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		r.store = s
	}
	return r
}

// do applies one event in virtual time. It returns an error if the store's answer
// differs from the model's.
func (r *replay) do(ctx context.Context, event string) error {
	var what, want, more string
	var l, n int
	if event == "tick" {
		time.Sleep(tick)
		return nil
	}
	_, _ = fmt.Sscan(event, &what, &l, &want, &more)
	_, _ = fmt.Sscan(more, &n)
	c := store.Claim{Key: key, Owner: fmt.Sprint("owner ", l), Lease: fmt.Sprint("lease ", l), Weight: store.All, Limit: store.All, TTL: ttl}
	var got string
	switch what {
	case "begun": // the grant follows
		_, err := fmt.Sscan(want, &r.unsaid)
		return err
	case "undo": // the release follows
		r.undo = true
		return nil
	case "begin", "acquire":
		if r.runs {
			c.Record = &store.Record{Value: []byte{0, 0}, Retain: time.Hour}
		}
		g, err := r.store.Acquire(ctx, c)
		got = answer(err, "GRANTED")
		if g.Record != nil && g.Record.Done {
			got = "DONE"
			if author := int(g.Record.Value[1]); author != n {
				return fmt.Errorf("%s: got the answer of %d", event, author)
			}
		} else if err == nil {
			if err := r.granted(l, g, more == "new"); err != nil {
				return fmt.Errorf("%s: %w", event, err)
			}
		}
	case "extend":
		got = answer(r.store.Extend(ctx, []store.Claim{c})[0].Err, "OK")
	case "release":
		c.Undo, r.undo = r.undo, false
		got = answer(r.store.Release(ctx, c), "OK")
	case "save":
		c.Record = r.record(l, n == 2)
		got = answer(r.store.Release(ctx, c), "OK")
	case "commit": // the transaction stays open after OK
		c.Record = r.record(l, true)
		got = answer(casstore.Commit(ctx, r.store.(*casstore.Store), r.data.begin(), c), "OK")
		if got != "OK" {
			_ = r.data.end(false)
		}
	case "end":
		got = want
		if err := r.data.end(want == "COMMITTED"); err != nil {
			got = err.Error()
		}
	case "revoke":
		want, got = "OK", answer(r.store.(store.Inspector).Revoke(ctx, key, store.HoldID(c.Lease), time.Millisecond), "OK")
	default:
		return fmt.Errorf("unknown event %q", event)
	}
	if got != want {
		return fmt.Errorf("%s: got %s, want %s", event, got, want)
	}
	r.count[what+" "+want]++
	return nil
}

// record returns the record with which lease l ends its run.
func (r *replay) record(l int, isDone bool) *store.Record {
	r.saves[l] = true
	return &store.Record{Value: []byte{byte(r.number[l]), byte(l + 1)}, Attempt: r.number[l], Done: isDone, Retain: time.Hour}
}

// granted compares a grant with the model. A new grant must have a token above all
// tokens of the last grant. A claim that is granted again must have the same token.
func (r *replay) granted(l int, g store.Grant, isNew bool) error {
	if isNew && g.Token < r.token+store.TokenStep || !isNew && g.Token != r.token {
		return fmt.Errorf("got token %d after %d", g.Token, r.token)
	}
	r.token = g.Token
	if g.Record == nil {
		return nil
	}
	if !r.saves[l] {
		r.number[l] = g.Record.Attempt
	}
	if unsaid := g.Record.Attempt - int(g.Record.Value[0]); min(unsaid, many) != r.unsaid {
		return fmt.Errorf("got %d runs of which the end is unknown, want %d", unsaid, r.unsaid)
	}
	return nil
}

func answer(err error, success string) string {
	switch {
	case err == nil:
		return success
	case errors.Is(err, store.ErrBusy):
		return "BUSY"
	case errors.Is(err, store.ErrSaved): // matches ErrLost too
		return "SAVED"
	case errors.Is(err, store.ErrLost):
		return "LOST"
	}
	return err.Error()
}
