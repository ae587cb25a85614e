package sim_test

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// tap records a Locker's requests to its store.
type tap struct {
	core.Store
	store.Watcher
	journal *journal
	client  int
}

// call is one request to a store with its answer. With op "lease" it is the start of a
// lease to which a hold was passed on, or the release of a lease.
type call struct {
	op          string
	client      int
	key, lease  string
	from, until time.Duration
	outcome     string
	token       uint64
	ends        time.Duration // set for a grant that is shorter than the TTL
	remembers   bool          // for a release: the store remembers the release of an unknown lease
}

// boundedTap is a tap on a store that limits the time of its calls.
type boundedTap struct {
	*tap
	store.Prompt
}

func listen(s core.Store, j *journal, client int) core.Store {
	t := &tap{Store: s, journal: j, client: client}
	t.Watcher, _ = s.(store.Watcher)
	if p, bounds := s.(store.Prompt); bounds {
		return boundedTap{t, p}
	}
	return t
}

// infoKey is the context key of a caller's question.
type infoKey struct{}

func (t *tap) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	from := t.journal.now()
	g, err := t.Store.Acquire(ctx, c)
	t.note("acquire", c, from, g, err)
	switch {
	case err == nil:
		t.granted(ctx, c, g, from)
	case c.Wait:
		// From now on a release may grant the key to this claim, before the claim is
		// sent again.
		t.journal.mu.Lock()
		t.journal.placed[c.Lease+" "+c.Key] = from
		t.journal.mu.Unlock()
	}
	return g, err
}

// granted records a grant, and the request that was granted.
func (t *tap) granted(ctx context.Context, c store.Claim, g store.Grant, from time.Duration) {
	j := t.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	asked := from
	if at, known := j.placed[c.Lease+" "+c.Key]; known {
		asked = min(asked, at)
	}
	if q, ok := ctx.Value(infoKey{}).(*question); ok {
		*q = question{c.Lease, asked, j.now()}
	}
	if c.Weight != store.All || c.Limit != store.All || c.Record != nil {
		return
	}
	j.admit(&grant{
		key: c.Key, client: t.client, lease: c.Lease, owner: g.Owner, fair: c.Fair, token: g.Token,
		asked: asked, got: j.now(), confirmed: from, valid: cmp.Or(g.Valid, c.TTL),
	})
}

func (t *tap) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	j := t.journal
	from := j.now()
	j.mu.Lock()
	for _, c := range claims {
		if at, ended := j.ended[c.Lease]; ended && at < from && c.Owner == c.Lease && !j.grants[c.Lease].asks() {
			j.late++
		}
	}
	j.mu.Unlock()
	answers := t.Store.Extend(ctx, claims)
	for i, x := range answers {
		t.note("extend", claims[i], from, store.Grant{}, x.Err)
		j.mu.Lock()
		switch g := j.grants[claims[i].Lease]; {
		case g == nil:
		case x.Err == nil && from >= g.confirmed:
			g.confirmed, g.valid = from, cmp.Or(x.Valid, claims[i].TTL)
		case errors.Is(x.Err, core.ErrLost):
			g.end(j.now(), "the store said that it was lost")
		}
		j.mu.Unlock()
	}
	return answers
}

func (t *tap) Release(ctx context.Context, c store.Claim) error {
	j := t.journal
	from := j.now()
	j.mu.Lock()
	g := j.grants[c.Lease]
	if g != nil {
		g.leaving = true
		g.end(from, "its release had begun")
	}
	j.mu.Unlock()
	err := t.Store.Release(ctx, c)
	t.note("release", c, from, store.Grant{}, err)
	if g == nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil:
		g.released = max(g.released, from)
	case errors.Is(err, core.ErrLost): // the previous attempt released it
		g.released = max(g.released, g.tried)
	case !errors.Is(err, core.ErrUnavailable):
		g.tried = from
	}
	return err
}

func (t *tap) note(op string, c store.Claim, from time.Duration, g store.Grant, err error) {
	what := "unknown"
	switch {
	case err == nil && op == "acquire":
		what = "granted"
	case err == nil:
		what = "done"
	case errors.Is(err, core.ErrBusy):
		what = "busy"
	case errors.Is(err, core.ErrLost):
		what = "lost"
	case errors.Is(err, core.ErrUnavailable):
		what = "unavailable"
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		what = "refused"
	}
	j := t.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[what]++
	if what == "unknown" && op != "extend" {
		j.unsure[c.Lease] = true
	}
	if j.keep {
		ends := time.Duration(0)
		if g.Valid > 0 && g.Valid < c.TTL {
			ends = from + g.Valid
		}
		j.history = append(j.history, call{op, t.client, c.Key, c.Lease, from, j.now(), what, g.Token, ends, c.TTL > 0})
	}
}
