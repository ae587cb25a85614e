package httpretry_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/retry"
)

// hung is a short time-out for tries without a response. On a busy machine it also ends
// other tries.
var hung = httpretry.TryTimeout(300 * time.Millisecond)

// often allows enough tries for a test in which the short time-out (hung) ends some of
// them.
var often = httpretry.Retry(retry.Policy{Initial: 10 * time.Millisecond, Attempts: 100})

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  testserver.Action
		opts   []httpretry.Option
		replay bool // the response has to be a replay of an earlier try
	}{
		"lost request":              {fault: testserver.CloseRequest},
		"lost reply":                {fault: testserver.CloseReply, replay: true},
		"hung server":               {fault: testserver.DropRequest, opts: []httpretry.Option{hung, often}},
		"hung server after the run": {fault: testserver.DropReply, opts: []httpretry.Option{hung, often}, replay: true},
		"doubled request":           {fault: testserver.DoubleRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, true)
			f := s.Inject(testserver.Match{}, c.fault)
			got := s.pay(t.Context(), s.client(c.opts...), "5")
			f.Await(t)
			if c.fault == testserver.DoubleRequest {
				f.AwaitAnswer(t)
			}
			if !got.paid("5") || c.replay && !got.replayed || s.charged("5") != 1 || len(s.keysOf("5")) != 1 {
				t.Errorf("got %v, charged %d times under keys %q", got, s.charged("5"), s.keysOf("5"))
			}
		})
	}

	t.Run("late request", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, true)
		f := s.Inject(testserver.Match{}, testserver.HoldRequest)
		got := s.pay(t.Context(), s.client(hung, often), "5")
		f.Deliver()
		f.AwaitAnswer(t)
		if !got.paid("5") || s.charged("5") != 1 || len(s.keysOf("5")) != 1 {
			t.Errorf("got %v, charged %d times under keys %q", got, s.charged("5"), s.keysOf("5"))
		}
	})

	t.Run("cut body", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, true)
		s.Inject(testserver.Match{}, testserver.CutReply)
		got := s.pay(t.Context(), s.client(), "5")
		unknown, ok := got.unknown()
		if !ok || unknown.Status != http.StatusCreated || got.status != http.StatusCreated || s.charged("5") != 1 {
			t.Fatalf("got %v, charged %d times", got, s.charged("5"))
		}
		again := s.pay(httpretry.WithKey(t.Context(), unknown.Key), s.client(), "5")
		if !again.paid("5") || !again.replayed || s.charged("5") != 1 || len(s.keysOf("5")) != 1 {
			t.Errorf("got %v, charged %d times under keys %q", again, s.charged("5"), s.keysOf("5"))
		}
	})

	t.Run("no reply at all", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, true)
		f := s.Inject(testserver.Match{Times: -1}, testserver.CloseReply)
		got := s.pay(t.Context(), s.client(), "5")
		unknown, ok := got.unknown()
		if !ok || unknown.Status != 0 || unknown.Tries != 6 || s.charged("5") != 1 {
			t.Fatalf("got %v, charged %d times", got, s.charged("5"))
		}
		s.Remove(f)
		again := s.pay(httpretry.WithKey(t.Context(), unknown.Key), s.client(), "5")
		if !again.paid("5") || !again.replayed || s.charged("5") != 1 || len(s.keysOf("5")) != 1 {
			t.Errorf("got %v, charged %d times under keys %q", again, s.charged("5"), s.keysOf("5"))
		}
	})

	t.Run("503 with Retry-After", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, true)
		var calls atomic.Int64
		s.before = func(w http.ResponseWriter, _ string) bool {
			if calls.Add(1) > 1 {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		start := time.Now()
		got := s.pay(t.Context(), s.client(), "5")
		if took := time.Since(start); !got.paid("5") || s.charged("5") != 1 || calls.Load() != 2 || took < time.Second {
			t.Errorf("got %v after %v, charged %d times in %d runs", got, took, s.charged("5"), calls.Load())
		}
	})

	t.Run("two clients with one key", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, true)
		began, proceed := make(chan struct{}), make(chan struct{})
		s.before = func(http.ResponseWriter, string) bool {
			close(began)
			<-proceed
			return false
		}
		ctx := httpretry.WithKey(t.Context(), "order-5")
		var first outcome
		var wg sync.WaitGroup
		wg.Go(func() { first = s.pay(ctx, s.client(), "5") })
		<-began
		// The second client gets "in progress" before the first run continues.
		var busy atomic.Int64
		watched := httpretry.New(roundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := s.transport.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusConflict && busy.Add(1) == 1 {
				close(proceed)
			}
			return resp, err
		}), httpretry.Hosts(s.Addr), httpretry.Retry(retry.Policy{Initial: time.Millisecond, Attempts: 50}))
		second := s.pay(ctx, &http.Client{Transport: watched}, "5")
		wg.Wait()
		if !first.paid("5") || !second.paid("5") || !second.replayed || busy.Load() == 0 || s.charged("5") != 1 {
			t.Errorf("got %v and %v after %d times 409, charged %d times", first, second, busy.Load(), s.charged("5"))
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportRepeats checks that net/http repeats a request with an Idempotency-Key
// if a kept-alive connection breaks. The server gets the repetition, but a RoundTripper
// between httpretry and net/http does not see it.
func TestTransportRepeats(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	var tries atomic.Int64
	below := roundTrip(func(r *http.Request) (*http.Response, error) {
		tries.Add(1)
		return s.transport.RoundTrip(r)
	})
	client := &http.Client{Transport: httpretry.New(below, httpretry.Hosts(s.Addr), httpretry.Retry(retry.None))}
	if got := s.pay(t.Context(), client, "4"); !got.paid("4") {
		t.Fatalf("got %v", got)
	}
	s.Inject(testserver.Match{}, testserver.CloseReply)
	got := s.pay(t.Context(), client, "5")
	sent := s.Count(testserver.Match{If: func(r testserver.Request) bool { return r.Path == "/pay/5" }})
	if !got.paid("5") || tries.Load() != 2 || sent != 2 || s.charged("5") != 1 || len(s.keysOf("5")) != 1 {
		t.Errorf("got %v after %d tries for two orders, %d requests for the second, charged %d times under keys %q",
			got, tries.Load(), sent, s.charged("5"), s.keysOf("5"))
	}
}

// TestTransportRepeats_Refusal checks that a refusal of net/http's own repetition does
// not hide the payment of the try whose response was lost. The test covers hazard 72.
func TestTransportRepeats_Refusal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, true)
			var requests atomic.Int64
			s.outside = func(w http.ResponseWriter, order string) bool {
				if order != "5" || requests.Add(1) != 2 {
					return false
				}
				w.WriteHeader(status)
				return true
			}
			client := s.client(httpretry.Retry(retry.None))
			if got := s.pay(t.Context(), client, "4"); !got.paid("4") {
				t.Fatalf("test setup: got %v", got)
			}
			s.Inject(testserver.Match{}, testserver.CloseReply)
			got := s.pay(t.Context(), client, "5")
			if n, charges := requests.Load(), s.charged("5"); n != 2 || charges != 1 {
				t.Fatalf("test setup: %d requests, %d charges", n, charges)
			}
			if unknown, ok := got.unknown(); !ok || unknown.Tries != 1 || unknown.Status != status {
				t.Errorf("got %v, want an UnknownError", got)
			}
		})
	}
}

