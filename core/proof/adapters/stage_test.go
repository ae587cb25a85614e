package adapters_test

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// stage is one trial, with two replicas of a service and one order.
type stage struct {
	t          *testing.T
	book       *book
	cell       cell
	open       func(*service) front
	trial      int
	idempotent bool
	server     *testserver.Redis // for the locks
	queue      *testserver.Redis // for the tasks
	prefix     string            // prefix of all keys of the trial
	asks       *redis.Client
	ttl        time.Duration // of the leases
	request    request
	a, b       *service

	resource
	// first is the work of the first run. Later runs only write.
	first  func(*run) (string, error)
	inside chan *run     // receives the first run at its waiting point
	goOn   chan struct{} // closed to let the first run continue

	happened bool           // the event happened
	apart    bool           // each run is a different request
	wrongs   map[string]int // violations, by kind
	forgets  bool           // the store has lost its grants

	answers struct {
		sync.Mutex
		all []answer
	}
}

func newStage(t *testing.T, b *book, c cell, open func(*service) front, n int, idempotent bool) *stage {
	id := rand.Text()
	return &stage{
		t: t, book: b, cell: c, open: open, trial: n, idempotent: idempotent,
		prefix:  "lk1-" + strings.ToLower(id[:12]) + ":",
		request: request{order: "order-" + id[12:20], key: "request-" + id[18:]},
		inside:  make(chan *run, 1), goOn: make(chan struct{}),
		wrongs: map[string]int{},
	}
}

func (s *stage) want() then {
	if s.idempotent {
		return s.cell.once
	}
	return s.cell.lock
}

func (s *stage) run() {
	if s.ttl = long; s.cell.cause == lost {
		s.ttl = short
	}
	s.a, s.b = s.serve("a"), s.serve("b")
	outcomes, expected := map[string]int{}, map[string]int{}
	s.t.Cleanup(func() {
		runs, _, refused := s.seen()
		for _, a := range s.answers.all {
			outcomes[string(a.outcome)]++
		}
		outcomes["stale writes refused"] += refused
		for _, v := range []*service{s.a, s.b} {
			outcomes[passedOn] += v.events.count(core.PassedOn)
		}
		expected["two at work after the store forgot"] += s.together
		s.book.trial(s.cell.event, s.happened, outcomes, s.wrongs, expected, runs)
	})
	got := scenes[s.cell.event](s)
	if !s.happened {
		s.t.Errorf("test setup: no %s happened", s.cell.event)
	}
	want := s.want()
	s.freed()
	if got.outcome != s.cell.first {
		s.wrong("wrong answers", 1, "the first request is %v, want %s", got, s.cell.first)
	}
	runs := s.all()
	for _, r := range runs[:min(1, len(runs))] {
		if !s.cell.ends(r.cause) {
			s.wrong("wrong answers", 1, "the first handler's context ended with %v, want %v", r.cause, s.cell.cause)
		}
	}
	if _, n, _ := s.seen(); n != want.effects {
		s.wrong("wrong effects", 1, "%d effects in %d runs, want %d", n, len(runs), want.effects)
	}

	again := s.ask(s.b)
	if again.outcome != want.again || again.outcome == replayed && again.text != "" && again.text != got.kept() {
		s.wrong("wrong answers", 1, "again, it is %v, want %s of %q", again, want.again, got.kept())
	}
	if _, n, _ := s.seen(); n != want.total {
		s.wrong("wrong effects", 1, "%d effects in the end, want %d", n, want.total)
	}
	for i, r := range s.all() {
		if s.idempotent && !s.forgets && !s.apart && r.attempt != i+1 || s.apart && r.attempt > 1 {
			s.wrong("wrong answers", 1, "run %d was attempt %d", i+1, r.attempt)
		}
	}
	s.freed()
	keys, left := s.remains()
	s.wrong("keys without TTL", len(keys), "these keys stay for ever: %q", keys)
	s.wrong("keys left", len(left), "these keys are left: %q", left)
	s.close()

	s.wrong("overlaps", s.overlaps, "%d times two handlers ran at once", s.overlaps)
	s.wrong("stale writes", s.stale, "%d stale writes were taken", s.stale)
	s.wrong("tokens back", s.back, "%d tokens are not greater than those of earlier runs", s.back)
	shown := s.shown()
	s.wrong("secrets shown", len(shown), "answers or events show secrets: %q", shown)
}

// wrong fails the trial for n violations of a kind, if n is greater than 0. Only the
// trial's own goroutine may call it.
func (s *stage) wrong(kind string, n int, format string, args ...any) {
	s.t.Helper()
	if n > 0 {
		s.wrongs[kind] += n
		s.t.Errorf(format, args...)
	}
}

// work handles a request, whatever the adapter.
func (s *stage) work(ctx context.Context, service string) (string, error) {
	s.mu.Lock()
	forgets := s.forgets
	s.mu.Unlock()
	r, err := s.begin(ctx, service, forgets)
	if err != nil {
		s.t.Error(err)
		return "", err
	}
	defer s.end(r)
	if r.n == 1 && s.first != nil {
		return s.first(r)
	}
	s.write(r)
	return r.text(), nil
}

// wait makes the first run wait until the channel until is closed, for at most patience.
func (s *stage) wait(r *run, until <-chan struct{}) {
	s.inside <- r
	select {
	case <-until:
	case <-time.After(patience):
		s.t.Error("the first handler was not released")
	}
}

func (s *stage) ask(to *service) answer {
	return within(s.t, "a request is answered", s.send(s.t.Context(), to))
}

func (s *stage) send(ctx context.Context, to *service) <-chan answer {
	answers, request := make(chan answer, 1), s.request
	go func() {
		a := to.front.call(ctx, request)
		s.answers.Lock()
		s.answers.all = append(s.answers.all, a)
		s.answers.Unlock()
		answers <- a
	}()
	return answers
}

func (s *stage) close() {
	s.a.close()
	s.b.close()
}

// shown returns the secrets that answers and events contain: parts of keys, owners and
// tokens.
func (s *stage) shown() []string {
	secrets := map[string]string{s.request.order: "a key", s.request.key: "an idempotency key", s.prefix: "a prefix"}
	for _, r := range s.all() {
		secrets[strconv.FormatUint(r.token, 10)] = "a token"
	}
	for _, v := range []*service{s.a, s.b} {
		v.store.mu.Lock()
		for owner := range v.store.owners {
			secrets[owner] = "an owner"
		}
		v.store.mu.Unlock()
	}
	var said, shown []string
	s.answers.Lock()
	for _, a := range s.answers.all {
		said = append(said, a.raw)
	}
	s.answers.Unlock()
	said = append(append(said, s.a.events.said()...), s.b.events.said()...)
	for secret, what := range maps.All(secrets) {
		for _, text := range said {
			if strings.Contains(text, secret) {
				shown = append(shown, what+" in "+text)
			}
		}
	}
	return shown
}
