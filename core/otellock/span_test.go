package otellock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/otellock"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	const short = 100 * time.Microsecond
	all, holds := otellock.WithAllAcquires(), otellock.WithHoldSpans()
	for _, c := range []struct {
		name  string
		opts  []otellock.Option
		event core.Event
		want  string // the span, "" for none
	}{
		{"a free key", nil, core.Event{Kind: core.Acquired, Wait: short}, ""},
		{
			"free key with WithAllAcquires", []otellock.Option{all}, core.Event{Kind: core.Acquired, Wait: short},
			"span acquire order 0.0001 lockkit.contended=false lockkit.mode=exclusive lockkit.name=order lockkit.outcome=acquired internal",
		},
		{"one that joins", []otellock.Option{all}, core.Event{Kind: core.Acquired, Wait: time.Second, Reentered: true}, ""},
		{
			"a slow store", nil, core.Event{Kind: core.Acquired, Wait: 2 * time.Millisecond},
			"span acquire order 0.002 lockkit.contended=false lockkit.mode=exclusive lockkit.name=order lockkit.outcome=acquired internal",
		},
		{
			"a key that was taken", nil, core.Event{Kind: core.Acquired, Wait: short, Contended: true},
			"span acquire order 0.0001 lockkit.contended=true lockkit.mode=exclusive lockkit.name=order lockkit.outcome=acquired internal",
		},
		{
			"key stays taken without error", nil,
			core.Event{Kind: core.GaveUp, Wait: short, Contended: true, Err: &core.BusyError{Key: "order:secret", Waiting: 7}},
			"span acquire order 0.0001 lockkit.contended=true lockkit.mode=exclusive lockkit.name=order lockkit.outcome=busy lockkit.waiting=7 internal",
		},
		{
			"a failure", nil, core.Event{Kind: core.GaveUp, Wait: short, Err: core.ErrUnavailable},
			"span acquire order 0.0001 error.type=unavailable lockkit.contended=false lockkit.mode=exclusive lockkit.name=order lockkit.outcome=failed internal Error",
		},
		{"a lease that ends", []otellock.Option{all}, core.Event{Kind: core.Released, Held: time.Second}, ""},
		{
			"lease with WithHoldSpans", []otellock.Option{holds}, core.Event{Kind: core.Released, Held: time.Second},
			"span hold order 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=released internal",
		},
		{
			"a lease that is lost", []otellock.Option{holds}, core.Event{Kind: core.Lost, Held: time.Second, Err: core.ErrLost},
			"span hold order 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=lost internal Error",
		},
		{"an extension", []otellock.Option{all, holds}, core.Event{Kind: core.ExtendFailed, Err: core.ErrUnavailable}, ""},
		{"a call", []otellock.Option{all, holds}, core.Event{Kind: core.Ran, Wait: time.Second, Held: time.Second}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tel, p := observed(t, c.opts...)
			c.event.Name, c.event.Mode = "order", core.ModeExclusive
			tel.Observe(recorded(t.Context()), c.event)
			if got := strings.Join(spans(p), "\n"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			tel.Observe(context.Background(), c.event)
			if got := spans(p); len(got) != 0 {
				t.Errorf("under no parent there is %q", got)
			}
		})
	}
}

func spans(p *provider) []string {
	return slices.DeleteFunc(p.take(), func(line string) bool { return !strings.HasPrefix(line, "span ") })
}
