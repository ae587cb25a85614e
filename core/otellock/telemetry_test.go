package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/otellock"
)

var errOdd = errors.New("something else")

// written has events, each with the lines that must be written for it.
var written = map[core.Kind][]struct {
	event core.Event
	want  []string
}{
	core.Acquired: {
		{
			core.Event{Mode: core.ModeExclusive, Wait: time.Second},
			[]string{"lockkit.acquire.duration 1 lockkit.contended=false lockkit.mode=exclusive lockkit.name=order lockkit.outcome=acquired"},
		},
		{
			core.Event{Mode: core.ModeShared, Contended: true, Wait: time.Millisecond},
			[]string{"lockkit.acquire.duration 0.001 lockkit.contended=true lockkit.mode=shared lockkit.name=order lockkit.outcome=acquired"},
		},
		{core.Event{Mode: core.ModeExclusive, Reentered: true}, nil},
	},
	core.GaveUp: {
		{
			core.Event{Mode: core.ModePermits, Wait: time.Second, Contended: true, Err: &core.BusyError{Name: "order"}},
			[]string{"lockkit.acquire.duration 1 lockkit.contended=true lockkit.mode=permits lockkit.name=order lockkit.outcome=busy"},
		},
		{
			core.Event{Mode: core.ModeRun, Wait: time.Second, Err: fmt.Errorf("%w", core.ErrUnsupported)},
			[]string{"lockkit.acquire.duration 1 error.type=unsupported lockkit.contended=false lockkit.mode=run lockkit.name=order lockkit.outcome=failed"},
		},
		{core.Event{Reentered: true, Err: core.ErrLost}, nil},
	},
	core.Busy: {{core.Event{Mode: core.ModeExclusive, Contended: true}, nil}},
	core.Released: {
		{core.Event{Mode: core.ModeExclusive, Held: time.Second}, []string{"lockkit.hold.duration 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=released"}},
		{
			core.Event{Mode: core.ModeExclusive, Held: time.Second, Err: core.ErrUnavailable},
			[]string{"lockkit.hold.duration 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=unconfirmed"},
		},
		{
			core.Event{Mode: core.ModeExclusive, Held: time.Second, Err: core.ErrLost},
			[]string{"lockkit.hold.duration 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=lost", "lockkit.losses 1 lockkit.name=order"},
		},
	},
	core.Lost: {{
		core.Event{Mode: core.ModeExclusive, Held: time.Second, Err: core.ErrLost},
		[]string{"lockkit.hold.duration 1 lockkit.mode=exclusive lockkit.name=order lockkit.outcome=lost", "lockkit.losses 1 lockkit.name=order"},
	}},
	core.Extended:     {{core.Event{}, []string{"lockkit.extensions 1 lockkit.name=order"}}},
	core.ExtendFailed: {{core.Event{Err: core.ErrUnavailable}, []string{"lockkit.extensions 1 error.type=unavailable lockkit.name=order"}}},
	core.PassedOn:     {{core.Event{}, []string{"lockkit.passes 1 lockkit.name=order"}}},
	core.CleanedUp: {
		{core.Event{}, []string{"lockkit.cleanups 1 lockkit.name=order"}},
		{core.Event{Err: errOdd}, []string{"lockkit.cleanups 1 error.type=_OTHER lockkit.name=order"}},
	},
	core.Overrun: {{core.Event{Held: time.Second}, []string{"lockkit.overruns 1 lockkit.name=order"}}},
	core.Ran: {
		{
			core.Event{Mode: core.ModeRun, Attempt: 1, Wait: time.Second, Held: 2 * time.Second},
			[]string{"lockkit.call.duration 3 lockkit.name=order lockkit.outcome=ran lockkit.repeated=false"},
		},
		{
			core.Event{Mode: core.ModeRun, Attempt: 2, Held: 2 * time.Second, Err: errOdd},
			[]string{"lockkit.call.duration 2 lockkit.name=order lockkit.outcome=failed lockkit.repeated=true"},
		},
	},
	core.Replayed: {{
		core.Event{Mode: core.ModeRun, Attempt: 1, Wait: time.Second, Contended: true},
		[]string{
			"lockkit.acquire.duration 1 lockkit.contended=true lockkit.mode=run lockkit.name=order lockkit.outcome=answered",
			"lockkit.call.duration 1 lockkit.name=order lockkit.outcome=replayed lockkit.repeated=false",
		},
	}},
	core.Refused: {
		{core.Event{Err: once.ErrInProgress}, []string{"lockkit.call.duration 0 lockkit.name=order lockkit.outcome=in_progress lockkit.repeated=false"}},
		{core.Event{Err: once.ErrMismatch}, []string{"lockkit.call.duration 0 lockkit.name=order lockkit.outcome=mismatch lockkit.repeated=false"}},
		{core.Event{Err: once.ErrIndeterminate, Attempt: 2}, []string{"lockkit.call.duration 0 lockkit.name=order lockkit.outcome=indeterminate lockkit.repeated=true"}},
		{core.Event{Err: once.ErrUnreplayable, Mode: core.ModeRun}, []string{
			"lockkit.acquire.duration 0 lockkit.contended=false lockkit.mode=run lockkit.name=order lockkit.outcome=answered",
			"lockkit.call.duration 0 lockkit.name=order lockkit.outcome=unreplayable lockkit.repeated=false",
		}},
		{core.Event{Err: core.ErrUnavailable}, []string{"lockkit.call.duration 0 lockkit.name=order lockkit.outcome=failed lockkit.repeated=false"}},
	},
	core.Misused: {{core.Event{Err: errOdd}, []string{"lockkit.misuses 1 lockkit.name=order"}}},

	core.NodeOut:     {{core.Event{Err: errOdd}, nil}},
	core.NodeBack:    {{core.Event{}, nil}},
	core.RanUnlocked: {{core.Event{Err: core.ErrUnavailable}, nil}},
	core.Revoked:     {{core.Event{}, nil}}, // the holder's process counts the loss
}

