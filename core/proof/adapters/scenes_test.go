package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// disconnect makes the client disconnect during the run. For a task, the producer
// closes its connection and the task is canceled.
func disconnect(s *stage) answer {
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.wait(r, r.ctx.Done())
		return r.text(), nil
	}
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	ended := make(chan struct{})
	s.request.ended = ended
	first := s.send(ctx, s.a)
	r := within(s.t, "the handler runs", s.inside)
	s.endless()
	leave()
	within(s.t, "the handler's context ends", r.ctx.Done())
	close(ended)
	s.happened = true
	got := within(s.t, "the first request is over", first)
	got.text = r.text() // the client has left, and has no response
	return got
}

// overtime makes the request's timeout expire during the run.
func overtime(s *stage) answer {
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.wait(r, r.ctx.Done())
		s.a.front.redelivered(1)
		return "", r.ctx.Err()
	}
	for s.request.timeout = time.Second; ; s.request.timeout *= 2 {
		s.request.key += "+" // a different request, if the loop repeats
		first := s.send(s.t.Context(), s.a)
		select {
		case r := <-s.inside:
			got := within(s.t, "the first request is over", first)
			within(s.t, "the handler's context ends", r.ctx.Done())
			s.happened, s.request.timeout = true, 0
			return got
		case got := <-first:
			select {
			case <-s.inside:
				s.happened, s.request.timeout = true, 0
				return got
			default:
			}
			// The machine is so busy that the handler did not run in time.
			if s.request.timeout > patience {
				s.t.Fatalf("the handler did not run within %v: %v", s.request.timeout, got)
			}
		}
	}
}

// panics makes the handler panic after its effect.
func panics(s *stage) answer {
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.inside <- r
		panic("card reader on fire")
	}
	got := s.ask(s.a)
	within(s.t, "the handler panics", s.inside)
	s.happened = true
	return got
}

// deleted makes an operator delete the keys during the run.
func deleted(s *stage) answer {
	return s.supplant(func() {
		var names []string
		for name := range s.keys(s.db()) {
			names = append(names, name)
		}
		n, err := s.db().Del(context.Background(), names...).Result()
		if err != nil || n != int64(len(names)) {
			s.t.Errorf("%d of %q are deleted: %v", n, names, err)
		}
		s.happened = n > 0
	})
}

// restart kills the server of the locks during the run, and restarts the server empty.
func restart(s *stage) answer {
	return s.supplant(func() {
		life := s.life()
		s.server.Kill()
		s.down()
		s.server.RestartEmpty()
		s.happened = s.life() != life && !s.held()
	})
}

// life returns a different text after each start of the server.
func (s *stage) life() string { return fmt.Sprint(s.server.Pid()) }

// down sends a request for another order while the server is down. The request must fail
// without a run.
func (s *stage) down() {
	before, _, _ := s.seen()
	request := s.request
	defer func() { s.request = request }()
	s.request.order, s.request.key, s.request.untried = request.order+"-other", request.key+"-other", true
	got := within(s.t, "a request is answered while the server is down", s.send(s.t.Context(), s.b))
	if after, _, _ := s.seen(); got.outcome != unavailable || after != before {
		s.wrong("wrong answers", 1, "while the server is down, another request is %v, and %d ran", got, after-before)
	}
}

// supplant makes the store lose the first run's hold during the run, so that the same
// request runs on another replica. The first run continues until its context is done,
// and then tries to write.
func (s *stage) supplant(strike func()) answer {
	s.first = func(r *run) (string, error) {
		s.wait(r, s.goOn)
		r.ended()
		if s.write(r) {
			s.t.Error("the write of the first run was taken, after that of the second")
		}
		return r.text(), nil
	}
	first := s.send(s.t.Context(), s.a)
	within(s.t, "the handler runs", s.inside)
	s.endless()
	s.mu.Lock()
	s.forgets = true
	s.mu.Unlock()
	strike()
	var second answer
	testserver.Eventually(s.t, patience, "the request runs elsewhere", func() bool {
		second = s.ask(s.b)
		return second.outcome != unavailable
	})
	if second.outcome != done {
		s.wrong("wrong answers", 1, "elsewhere, the request is %v, want %s", second, done)
	}
	close(s.goOn)
	got := within(s.t, "the first request is over", first)
	if _, _, refused := s.seen(); refused != 1 {
		s.t.Errorf("%d stale writes were refused, want 1", refused)
	}
	got.next = &second
	return got
}

