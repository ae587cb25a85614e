package outage_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/outage"
)

var errRefused = errors.New("connection refused")

type server struct {
	outage.Gate
	probes, running, most atomic.Int64
	answer                func(ctx context.Context) error
}

func (s *server) probe(ctx context.Context) error {
	s.probes.Add(1)
	if n := s.running.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.running.Add(-1)
	return s.answer(ctx)
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// sim runs f with a gate. The gate's probes return the result of answer.
func sim(t *testing.T, name string, answer func(ctx context.Context) error, f func(t *testing.T, s *server)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &server{answer: answer}
			s.Watch(2*time.Second, s.probe)
			f(t, s)
			s.Close()
		})
	})
}

// enter calls Enter. It fails the test if Enter takes longer than 100 ms, or returns an
// error that is not Known.
func (s *server) enter(t *testing.T) error {
	t.Helper()
	start := time.Now()
	err := s.Enter(t.Context())
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("got an answer after %v", took)
	}
	if err != nil && !outage.Known(err) {
		t.Errorf("got %v, which does not say that the server is down", err)
	}
	return err
}

func TestGate(t *testing.T) {
	t.Parallel()
	refuses := func(context.Context) error { return errRefused }
	answers := func(context.Context) error { return nil }

	// A server about which nothing is known is not probed.
	sim(t, "unknown server", refuses, func(t *testing.T, s *server) {
		if err := s.enter(t); err != nil || s.probes.Load() != 0 {
			t.Errorf("got %v after %d probes", err, s.probes.Load())
		}
	})
	// A failed call closes the gate, and Enter returns the connection's error.
	sim(t, "failed call", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		err := s.enter(t)
		if !errors.Is(err, errRefused) || !strings.Contains(fmt.Sprint(err), "connection refused") {
			t.Errorf("got %v", err)
		}
	})
	// A hundred callers share a hung probe, and none waits for its end.
	sim(t, "hung probe is shared", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		for range 5 {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if s.enter(t) == nil {
						t.Error("a call got in")
					}
				})
			}
			all.Wait()
		}
		if n := s.probes.Load(); n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
	})
	// Refused probes run one after the other, with a pause between them.
	sim(t, "pause between probes", refuses, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for end := time.Now().Add(time.Second); time.Now().Before(end); {
					if s.enter(t) == nil {
						t.Error("a call got in")
						return
					}
				}
			})
		}
		all.Wait()
		if n, most := s.probes.Load(), s.most.Load(); n < 40 || n > 52 || most != 1 {
			t.Errorf("%d probes in a second, %d at once", n, most)
		}
	})
	// An answered probe opens the gate for all waiting callers.
	sim(t, "answered probe", func(context.Context) error {
		time.Sleep(30 * time.Millisecond)
		return nil
	}, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := s.enter(t); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.probes.Load(); n != 1 || s.Why() != nil {
			t.Errorf("%d probes, and it says %v", n, s.Why())
		}
	})
	// Any answer opens the gate, even while a probe hangs.
	sim(t, "answer during a probe", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		time.AfterFunc(10*time.Millisecond, s.Answered)
		if err := s.enter(t); err != nil {
			t.Error(err)
		}
		// The probe still hangs. It is the only one, and its end changes nothing.
		s.Failed(s.Begin(), errRefused)
		if s.enter(t) == nil || s.probes.Load() != 1 {
			t.Errorf("%d probes", s.probes.Load())
		}
		s.Answered()
		time.Sleep(3 * time.Second)
		if err := s.enter(t); err != nil {
			t.Error(err)
		}
	})
	// A failed call changes nothing if the server has answered since the call began.
	sim(t, "failure before an answer", refuses, func(t *testing.T, s *server) {
		begun := s.Begin()
		s.Answered()
		s.Failed(begun, errRefused)
		if err := s.Doubt(t.Context(), begun); err != nil {
			t.Error(err)
		}
		if err := s.enter(t); err != nil || s.probes.Load() != 0 {
			t.Errorf("got %v after %d probes", err, s.probes.Load())
		}
	})
	// A call without an answer starts a probe, but does not close the gate itself.
	sim(t, "call without an answer", answers, func(t *testing.T, s *server) {
		if err := s.Doubt(t.Context(), s.Begin()); err != nil {
			t.Error(err)
		}
		if err := s.enter(t); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.probes.Load(); n != 1 {
			t.Errorf("%d probes", n)
		}
	})
	// An unanswered call and a failed probe close the gate.
	sim(t, "unanswered call and failed probe", refuses, func(t *testing.T, s *server) {
		_ = s.Doubt(t.Context(), s.Begin())
		synctest.Wait()
		if s.enter(t) == nil {
			t.Error("the gate is open")
		}
	})
	// Callers that leave all the time do not cause a probe each time.
	sim(t, "callers that leave", answers, func(t *testing.T, s *server) {
		for range 1000 {
			_ = s.Doubt(t.Context(), s.Begin())
			time.Sleep(3 * time.Millisecond)
		}
		if n := s.probes.Load(); n < 2 || n > 4 {
			t.Errorf("%d probes in 3 s", n)
		}
	})
	// A caller whose deadline has passed gets the error of the connection.
	sim(t, "expired caller", refuses, func(t *testing.T, s *server) {
		late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-late.Done()
		if err := s.Doubt(late, s.Begin()); !errors.Is(err, errRefused) {
			t.Errorf("got %v", err)
		}
	})
	// Expired and canceled callers do not wait for a hung probe.
	sim(t, "expired and canceled callers", hangs, func(t *testing.T, s *server) {
		late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-late.Done()
		gone, leave := context.WithTimeout(t.Context(), time.Hour)
		leave()
		for ctx, most := range map[context.Context]time.Duration{late: 10 * time.Millisecond, gone: 0} {
			start := time.Now()
			if err := s.Doubt(ctx, s.Begin()); err != nil || time.Since(start) != most {
				t.Errorf("got %v after %v", err, time.Since(start))
			}
		}
		if n := s.probes.Load(); n != 1 {
			t.Errorf("%d probes", n)
		}
	})
	// A canceled caller gets its own error, and changes nothing.
	sim(t, "canceled caller", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		ctx, cancel := context.WithCancelCause(t.Context())
		own := errors.New("own")
		cancel(own)
		if err := s.Enter(ctx); !errors.Is(err, own) || !outage.Known(err) {
			t.Errorf("got %v", err)
		}
		if s.Why() == nil {
			t.Error("the gate is open")
		}
	})
	// The error does not match context.DeadlineExceeded, because callers could mistake
	// a time-out of the probe for the end of their own context.
	sim(t, "end of a probe", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), fmt.Errorf("dial: %w", context.DeadlineExceeded))
		if err := s.enter(t); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "dial: context deadline") {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := s.enter(t); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no answer within 2 s") {
			t.Errorf("got %v", err)
		}
	})
	for name, dies := range map[string]func(){"panics": func() { panic("in the client") }, "ends its goroutine": runtime.Goexit} {
		first := true
		sim(t, "probe "+name, func(context.Context) error {
			if first {
				first = false
				dies()
			}
			return nil
		}, func(t *testing.T, s *server) {
			s.Failed(s.Begin(), errRefused)
			if s.enter(t) == nil {
				t.Error("the gate is open")
			}
			if err := s.enter(t); err != nil {
				t.Error(err)
			}
		})
	}
	// Close ends the probe, and opens the gate permanently.
	sim(t, "Close", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		_ = s.enter(t)
		start := time.Now()
		s.Close()
		if took := time.Since(start); took > 0 {
			t.Errorf("got Close to return after %v", took)
		}
		s.Failed(s.Begin(), errRefused)
		_ = s.Doubt(t.Context(), s.Begin())
		if err := s.enter(t); err != nil || s.probes.Load() != 1 {
			t.Errorf("got %v after %d probes", err, s.probes.Load())
		}
	})
}

// TestGate_AnsweredMeanwhile makes a call fail and an answer arrive at the same moment.
// The gate is open afterwards.
func TestGate_AnsweredMeanwhile(t *testing.T) {
	t.Parallel()
	for range 10000 {
		var g outage.Gate
		g.Watch(time.Second, hangs)
		begun := g.Begin()
		var both sync.WaitGroup
		both.Go(func() { g.Failed(begun, errRefused) })
		both.Go(g.Answered)
		both.Wait()
		if g.Why() != nil {
			t.Fatal("an answer was missed")
		}
	}
}

type verdict bool

func (verdict) Error() string { return "verdict" }

func (v verdict) Down() bool { return bool(v) }

func TestKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errRefused, false},
		{verdict(true), true},
		{fmt.Errorf("wrapped: %w", verdict(true)), true},
		{errors.Join(errRefused, fmt.Errorf("wrapped: %w", verdict(true))), true},
		{errors.Join(errRefused, verdict(false)), false},
	} {
		if got := outage.Known(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}
