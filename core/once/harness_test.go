package once_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(childEnv); plan != "" {
		os.Exit(childMain(plan))
	}
	logging.Disable()                              // clients log every server that a test stopped
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers without an observer log each loss
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// patience limits the time for which a test waits for an event.
const patience = 60 * time.Second

// sim runs fn as a subtest in virtual time.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

// flaky is a store in memory that counts its calls and can be down. A call while it is
// down does not reach the store.
type flaky struct {
	*memstore.Store
	mu        sync.Mutex
	down      bool
	calls     int
	keys      map[string]bool
	unlimited bool   // grants every claim
	granted   func() // called before a grant is returned, unless nil
}

var errDown = errors.New("the store is down")

func newFlaky() *flaky { return &flaky{Store: memstore.New(), keys: make(map[string]bool)} }

func (s *flaky) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *flaky) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *flaky) call(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.keys[key] = true
	if s.down {
		return errDown
	}
	return nil
}

func (s *flaky) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := s.call(c.Key); err != nil {
		return store.Grant{}, err
	}
	if s.unlimited {
		return store.Grant{Owner: c.Owner, Record: &store.Record{Value: c.Record.Value, Attempt: 1}}, nil
	}
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && s.granted != nil {
		s.granted()
	}
	return g, err
}

func (s *flaky) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	for i, c := range claims {
		if answers[i].Err = s.call(c.Key); answers[i].Err == nil {
			answers[i] = s.Store.Extend(ctx, claims[i:i+1])[0]
		}
	}
	return answers
}

func (s *flaky) Release(ctx context.Context, c store.Claim) error {
	if err := s.call(c.Key); err != nil {
		return err
	}
	if s.unlimited {
		return nil
	}
	return s.Store.Release(ctx, c)
}

// retained is the Retain of records that tests store themselves.
const retained = time.Hour

// newLocker returns a new Locker on store. The Locker stands for a separate process.
func newLocker(t testing.TB, store core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 11*time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// newOnce returns a Once with a new Locker on store, which stands for a separate
// process.
func newOnce(t testing.TB, store core.Store, opts ...once.Option) *once.Once {
	t.Helper()
	o, err := once.New(newLocker(t, store), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// onRedis returns a Once with a new client and Locker on the Redis server at addr. The
// Once stands for a separate process.
func onRedis(t testing.TB, addr string, opts ...once.Option) *once.Once {
	t.Helper()
	store, err := redisstore.New(testclient.Redis(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return newOnce(t, store, opts...)
}

// wait returns the option with which duplicates wait for the answer.
func wait(d time.Duration) once.Option { return once.Acquire(core.Wait(d)) }

func lasting(d time.Duration) once.Option { return once.Acquire(core.TTL(d)) }

func charge(key string) once.Call {
	return once.Call{Name: "charge", Scope: "tenant", Key: key, Fingerprint: []byte("10 EUR")}
}

// runs provides the fn of tests and counts its runs.
type runs struct {
	mu       sync.Mutex
	n        int
	attempts []int
}

func (r *runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// note counts a run and returns its attempt.
func (r *runs) note(ctx context.Context) int {
	n, ok := once.AttemptFromContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if !ok {
		n = -1
	}
	r.attempts = append(r.attempts, n)
	return n
}

// work returns an fn that counts its runs and returns value.
func (r *runs) work(value string) func(context.Context) (once.Answer, error) {
	return func(ctx context.Context) (once.Answer, error) {
		r.note(ctx)
		return once.Answer{Value: []byte(value)}, nil
	}
}

func (r *runs) failing(err error) func(context.Context) (once.Answer, error) {
	return func(ctx context.Context) (once.Answer, error) {
		r.note(ctx)
		return once.Answer{}, err
	}
}

func (r *runs) want(t testing.TB, n int) {
	t.Helper()
	if got := r.count(); got != n {
		t.Errorf("got %d runs, want %d", got, n)
	}
}

// first fails the test unless Do runs fn, as attempt, and returns value.
func first(t testing.TB, o *once.Once, c once.Call, value string, attempt int) {
	t.Helper()
	var r runs
	out, err := o.Do(t.Context(), c, r.work(value))
	if err != nil || out.Replayed || string(out.Value) != value || out.Attempt != attempt {
		t.Errorf("got %+v and %v, want %q by a run that is attempt %d", short(out), err, value, attempt)
	}
	if r.n != 1 || r.attempts[0] != attempt {
		t.Errorf("the run saw the attempts %v, want %d", r.attempts, attempt)
	}
}

// replayed fails the test unless Do replays value for c, as the answer of attempt.
func replayed(t testing.TB, o *once.Once, c once.Call, value string, attempt int) {
	t.Helper()
	var r runs
	out, err := o.Do(t.Context(), c, r.work("not to be run"))
	if err != nil || !out.Replayed || string(out.Value) != value || out.Attempt != attempt || r.n != 0 {
		t.Errorf("got %+v and %v after %d runs, want a replay of %q by attempt %d", short(out), err, r.n, value, attempt)
	}
}

// refused fails the test unless Do fails with an error that matches each of
// want, without a run.
func refused(t testing.TB, o *once.Once, c once.Call, want ...error) error {
	t.Helper()
	var r runs
	out, err := o.Do(t.Context(), c, r.work("not to be run"))
	if r.n != 0 || out.Value != nil || out.Replayed {
		t.Errorf("got %+v and %v after %d runs, want none", short(out), err, r.n)
	}
	wantErr(t, err, want...)
	return err
}

func wantErr(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

// short returns o with its value cut to 60 bytes, for a message.
func short(o once.Outcome) once.Outcome {
	o.Value = o.Value[:min(len(o.Value), 60)]
	return o
}
