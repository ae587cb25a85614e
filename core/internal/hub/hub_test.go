package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/hub"
)

var (
	errLate   = errors.New("no answer")
	errBroken = errors.New("broken")
)

type server struct {
	*hub.Hub[int]
	opened []*hub.Listener[int]
	silent bool // new connections do not become live
}

func (s *server) listen(ctx context.Context, l *hub.Listener[int]) error {
	s.opened = append(s.opened, l)
	if !s.silent {
		l.Live()
	}
	<-ctx.Done()
	return ctx.Err()
}

func sim(t *testing.T, name string, f func(t *testing.T, s *server)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			s.Hub = hub.New(s.listen)
			defer s.Close(time.Second)
			f(t, s)
		})
	})
}

func (s *server) watch(t *testing.T, ctx context.Context, of string) <-chan struct{} {
	t.Helper()
	ch, err := s.Watch(ctx, of, time.Second, errLate)
	if err != nil {
		t.Fatalf("watch: got %v", err)
	}
	return ch
}

func state(ch <-chan struct{}) string {
	select {
	case _, ok := <-ch:
		if ok {
			return "woken"
		}
		return "closed"
	default:
		return "quiet"
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestHub(t *testing.T) {
	t.Parallel()
	sim(t, "one connection for all", func(t *testing.T, s *server) {
		a, b, other := s.watch(t, t.Context(), "a"), s.watch(t, t.Context(), "a"), s.watch(t, t.Context(), "other")
		if len(s.opened) != 1 {
			t.Fatalf("got %d connections, want 1", len(s.opened))
		}
		seen := 0
		for range 2 { // nobody waits for the second wake-up
			s.opened[0].Wake("a", func(n *int) { seen++; *n = seen })
		}
		s.opened[0].Wake("nobody", nil)
		want(t, "a", state(a), "woken")
		want(t, "a again", state(a), "quiet")
		want(t, "b", state(b), "woken")
		want(t, "other", state(other), "quiet")
		sum := 0
		if !s.Each("a", func(n *int) { sum += *n }) || sum != 3+4 {
			t.Errorf("data: got %d, want 7", sum)
		}
	})
	sim(t, "a watch leaves", func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := s.watch(t, ctx, "a"), s.watch(t, t.Context(), "a")
		cancel()
		synctest.Wait()
		s.opened[0].Wake("a", nil)
		want(t, "the one that left", state(gone), "quiet")
		want(t, "the other", state(stays), "woken")
	})
	sim(t, "unused after a minute", func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		s.watch(t, ctx, "a")
		time.Sleep(time.Hour)
		if s.opened[0].Unused() {
			t.Error("unused, with a watch")
		}
		cancel()
		time.Sleep(59 * time.Second)
		if s.opened[0].Unused() {
			t.Error("unused after 59 seconds")
		}
		time.Sleep(2 * time.Second)
		if !s.opened[0].Unused() || s.Each("a", func(*int) {}) {
			t.Error("used after 61 seconds")
		}
	})
	sim(t, "a connection breaks", func(t *testing.T, s *server) {
		ch := s.watch(t, t.Context(), "a")
		s.End(errBroken)
		want(t, "the watch", state(ch), "closed")
		next := s.watch(t, t.Context(), "a")
		s.opened[0].End(errBroken)
		want(t, "the watch of the next one", state(next), "quiet")
		if len(s.opened) != 2 {
			t.Errorf("got %d connections, want 2", len(s.opened))
		}
	})
	sim(t, "not live", func(t *testing.T, s *server) {
		s.silent = true
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errBroken) })
		if _, err := s.Watch(ctx, "a", time.Second, errLate); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want the cause", err)
		}
		if _, err := s.Watch(t.Context(), "a", time.Second, errLate); !errors.Is(err, errLate) || len(s.opened) != 1 {
			t.Errorf("got %v on connection %d, want %v on 1", err, len(s.opened), errLate)
		}
		s.silent = false
		s.watch(t, t.Context(), "a")
	})
	sim(t, "a panic of the client", func(t *testing.T, _ *server) {
		h := hub.New(func(context.Context, *hub.Listener[int]) error { panic("in a hook") })
		if _, err := h.Watch(t.Context(), "a", time.Second, errLate); err == nil || !strings.Contains(err.Error(), "in a hook") {
			t.Errorf("got %v, want the panic", err)
		}
	})
	sim(t, "close the hub", func(t *testing.T, s *server) {
		ch := s.watch(t, t.Context(), "a")
		hangs := make(chan struct{})
		defer close(hangs)
		if !s.Go(func() { <-hangs }) {
			t.Error("nothing runs in the background")
		}
		start := time.Now()
		if s.Close(time.Second) || time.Since(start) != time.Second {
			t.Errorf("closed after %v, want not within a second", time.Since(start))
		}
		want(t, "the watch", state(ch), "closed")
		if _, err := s.Watch(t.Context(), "a", time.Second, errLate); !errors.Is(err, hub.ErrClosed) {
			t.Errorf("got %v, want %v", err, hub.ErrClosed)
		}
		if s.Go(func() {}) {
			t.Error("it runs after Close")
		}
	})
}
