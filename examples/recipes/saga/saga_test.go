package saga_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/recipes/saga"
)

// TestRun_TakenUpLate makes a saga fail. Another process resumes it days later, as
// after an operator has mended the carrier's account. No done step is repeated.
func TestRun_TakenUpLate(t *testing.T) {
	for _, pause := range []time.Duration{2 * 24 * time.Hour, 60 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			mem, did := memstore.New(), []string{}
			broken := errors.New("the carrier is closed")
			run := func(shipped error) error {
				locks, err := core.New(mem)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locks.Close(t.Context()) }()
				runs, err := once.New(locks)
				if err != nil {
					t.Fatal(err)
				}
				step := func(name string, err error) saga.Step {
					return saga.Step{Name: name, Do: func(context.Context) error { did = append(did, name); return err }}
				}
				return saga.Run(t.Context(), runs, "parcel", "order-42", []saga.Step{step("charge", nil), step("ship", shipped)})
			}
			if err := run(broken); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
			time.Sleep(pause)
			if err := run(nil); err != nil {
				t.Error(err)
			}
			if want := []string{"charge", "ship", "ship"}; !slices.Equal(did, want) {
				t.Errorf("after %v: did %q, want %q", pause, did, want)
			}
		})
	}
}

// TestRun_Names checks that sagas of two kinds with one ID, and steps with one name, are
// not taken for each other.
func TestRun_Names(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	did := 0
	charge := saga.Step{Name: "charge", Do: func(context.Context) error { did++; return nil }}
	for _, kind := range []string{"order", "subscription"} {
		if err := saga.Run(t.Context(), runs, kind, "42", []saga.Step{charge}); err != nil {
			t.Error(err)
		}
	}
	if did != 2 {
		t.Errorf("charged %d times, want 2", did)
	}
	for _, err := range []error{
		saga.Run(t.Context(), runs, "order", "43", []saga.Step{charge, charge}),
		saga.Run(t.Context(), runs, "", "43", []saga.Step{charge}),
	} {
		if !errors.Is(err, core.ErrInvalid) || did != 2 {
			t.Errorf("got %v after %d charges, want %v", err, did, core.ErrInvalid)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ship    []error // the errors of the first tries to ship
		refund  []error // the errors of the first tries to refund
		want    []string
		refused bool
		runs    int
	}{
		"all steps done":           {want: []string{"reserve", "charge", "ship"}, runs: 1},
		"a crash before the last":  {ship: []error{errors.New("crash")}, want: []string{"reserve", "charge", "ship", "ship"}, runs: 2},
		"last step refused":        {ship: []error{saga.ErrRefused}, want: []string{"reserve", "charge", "ship", "refund", "unreserve"}, refused: true, runs: 1},
		"a crash while taken back": {ship: []error{saga.ErrRefused}, refund: []error{errors.New("crash")}, want: []string{"reserve", "charge", "ship", "refund", "refund", "unreserve"}, refused: true, runs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var did []string
			next := func(what string, errs *[]error) func(context.Context) error {
				return func(context.Context) (err error) {
					if did = append(did, what); errs != nil && len(*errs) > 0 {
						err, *errs = (*errs)[0], (*errs)[1:]
					}
					return err
				}
			}
			steps := []saga.Step{
				{"reserve", next("reserve", nil), next("unreserve", nil)},
				{"charge", next("charge", nil), next("refund", &c.refund)},
				{"ship", next("ship", &c.ship), next("unship", nil)},
			}
			mem := memstore.New()
			for run := 1; run <= c.runs+1; run++ { // the last run is not needed and does nothing
				locks, err := core.New(mem) // as in a new process
				if err != nil {
					t.Fatal(err)
				}
				runs, err := once.New(locks)
				if err != nil {
					t.Fatal(err)
				}
				err = saga.Run(t.Context(), runs, "parcel", "order-42", steps)
				if over := run >= c.runs; over && errors.Is(err, saga.ErrRefused) != c.refused || !over && err == nil {
					t.Errorf("run %d: got %v", run, err)
				}
			}
			if !slices.Equal(did, c.want) {
				t.Errorf("did %q, want %q", did, c.want)
			}
		})
	}
}
