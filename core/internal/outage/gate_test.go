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

// server is what a gate is before.
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

// sim runs f with a gate whose probes go as answer says.
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

// enter fails the test if the gate takes longer than it may, or says why it is closed
// with other words than the connection's.
func (s *server) enter(t *testing.T) error {
	t.Helper()
	start := time.Now()
	err := s.Enter(t.Context())
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("it took %v", took)
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

	sim(t, "a server of which nothing is known is not probed", refuses, func(t *testing.T, s *server) {
		if err := s.enter(t); err != nil || s.probes.Load() != 0 {
			t.Errorf("got %v after %d probes", err, s.probes.Load())
		}
	})
	sim(t, "a call that failed closes the gate, and the error says what the connection said", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		err := s.enter(t)
		if !errors.Is(err, errRefused) || !strings.Contains(fmt.Sprint(err), "connection refused") {
			t.Errorf("got %v", err)
		}
	})
	sim(t, "a hundred callers share a probe that hangs, and none waits for it", hangs, func(t *testing.T, s *server) {
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
	sim(t, "probes that are refused come one after the other, with a pause", refuses, func(t *testing.T, s *server) {
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
	sim(t, "a probe that is answered opens the gate to all waiters", func(context.Context) error {
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
	sim(t, "anything that is answered opens the gate, also while a probe hangs", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		time.AfterFunc(10*time.Millisecond, s.Answered)
		if err := s.enter(t); err != nil {
			t.Error(err)
		}
		// The probe hangs on: it is the only one, and its end is no news.
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
	sim(t, "a call that failed says nothing if something was answered since it began", refuses, func(t *testing.T, s *server) {
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
	sim(t, "a call without an answer is a reason to probe, and closes nothing by itself", answers, func(t *testing.T, s *server) {
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
	sim(t, "a call without an answer closes the gate if the probe fails too", refuses, func(t *testing.T, s *server) {
		_ = s.Doubt(t.Context(), s.Begin())
		synctest.Wait()
		if s.enter(t) == nil {
			t.Error("the gate is open")
		}
	})
	sim(t, "callers that leave all the time do not have it probed all the time", answers, func(t *testing.T, s *server) {
		for range 1000 {
			_ = s.Doubt(t.Context(), s.Begin())
			time.Sleep(3 * time.Millisecond)
		}
		if n := s.probes.Load(); n < 2 || n > 4 {
			t.Errorf("%d probes in 3 s", n)
		}
	})
	sim(t, "a caller whose time is over is told what the connection says", refuses, func(t *testing.T, s *server) {
		late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-late.Done()
		if err := s.Doubt(late, s.Begin()); !errors.Is(err, errRefused) {
			t.Errorf("got %v", err)
		}
	})
	sim(t, "a caller whose time is over does not wait for a probe that hangs, nor does one that has left", hangs, func(t *testing.T, s *server) {
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
	sim(t, "a caller that leaves is told so, and changes nothing", hangs, func(t *testing.T, s *server) {
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
	sim(t, "the end of a probe's time is not taken for that of a caller's context", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), fmt.Errorf("dial: %w", context.DeadlineExceeded))
		if err := s.enter(t); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "dial: context deadline") {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := s.enter(t); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no answer within 2s") {
			t.Errorf("got %v", err)
		}
	})
	for name, dies := range map[string]func(){"panics": func() { panic("in the client") }, "ends its goroutine": runtime.Goexit} {
		first := true
		sim(t, "after a probe that "+name+" there is another one", func(context.Context) error {
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
	sim(t, "Close ends the probe, and opens the gate for good", hangs, func(t *testing.T, s *server) {
		s.Failed(s.Begin(), errRefused)
		_ = s.enter(t)
		start := time.Now()
		s.Close()
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %v", took)
		}
		s.Failed(s.Begin(), errRefused)
		_ = s.Doubt(t.Context(), s.Begin())
		if err := s.enter(t); err != nil || s.probes.Load() != 1 {
			t.Errorf("got %v after %d probes", err, s.probes.Load())
		}
	})
}

// What is answered at the same moment as a call fails opens the gate in the end.
func TestAnsweredMeanwhile(t *testing.T) {
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