func TestMeasurements(t *testing.T) {
	t.Parallel()
	for k := core.Kind(1); k.String() != "unknown"; k++ {
		if written[k] == nil {
			t.Errorf("%s: not tried", k)
		}
		for _, c := range written[k] {
			t.Run(fmt.Sprintf("%s %v", k, c.event.Err), func(t *testing.T) {
				t.Parallel()
				tel, p := observed(t)
				// This event makes the name known.
				tel.Observe(t.Context(), core.Event{Kind: core.Extended, Name: "order"})
				p.take()
				c.event.Kind, c.event.Name = k, "order"
				tel.Observe(t.Context(), c.event)
				p.ask(t)
				if got := p.take(); !slices.Equal(got, c.want) {
					t.Errorf("it is written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		}
	}

	t.Run("unknown event", func(t *testing.T) {
		t.Parallel()
		tel, p := observed(t)
		tel.Observe(t.Context(), core.Event{Kind: 99, Name: "order"})
		if got := p.take(); len(got) != 0 {
			t.Errorf("got %q", got)
		}
	})

	t.Run("unknown mode", func(t *testing.T) {
		t.Parallel()
		tel, p := observed(t)
		tel.Observe(t.Context(), core.Event{Kind: core.Lost, Name: "order", Mode: 99})
		if got := strings.Join(p.take(), "\n"); !strings.Contains(got, "lockkit.mode=unknown") {
			t.Errorf("got %s", got)
		}
	})
}

func TestAcquire_Outcomes(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancelCause(context.Background())
	cancel(core.ErrLost) // as if the outer lease were lost
	late, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	ended := func(ctx context.Context, sentinel error) error {
		return fmt.Errorf("acquire order: %w: %w (%w)", sentinel, context.Cause(ctx), ctx.Err())
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
	}{
		{"a key that stayed taken", context.Background(), &core.BusyError{}, "busy"},
		{"caller that left while waiting", over, ended(over, core.ErrBusy), "canceled"},
		{"caller that left before the answer", over, ended(over, core.ErrUnavailable), "canceled"},
		{"deadline passed while waiting", late, ended(late, core.ErrBusy), "canceled"},
		{"deadline passed before the answer", late, ended(late, core.ErrUnavailable), "failed unavailable"},
		{"store with its own time-out", context.Background(), fmt.Errorf("%w: %w", core.ErrUnavailable, context.DeadlineExceeded), "failed unavailable"},
		{"store that failed before the cancel", over, core.ErrUnavailable, "failed unavailable"},
		{"lease lost before it was granted", context.Background(), core.ErrLost, "failed lost"},
		{"a Locker that was closed", context.Background(), fmt.Errorf("acquire order: %w", core.ErrClosed), "failed closed"},
		{"unsupported claim", context.Background(), core.ErrUnsupported, "failed unsupported"},
		{"a claim that is not allowed", context.Background(), core.ErrInvalid, "failed invalid"},
		{"anything else", context.Background(), errOdd, "failed _OTHER"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tel, p := observed(t)
			tel.Observe(c.ctx, core.Event{Kind: core.GaveUp, Name: "order", Mode: core.ModeExclusive, Err: c.err})
			outcome, why, failed := strings.Cut(c.want, " ")
			want := "lockkit.acquire.duration 0 lockkit.contended=false lockkit.mode=exclusive lockkit.name=order lockkit.outcome=" + outcome
			if failed {
				want = strings.Replace(want, "0 ", "0 error.type="+why+" ", 1)
			}
			if got := p.take(); got[0] != want {
				t.Errorf("got %q, want %s", got, want)
			}
		})
	}
}

func TestLosses_BeginWithZero(t *testing.T) {
	t.Parallel()
	tel, p := observed(t)
	for range 2 {
		tel.Observe(t.Context(), core.Event{Kind: core.Acquired, Name: "order", Mode: core.ModeExclusive})
	}
	zero := 0
	for _, line := range p.take() {
		if line == "lockkit.losses 0 lockkit.name=order" {
			zero++
		}
	}
	if zero != 1 {
		t.Errorf("a name that is seen twice has its zero %d times", zero)
	}
	tel.Observe(t.Context(), core.Event{Kind: core.NodeOut, Name: "node-0"})
	if got := p.take(); len(got) != 0 {
		t.Errorf("a node is no lock, and has %q", got)
	}
}

// TestNames_Capped is not parallel, because it changes the error handler of the whole
// process.
func TestNames_Capped(t *testing.T) {
	var reported atomic.Int32
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if strings.Contains(err.Error(), "name-") {
			t.Errorf("the error has a name: %v", err)
		}
		reported.Add(1)
	}))
	defer otel.SetErrorHandler(before)

	for _, most := range []int{1, 7, 100} {
		reported.Store(0)
		var opts []otellock.Option
		if most != 100 {
			opts = append(opts, otellock.MaxNames(most))
		}
		tel, p := observed(t, opts...)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := range most {
					tel.Observe(t.Context(), core.Event{Kind: core.Overrun, Name: fmt.Sprint("name-", i)})
				}
			})
		}
		all.Wait()
		if n := reported.Load(); n != 0 {
			t.Errorf("%d names of %d are too many", most, most)
		}
		for range 8 {
			all.Go(func() {
				for i := range 3 * most {
					tel.Observe(t.Context(), core.Event{Kind: core.Overrun, Name: fmt.Sprint("name-", i)})
				}
			})
		}
		all.Wait()
		names, overruns, misuses := map[string]bool{}, 0, 0
		for _, line := range p.take() {
			what, name, _ := strings.Cut(line, " lockkit.name=")
			switch what {
			case "lockkit.overruns 1":
				overruns++
			case "lockkit.misuses 1":
				misuses++
				if name != "_OTHER" {
					t.Errorf("the misuse is that of %s", name)
				}
			}
			names[name] = true
		}
		if len(names) != most+1 || !names["_OTHER"] {
			t.Errorf("%d names have series, want %d and _OTHER", len(names), most)
		}
		if overruns != 32*most {
			t.Errorf("%d overruns were counted of %d", overruns, 32*most)
		}
		if misuses != 1 || reported.Load() != 1 {
			t.Errorf("it was counted %d times and reported %d times, want once each", misuses, reported.Load())
		}
	}
}