// duplicates sends the same request twice more during the run.
func duplicates(s *stage) answer {
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.wait(r, s.goOn)
		return r.text(), nil
	}
	first := s.send(s.t.Context(), s.a)
	within(s.t, "the handler runs", s.inside)
	s.endless()
	var more []<-chan answer
	for range 2 {
		more = append(more, s.send(s.t.Context(), s.b))
	}
	want := busy
	if s.cell.adapter == "task" {
		s.b.front.redelivered(len(more))
		if want = done; s.idempotent {
			want = replayed
		}
		close(s.goOn)
	}
	for _, other := range more {
		if got := within(s.t, "a duplicate is answered", other); got.outcome != want {
			s.wrong("wrong answers", 1, "a duplicate is %v, want %s", got, want)
		}
	}
	s.happened = true
	if s.cell.adapter != "task" {
		if runs, _, _ := s.seen(); runs != 1 {
			s.t.Errorf("%d runs", runs)
		}
		close(s.goOn)
	}
	return within(s.t, "the first request is over", first)
}

// rush sends other requests for the same order during the run. These requests wait for
// the key. If their handlers are fast enough, the hold of a request is passed on to the
// next request.
func rush(s *stage) answer {
	s.apart = true
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.wait(r, s.goOn)
		return r.text(), nil
	}
	first := s.send(s.t.Context(), s.a)
	within(s.t, "the handler runs", s.inside)
	s.endless()
	request := s.request
	var more []<-chan answer
	for n := range 3 {
		s.request.key = fmt.Sprint(request.key, "-", n)
		more = append(more, s.send(s.t.Context(), s.a))
	}
	s.request = request
	time.Sleep(500 * time.Millisecond) // time for the requests to start waiting
	close(s.goOn)
	for _, other := range more {
		if got := within(s.t, "another request is answered", other); got.outcome != done {
			s.wrong("wrong answers", 1, "another request is %v, want %s", got, done)
		}
	}
	got := within(s.t, "the first request is over", first)
	// A task may be rescheduled until the key is free.
	s.happened = s.a.events.waited(100*time.Millisecond)+s.a.events.count(core.GaveUp) >= len(more)
	return got
}

// replay sends the same request twice more after the run.
func replay(s *stage) answer {
	first := s.ask(s.a)
	if s.cell.first == refused {
		s.happened = s.a.front.(*grpcFront).check()
		return first
	}
	for range 2 {
		runs, _, _ := s.seen()
		got := s.ask(s.b)
		if after, _, _ := s.seen(); got.outcome != replayed || after != runs || got.text != "" && got.text != first.text {
			s.wrong("wrong answers", 1, "again, it is %v after %d runs, want %s of %q", got, after, replayed, first.text)
		}
		s.happened = got.outcome == replayed
	}
	return first
}

// shutdown shuts the replica down during the run, first the server and then the locker.
// In the cells "late shutdown", the locker's shutdown times out before the handler
// returns.
func shutdown(s *stage) answer {
	late := s.cell.cause == closed
	s.first = func(r *run) (string, error) {
		s.write(r)
		s.wait(r, s.goOn)
		if late {
			r.ended()
		}
		return r.text(), nil
	}
	first := s.send(s.t.Context(), s.a)
	within(s.t, "the handler runs", s.inside)
	s.endless()
	stopped := s.a.front.stop()
	select {
	case <-stopped:
		s.t.Error("the shutdown does not wait for the handler")
	case got := <-first:
		s.t.Errorf("the request is over before its handler is: %v", got)
	default:
		s.happened = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if late {
		cancel()
		if err := s.a.locker.Close(ctx); !errors.Is(err, canceled) || s.held() {
			s.wrong("keys left", 1, "after Close, whose time was up, a key is held, or its error is %v", err)
		}
	}
	close(s.goOn)
	got := within(s.t, "the first request is over", first)
	within(s.t, "the server is shut down", stopped)
	if !late {
		if err := s.a.locker.Close(ctx); err != nil || s.held() {
			s.wrong("keys left", 1, "after Close, a key is held, or its error is %v", err)
		}
	}
	return got
}