// TestStorm pays many orders while most messages meet a fault. Each order is charged
// once, or its outcome is unknown. An order with an unknown outcome is charged once
// when its payment is repeated under its key. The test covers hazard 72.
func TestStorm(t *testing.T) {
	t.Parallel()
	const orders, workers = 48, 8
	storm := func(t *testing.T, guarded bool) (s *shop, twice int) {
		s = newShop(t, guarded)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		faults := make(map[string]int)
		requests, calm := 0, false
		list := []struct {
			name   string
			action testserver.Action
		}{
			{"lost request", testserver.CloseRequest}, {"lost reply", testserver.CloseReply}, {"cut reply", testserver.CutReply},
			{"doubled request", testserver.DoubleRequest}, {"hung", testserver.DropRequest}, {"hung after the run", testserver.DropReply},
		}
		s.OnRequest(func(testserver.Request) testserver.Action {
			mu.Lock()
			defer mu.Unlock()
			i := random.IntN(len(list) + 3)
			if requests++; requests <= len(list) {
				i = requests - 1 // so that each fault comes about
			}
			if i < len(list) && !calm {
				faults[list[i].name]++
				return list[i].action
			}
			return testserver.Pass
		})
		client := s.client(hung, httpretry.Retry(retry.Policy{Initial: 5 * time.Millisecond, Attempts: 3}))
		results := make([]outcome, orders)
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := w; i < orders; i += workers {
					results[i] = s.pay(t.Context(), client, strconv.Itoa(i))
				}
			})
		}
		wg.Wait()
		mu.Lock()
		calm = true
		mu.Unlock()
		paid, unclear := 0, 0
		for i, got := range results {
			order := strconv.Itoa(i)
			unknown, ok := got.unknown()
			switch {
			case got.paid(order):
				paid++
			case ok:
				unclear++
				if s.charged(order) > 1 {
					twice++
					continue
				}
				got = s.pay(httpretry.WithKey(t.Context(), unknown.Key), s.client(), order)
			}
			if !got.paid(order) || s.charged(order) == 0 || len(s.keysOf(order)) != 1 {
				t.Errorf("order %s: got %v, charged %d times under keys %q", order, got, s.charged(order), s.keysOf(order))
			}
			if s.charged(order) > 1 {
				twice++
			}
		}
		t.Logf("%d orders: %d paid, %d unknown and then paid, %d charged twice; %d requests, faults %v", orders, paid, unclear, twice, len(s.Requests()), faults)
		if paid == 0 || unclear == 0 || len(faults) != len(list) {
			t.Error("not each kind of outcome and of fault came about")
		}
		return s, twice
	}

	t.Run("each order is charged once", func(t *testing.T) {
		t.Parallel()
		if _, twice := storm(t, true); twice > 0 {
			t.Errorf("%d orders were charged twice", twice)
		}
	})
	t.Run("server that ignores the key", func(t *testing.T) {
		t.Parallel()
		if _, twice := storm(t, false); twice == 0 {
			t.Error("no order was charged twice")
		}
	})
}
