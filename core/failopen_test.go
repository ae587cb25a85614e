package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

func TestFailOpen(t *testing.T) {
	t.Parallel()
	var events []core.Event
	l, err := core.New(memStore(), core.WithObserver(observerFunc(func(_ context.Context, e core.Event) { events = append(events, e) })))
	if err != nil {
		t.Fatal(err)
	}
	down := fmt.Errorf("dial: %w", core.ErrUnavailable)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		open bool
	}{
		{t.Context(), down, true},
		{ended, down, false},
		{t.Context(), nil, false},
		{t.Context(), &core.BusyError{Name: "order"}, false},
		{t.Context(), core.ErrLost, false},
		{t.Context(), core.ErrClosed, false},
		{t.Context(), core.ErrInvalid, false},
		{t.Context(), core.ErrUnsupported, false},
		{t.Context(), errors.New("what else"), false},
		{t.Context(), errors.Join(down, core.ErrBusy), false},
		{t.Context(), errors.Join(down, core.ErrLost), false},
		{t.Context(), errors.Join(down, core.ErrClosed), false},
	} {
		events = nil
		ctx, open := adapter.FailOpen(c.ctx, l, "order", c.err)
		if open != c.open || core.Unlocked(ctx) != c.open || core.Unlocked(c.ctx) {
			t.Errorf("%v: open is %v", c.err, open)
		}
		if notified := len(events) == 1 && events[0].Kind == core.RanUnlocked && events[0].Name == "order" && events[0].Err == c.err; notified != c.open || len(events) > 1 {
			t.Errorf("%v: got events %v", c.err, events)
		}
	}
}