func TestConstantAttributes(t *testing.T) {
	t.Parallel()
	tel, p := observed(t, otellock.WithAttributes(attribute.String("shard", "7"), attribute.String("lockkit.name", "mine")))
	tel.Observe(recorded(t.Context()), core.Event{Kind: core.GaveUp, Name: "order", Err: core.ErrUnavailable})
	lines := p.take()
	if len(lines) != 3 {
		t.Fatalf("got %q", lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "lockkit.name=order") || !strings.Contains(line, "shard=7") {
			t.Errorf("got %s", line)
		}
	}
}

func TestMeasurementsAllocateNothing(t *testing.T) { // not parallel: counts allocations
	tel, err := otellock.New(otellock.WithMeterProvider(noop.NewMeterProvider()))
	if err != nil {
		t.Fatal(err)
	}
	for k, cases := range written {
		for _, c := range cases {
			c.event.Kind, c.event.Name = k, "order"
			if n := testing.AllocsPerRun(100, func() { tel.Observe(context.Background(), c.event) }); n != 0 {
				t.Errorf("%s %v: %v allocations", k, c.event.Err, n)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]otellock.Option{
		"nil":                        nil,
		"no names":                   otellock.MaxNames(0),
		"fewer than no names":        otellock.MaxNames(-1),
		"an attribute without a key": otellock.WithAttributes(attribute.String("", "x")),
	} {
		if tel, err := otellock.New(o); tel != nil || !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, %v", name, tel, err)
		}
	}
	if _, err := otellock.New(otellock.WithMeterProvider(refusing{})); !errors.Is(err, errOdd) {
		t.Errorf("a provider that makes no instruments: %v", err)
	}
	if _, err := otellock.New(otellock.WithMeterProvider(nil), otellock.WithTracerProvider(nil)); err != nil {
		t.Errorf("nil is the global one: %v", err)
	}
}
