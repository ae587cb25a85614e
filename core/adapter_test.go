package core_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	plain, err := core.New(memStore())
	if err != nil {
		t.Fatal(err)
	}
	bounded, err := core.New(memStore(), core.WithDefaults(core.TTL(time.Minute), core.MaxHold(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		locker       *core.Locker
		opts         []core.AcquireOption
		ttl, maxHold time.Duration
	}{
		"without options":        {plain, nil, 30 * time.Second, 0},
		"defaults of the Locker": {bounded, nil, time.Minute, time.Hour},
		"options after defaults": {bounded, []core.AcquireOption{core.TTL(time.Second)}, time.Second, time.Hour},
		"option not allowed":     {plain, []core.AcquireOption{core.TTL(0)}, 0, 0},
		"MaxHold not positive":   {plain, []core.AcquireOption{core.MaxHold(0)}, 0, 0},
	} {
		ttl, maxHold, err := adapter.Limits(c.locker, c.opts...)
		if ttl != c.ttl || maxHold != c.maxHold || (err == nil) != (c.ttl > 0) || err != nil && !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, %v, %v", name, ttl, maxHold, err)
		}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := core.New(memStore(), core.WithObserver(core.SlogObserver(slog.New(slog.NewTextHandler(&out, nil)))))
	if err != nil {
		t.Fatal(err)
	}
	adapter.Observe(t.Context(), l, core.Event{Kind: core.Misused, Name: "order", Err: errors.New("no glue")})
	if s := out.String(); !strings.Contains(s, `level=WARN msg="lock misused" lock=order error="no glue"`) {
		t.Errorf("logged %q", s)
	}
}
