package sim_test

import (
	"context"
	"errors"
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
	remembers   bool // of a release: an unknown lease is remembered
}

// handingTap is a tap on a store that hands over.
type handingTap struct {
	*tap
	core.Handover
}

// bounded is a store that bounds its calls.
type boundedTap struct {
	*tap
	core.Prompt
}

type boundedHandingTap struct {
	*tap
	core.Handover
	core.Prompt
}

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

// infoKey is the context key of the granted moment that the caller wants to know.
type infoKey struct{}

func (t *tap) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	from := t.journal.now()
	g, err := t.Store.Acquire(ctx, c)
	t.note("acquire", ctx, c, from, g.Token, err)
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
	if at, ok := ctx.Value(infoKey{}).(*time.Duration); ok {
		*at = asked
	}
}

func (t *tap) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	from := t.journal.now()
	t.journal.mu.Lock()
	for _, c := range claims {
		if at, ended := t.journal.ended[c.Owner]; ended && at < from && c.Owner == c.Lease {
			t.journal.late++
		}
	}
	t.journal.mu.Unlock()
	answers := t.Store.Extend(ctx, claims)
	for i, x := range answers {
		t.note("extend", ctx, claims[i], from, 0, x.Err)
	}
	return answers
}

func (t *tap) Release(ctx context.Context, c core.Claim) error {
	from := t.journal.now()
	err := t.Store.Release(ctx, c)
	t.note("release", ctx, c, from, 0, err)
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
	h.tap.note("hand over "+from.Lease, ctx, to, at, g.Token, err)
	if err == nil {
		h.tap.granted(context.Background(), to, at)
	}
	return g, err
}

// note counts an answer.
func (t *tap) note(op string, ctx context.Context, c core.Claim, from time.Duration, token uint64, err error) {
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
	if j.keep {
		j.history = append(j.history, call{op, t.client, c.Key, c.Lease, giver, from, j.now(), what, token, c.TTL > 0})
	}
}
