package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// tap notes what a Locker asks its store.
type tap struct {
	core.Store
	core.Watcher
	journal *journal
	client  int
}

// call is one question to a store, and its answer.
type call struct {
	op          string
	client      int
	key, lease  string
	giver       string // the lease that hands over
	from, until time.Duration
	outcome     string
	token       uint64
	spare       int
	ends        time.Duration // of a grant that is not for the whole TTL
	remembers   bool          // of a release: an unknown lease is remembered
}

// handingTap is a tap on a store that hands over.
type handingTap struct {
	*tap
	handed
}

// bounded is a store that bounds its calls.
type boundedTap struct {
	*tap
	core.Prompt
}

type boundedHandingTap struct {
	*tap
	handed
	core.Prompt
}

var (
	_ core.Handover = handingTap{}
	_ core.Handover = boundedHandingTap{}
)

// listen puts a tap before a store.
func listen(s core.Store, j *journal, client int) core.Store {
	t := &tap{Store: s, journal: j, client: client}
	t.Watcher, _ = s.(core.Watcher)
	h, hands := s.(core.Handover)
	p, bounds := s.(core.Prompt)
	switch {
	case hands && bounds:
		return boundedHandingTap{t, handed{t, h}, p}
	case hands:
		return handingTap{t, handed{t, h}}
	case bounds:
		return boundedTap{t, p}
	}
	return t
}

// infoKey is the context key of the question that the caller wants to know of.
type infoKey struct{}

func (t *tap) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	from := t.journal.now()
	t.journal.mu.Lock()
	t.journal.unsure[c.Lease] = true // it may come late, or twice
	t.journal.mu.Unlock()
	g, err := t.Store.Acquire(ctx, c)
	t.note("acquire", c, from, g, err)
	switch {
	case err == nil:
		t.granted(ctx, c, from)
	case c.Wait:
		// A release may grant it from now on, before it asks again.
		t.journal.mu.Lock()
		t.journal.placed[c.Lease+" "+c.Key] = from
		t.journal.mu.Unlock()
	}
	return g, err
}

// granted notes which question it was that was granted.
func (t *tap) granted(ctx context.Context, c core.Claim, asked time.Duration) {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	if at, known := t.journal.placed[c.Lease+" "+c.Key]; known {
		asked = min(asked, at)
	}
	t.journal.asked[c.Lease+" "+c.Key] = asked
	if q, ok := ctx.Value(infoKey{}).(*question); ok {
		*q = question{c.Lease, asked, t.journal.now()}
	}
}

func (t *tap) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	from := t.journal.now()
	t.journal.mu.Lock()
	for _, c := range claims {
		g := t.journal.grants[c.Lease]
		asks := g != nil && g.spare > 0 && t.journal.pending[c.Lease] > 0 // for a release that wants to know
		if at, ended := t.journal.ended[c.Lease]; ended && at < from && c.Owner == c.Lease && !asks {
			t.journal.late++
		}
	}
	t.journal.mu.Unlock()
	answers := t.Store.Extend(ctx, claims)
	for i, x := range answers {
		t.note("extend", claims[i], from, core.Grant{}, x.Err)
		t.journal.mu.Lock()
		if g := t.journal.grants[claims[i].Lease]; g != nil && x.Err == nil {
			g.confirmed = max(g.confirmed, from)
		}
		t.journal.mu.Unlock()
	}
	return answers
}

func (t *tap) Release(ctx context.Context, c core.Claim) error {
	from := t.journal.now()
	err := t.Store.Release(ctx, c)
	t.note("release", c, from, core.Grant{}, err)
	return err
}

// handed notes what is handed over.
type handed struct {
	tap   *tap
	store core.Handover
}

func (h handed) Handover(ctx context.Context, from, to core.Claim) (core.Grant, error) {
	at := h.tap.journal.now()
	g, err := h.store.Handover(ctx, from, to)
	h.tap.note("hand over "+from.Lease, to, at, g, err)
	if err == nil {
		h.tap.granted(context.Background(), to, at)
		j := h.tap.journal
		j.mu.Lock()
		defer j.mu.Unlock()
		got := &grant{lease: to.Lease, token: g.Token, spare: g.Spare, ttl: to.TTL, got: j.now(), confirmed: at}
		j.grants[to.Lease], j.handed[fmt.Sprint(h.tap.client, " ", to.Key)] = got, got
	}
	return g, err
}

// note counts an answer.
func (t *tap) note(op string, c core.Claim, from time.Duration, g core.Grant, err error) {
	what := "unknown"
	op, giver, _ := strings.Cut(op, " over ")
	switch {
	case err == nil && op == "acquire", err == nil && op == "hand":
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
		j.unsure[c.Lease], j.unsure[giver] = true, true
	}
	if j.keep {
		ends := time.Duration(0)
		if g.Valid > 0 && g.Valid < c.TTL {
			ends = from + g.Valid
		}
		j.history = append(j.history, call{op, t.client, c.Key, c.Lease, giver, from, j.now(), what, g.Token, g.Spare, ends, c.TTL > 0})
	}
}
