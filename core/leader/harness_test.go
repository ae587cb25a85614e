package leader_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	election = "reports"
	ttl      = 30 * time.Second
)

var steady = leader.Pause(retry.Policy{Initial: time.Second})

// sim runs fn as a subtest in virtual time.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

// link is the connection of one process to a shared store.
type link struct {
	*memstore.Store
	mu    sync.Mutex
	cut   bool
	kept  bool // releases are cut off
	asked int  // the number of exclusive acquires that were sent
}

var errCut = fmt.Errorf("cut off: %w", core.ErrUnavailable)

func (s *link) set(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
}

// setReleases sets whether releases are cut off.
func (s *link) setReleases(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = cut
}

func (s *link) campaigns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *link) call() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return errCut
	}
	return nil
}

func (s *link) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Weight == store.All {
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
	}
	if err := s.call(); err != nil {
		return store.Grant{}, err
	}
	return s.Store.Acquire(ctx, c)
}

func (s *link) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if err := s.call(); err != nil {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	return s.Store.Extend(ctx, claims)
}

func (s *link) Release(ctx context.Context, c store.Claim) error {
	if err := s.call(); err != nil {
		return err
	}
	s.mu.Lock()
	kept := s.kept
	s.mu.Unlock()
	if kept {
		return errCut
	}
	return s.Store.Release(ctx, c)
}

// process stands for a process that can take part in the election.
type process struct {
	t       *testing.T
	name    string
	link    *link
	locker  *core.Locker
	elector *leader.Elector
	book    *book
	stop    context.CancelCauseFunc
	linger  time.Duration // the time for which the work continues after its term
	result  chan error
	works   sync.WaitGroup
}

// start returns a process that takes part. Its work lasts until its term is done, and
// for linger after that.
func start(t *testing.T, store *memstore.Store, b *book, name string, linger time.Duration, opts ...leader.Option) *process {
	t.Helper()
	p := candidate(t, store, b, name, opts...)
	p.linger = linger
	p.run(p.work)
	return p
}

// candidate returns a process that does not take part yet.
func candidate(t *testing.T, store *memstore.Store, b *book, name string, opts ...leader.Option) *process {
	t.Helper()
	p := &process{t: t, name: name, link: &link{Store: store}, book: b, result: make(chan error, 1)}
	var err error
	if p.locker, err = core.New(p.link); err != nil {
		t.Fatal(err)
	}
	if p.elector, err = leader.New(p.locker, election, opts...); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the elector until p.stop is called, at the latest at the end of the test.
func (p *process) run(work func(ctx context.Context) error) {
	ctx, stop := context.WithCancelCause(context.Background())
	p.stop = stop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.result <- p.elector.Run(ctx, work)
	}()
	p.t.Cleanup(func() {
		stop(nil)
		<-ended
		p.works.Wait() // another Run of the test may still run the work
		p.close()
	})
}

func (p *process) close() {
	p.link.set(false)
	if err := p.locker.Close(context.Background()); err != nil {
		p.t.Errorf("%s: Close: %v", p.name, err)
	}
}

func (p *process) work(ctx context.Context) error {
	p.works.Add(1)
	defer p.works.Done()
	end := p.book.begin(p.name, ctx)
	<-ctx.Done()
	time.Sleep(p.linger)
	end()
	return nil
}

func (p *process) leads() bool { return p.elector.IsLeader(p.t.Context()) == nil }

// book records the terms of all processes.
type book struct {
	mu      sync.Mutex
	terms   []entry
	running map[string]int // by process
	faults  []string
}

type entry struct {
	name       string
	token      uint64
	begun      time.Time
	over, done time.Time // the times at which the context and the work were done
	cause      error
}

func newBook(t *testing.T) *book {
	b := &book{running: make(map[string]int)}
	t.Cleanup(func() {
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			t.Error(f)
		}
		for i, e := range b.terms[min(1, len(b.terms)):] {
			last := b.terms[i]
			if last.over.IsZero() || e.begun.Before(last.over) {
				t.Errorf("%s leads from %v, and %s still does", e.name, e.begun, last.name)
			}
			if e.token <= last.token {
				t.Errorf("%s has token %d, and %s before it had %d", e.name, e.token, last.name, last.token)
			}
		}
	})
	return b
}

// begin records a term under ctx; the returned function records the end of its work.
func (b *book) begin(name string, ctx context.Context) (end func()) {
	lease, ok := core.LeaseFromContext(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ok {
		b.faults = append(b.faults, "the work runs without a lease")
		return func() {}
	}
	if b.running[name]++; b.running[name] > 1 {
		b.faults = append(b.faults, fmt.Sprintf("%s runs two terms at once", name))
	}
	b.terms = append(b.terms, entry{name: name, token: lease.Token(), begun: time.Now()})
	i := len(b.terms) - 1
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.terms[i].over, b.terms[i].cause = time.Now(), context.Cause(ctx)
	})
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running[name]--
		b.terms[i].done = time.Now()
	}
}

func (b *book) last() (entry, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.terms) == 0 {
		return entry{}, 0
	}
	return b.terms[len(b.terms)-1], len(b.terms)
}

// want fails the test unless there were n terms, and name led in the last term.
func (b *book) want(t *testing.T, n int, name string) entry {
	t.Helper()
	e, got := b.last()
	if got != n || e.name != name {
		t.Fatalf("%d terms, the last one of %q; want %d and %q", got, e.name, n, name)
	}
	return e
}

// after waits for d, and then until all goroutines are blocked.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got %v, want %v", err, w)
		}
	}
}
