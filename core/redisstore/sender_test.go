package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestCallsTravelTogether(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	setup := func(t *testing.T, addr string) (*redisstore.Store, *gate) {
		client, g := testclient.Redis(t, addr), newGate()
		client.AddHook(g)
		// No trip but the first one, however long it is held up.
		s := newStore(t, client)
		s.Stall(time.Hour)
		s.Crowd(math.MaxInt)
		return s, g
	}
	t.Run("those that come while one is under way go in one pipeline, each with its own answer", func(t *testing.T) {
		t.Parallel()
		s, g := setup(t, server.Addr)
		all := claims(40)
		busy := newStore(t, testclient.Redis(t, server.Addr))
		acquire(t, busy, claimOf(all[3].Key))
		server.Do("set", "lk1:{"+all[5].Key+"}", "of the wrong type")
		for i, err := range crowd(t, s, g, all) {
			switch want := []error{nil, core.ErrBusy, core.ErrUnavailable}; {
			case i == 3 && !errors.Is(err, want[1]), i == 5 && !errors.Is(err, want[2]), i != 3 && i != 5 && err != nil:
				t.Errorf("call %d: got %v", i, err)
			}
		}
		if got := fmt.Sprint(g.travelled()); got != "[1 40]" && got != "[1 1 40]" { // with the text of the script
			t.Errorf("calls travelled as %s, want the first one alone and then all others", got)
		}
	})
	t.Run("a crowd behind one that is under way goes on a second one beside it", func(t *testing.T) {
		t.Parallel()
		client, g := testclient.Redis(t, server.Addr), newGate()
		client.AddHook(g)
		s := newStore(t, client)
		s.Stall(time.Hour)
		s.Crowd(16)
		acquire(t, newStore(t, testclient.Redis(t, server.Addr)), claimed()) // the server knows the script
		var wg sync.WaitGroup
		send := func(n int) {
			for _, c := range claims(n) {
				wg.Go(func() {
					if _, err := s.Acquire(t.Context(), c); err != nil {
						t.Error(err)
					}
				})
			}
		}
		send(1)
		<-g.took // and held up
		send(15)
		testserver.Eventually(t, time.Minute, "fifteen wait", func() bool { return s.Queued() == 15 })
		send(1)
		testserver.Eventually(t, time.Minute, "sixteen have gone", func() bool { return s.Queued() == 0 })
		close(g.open)
		wg.Wait()
		if got := fmt.Sprint(g.travelled()); got != "[1 16]" {
			t.Errorf("calls travelled as %s, want the first one alone and sixteen together", got)
		}
	})
	t.Run("more than a pipeline takes go in several", func(t *testing.T) {
		t.Parallel()
		s, g := setup(t, server.Addr)
		for i, err := range crowd(t, s, g, claims(600)) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, n := range g.travelled() {
			if n > 128 {
				t.Errorf("%d calls in a pipeline", n)
			}
		}
	})
	t.Run("long values go alone", func(t *testing.T) {
		t.Parallel()
		s, g := setup(t, server.Addr)
		all := claims(5)
		for i := range all {
			all[i].Record = &core.Record{Value: make([]byte, 100<<10), Retain: time.Minute}
		}
		for i, err := range crowd(t, s, g, all) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, n := range g.travelled() {
			if n > 1 {
				t.Errorf("%d calls travelled together", n)
			}
		}
	})
	t.Run("who leaves before the others go is not taken along, and knows it", func(t *testing.T) {
		t.Parallel()
		s, g := setup(t, server.Addr)
		all := claims(3)
		ctx, cancel := context.WithCancel(t.Context())
		g.before = cancel
		errs := crowd(t, s, g, all, t.Context(), ctx)
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("those who stayed got %v and %v", errs[0], errs[2])
		}
		if !errors.Is(errs[1], core.ErrUnavailable) || !errors.Is(errs[1], context.Canceled) {
			t.Errorf("got %v, want %v and the reason", errs[1], core.ErrUnavailable)
		}
		if n := testclient.Redis(t, server.Addr).Exists(t.Context(), "lk1:{"+all[1].Key+"}").Val(); n != 0 {
			t.Error("its call was sent")
		}
	})
	t.Run("a server that has forgotten its scripts gets them again", func(t *testing.T) {
		t.Parallel()
		forgetful := testserver.StartRedis(t)
		s, g := setup(t, forgetful.Addr)
		for i, err := range crowd(t, s, g, claims(20)) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
	})
	t.Run("a connection that breaks leaves nobody without an answer, and nothing for granted", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		s, g := setup(t, proxy.Addr)
		all := claims(20)
		fault := proxy.Inject(testserver.Match{Arg: "lk1:{" + all[10].Key + "}"}, testserver.CloseReply)
		errs := crowd(t, s, g, all)
		fault.Await(t)
		if errs[10] == nil || errors.Is(errs[10], core.ErrUnavailable) {
			t.Errorf("the call whose reply was lost: got %v, want an error of unknown outcome", errs[10])
		}
		for i, err := range errs {
			if _, again := s.Acquire(t.Context(), all[i]); again != nil {
				t.Errorf("call %d, which got %v: the same claim again got %v", i, err, again)
			}
		}
	})
	t.Run("a client that panics tells each caller", func(t *testing.T) {
		t.Parallel()
		s, g := setup(t, server.Addr)
		g.fail = func() { panic("a hook") }
		for i, err := range crowd(t, s, g, claims(5)) {
			if err == nil {
				t.Errorf("call %d got no error", i)
			}
		}
	})
	t.Run("those behind one whose reply is lost are held up for a moment only", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		s := newStore(t, testclient.Redis(t, proxy.Addr))
		if _, err := s.Acquire(t.Context(), claimed()); err != nil {
			t.Fatal(err)
		}
		all := claims(1)
		fault := proxy.Inject(testserver.Match{Arg: "lk1:{" + all[0].Key + "}"}, testserver.DropReply)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, all[0]) // the first, and alone
		if err == nil || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("the call whose reply was lost: got %v, want an error of unknown outcome", err)
		}
		fault.Await(t)
		// A machine may stand still until the lost one is given up.
		for tries := 1; ; tries++ {
			all := claims(10)
			hang := proxy.Inject(testserver.Match{Arg: "lk1:{" + all[0].Key + "}"}, testserver.DropReply)
			done := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context(), all[0])
				done <- err
			}()
			hang.Await(t)
			for _, c := range all[1:] {
				if _, err := s.Acquire(t.Context(), c); err != nil {
					t.Errorf("behind it: %v", err)
				}
			}
			first := len(done) == 0
			if err := <-done; err == nil || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("the call whose reply was lost: got %v, want an error of unknown outcome", err)
			}
			if first {
				return
			}
			if tries == 10 {
				t.Fatalf("%d times the call whose reply was lost returned before the others", tries)
			}
		}
	})
}

func TestAQuietStoreHasNoGoroutines(t *testing.T) {
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	before := goleak.IgnoreCurrent()
	s, err := redisstore.New(client)
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, s, claimed())
	if err := goleak.Find(before); err != nil {
		t.Errorf("some time after its last call: %v", err)
	}
	acquire(t, s, claimed())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

// stacks is a hook that keeps the stack on which the last command was sent.
type stacks struct {
	gate
	last string
}

func (h *stacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.last = string(debug.Stack())
		return next(ctx, cmd)
	}
}

func TestWhoCannotLeaveSendsByItself(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, c := range map[string]struct {
		edit func(*redis.Options)
		ctx  context.Context
		own  bool
	}{
		"a context that never ends": {func(*redis.Options) {}, context.Background(), true},
		"one that can end":          {func(*redis.Options) {}, t.Context(), false},
		"short time-outs": {func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout = false, time.Second, time.Second
		}, context.Background(), false},
		"a client that can hang": {func(o *redis.Options) { o.ContextTimeoutEnabled = false }, context.Background(), false},
		"one without time-outs": {func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.ReadTimeout = false, -1
		}, context.Background(), false},
	} {
		t.Run(name, func(t *testing.T) {
			client, h := testclient.Redis(t, server.Addr, c.edit), &stacks{}
			client.AddHook(h)
			if _, err := newStore(t, client).Acquire(c.ctx, claimed()); err != nil {
				t.Fatal(err)
			}
			if h.last == "" || strings.Contains(h.last, "TestWhoCannotLeave") != c.own {
				t.Errorf("it was sent by a goroutine with the stack %q", h.last)
			}
		})
	}
}
