package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/recipes/cron"
	"github.com/lockkit/lockkit/examples/recipes/webhook"
)

type listed struct {
	ID          int64     `json:"id"`
	GUID        string    `json:"guid"`
	DeliveredAt time.Time `json:"delivered_at"`
	Redelivery  bool      `json:"redelivery"`
	Status      string    `json:"status"`
	StatusCode  int       `json:"status_code"`
}

// github is a fake of GitHub. It delivers each event once, and again on request to its
// API.
type github struct {
	receiver http.Handler
	url      string // of the hook in the API

	mu         sync.Mutex
	deliveries []listed // the oldest first
	requests   int
	refuse     refusal // nil: the API works
}

// refusal returns the status with which the API refuses the n-th request, or 0. After -1
// the API carries out the request, and the answer is lost.
type refusal func(method string, n int) int

func (g *github) refuseBy(f refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = f
}

const token = "token-of-the-test"

func newGitHub(t *testing.T, receiver http.Handler) *github {
	t.Helper()
	g := &github{receiver: receiver}
	api := http.NewServeMux()
	api.HandleFunc("GET /repos/o/r/hooks/1/deliveries", g.list)
	api.HandleFunc("POST /repos/o/r/hooks/1/deliveries/{id}/attempts", g.repeat)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.requests++
		n, refuse, status := g.requests, g.refuse, 0
		g.mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			status = http.StatusUnauthorized
		case refuse != nil:
			status = refuse(r.Method, n)
		}
		switch status {
		case 0:
			api.ServeHTTP(w, r)
		case -1:
			api.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(server.Close)
	g.url = server.URL + "/repos/o/r/hooks/1"
	return g
}

// deliver delivers an event to the receiver. If impatient is true, GitHub has stopped
// waiting before the answer.
func (g *github) deliver(guid string, age time.Duration, redelivery, impatient bool) {
	body := fmt.Sprintf(`{"event":%q}`, guid)
	got := deliver(g.receiver, sign["github"](guid, body), body)
	d := listed{GUID: guid, DeliveredAt: time.Now().Add(-age), Redelivery: redelivery, Status: "OK", StatusCode: got.Code}
	switch {
	case impatient:
		d.Status, d.StatusCode = "timed out", 0
	case got.Code/100 != 2:
		d.Status = "Invalid HTTP Response: " + strconv.Itoa(got.Code)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d.ID = 1<<60 + int64(len(g.deliveries)) // a float64 cannot represent all of these numbers
	g.deliveries = append(g.deliveries, d)
}

// list answers with at most two deliveries, so that a job has to request further pages.
func (g *github) list(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	older := len(g.deliveries)
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		older, _ = strconv.Atoi(cursor[len("v1 +"):])
	}
	page := slices.Clone(g.deliveries[max(0, older-2):older])
	slices.Reverse(page)
	if older > 2 {
		w.Header().Set("Link", fmt.Sprintf(`<https://elsewhere.example/deliveries?per_page=100>; rel="first", `+
			`<https://elsewhere.example/deliveries?per_page=100&cursor=v1+%%2B%d>; rel="next"`, older-2))
	}
	_ = json.NewEncoder(w).Encode(page)
}

// repeat redelivers an event, unless the delivery is too old.
func (g *github) repeat(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	g.mu.Lock()
	var d listed
	if at := slices.IndexFunc(g.deliveries, func(d listed) bool { return d.ID == id }); at >= 0 {
		d = g.deliveries[at]
	}
	g.mu.Unlock()
	switch {
	case d.ID == 0:
		w.WriteHeader(http.StatusNotFound)
	case time.Since(d.DeliveredAt) > webhook.Redeliverable:
		w.WriteHeader(http.StatusUnprocessableEntity)
	default:
		g.deliver(d.GUID, 0, true, false)
		w.WriteHeader(http.StatusAccepted)
	}
}

type receiver struct {
	http.Handler
	store outage
	mu    sync.Mutex
	runs  map[string]int
	// answer is the status of the handler's answer, 202 by default.
	answer atomic.Int32
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{store: outage{Store: memstore.New()}, runs: map[string]int{}}
	r.Handler = replica(t, &r.store, senders["github"], func(w http.ResponseWriter, in *http.Request) {
		r.mu.Lock()
		r.runs[in.Header.Get("X-GitHub-Delivery")]++
		r.mu.Unlock()
		status := http.StatusAccepted
		if s := r.answer.Load(); s != 0 {
			status = int(s)
		}
		w.WriteHeader(status)
	})
	return r
}

// ran reports an error unless exactly these events have run, once each.
func (r *receiver) ran(t *testing.T, events ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if r.runs[e] != 1 {
			t.Errorf("%s: got %d runs, want 1", e, r.runs[e])
		}
	}
	if len(r.runs) != len(events) {
		t.Errorf("got runs %v, want one of each of %v", r.runs, events)
	}
}

func (g *github) hook() webhook.Hook { return webhook.Hook{URL: g.url, Token: token} }

// redeliver runs the job, and fails the test unless the job requests as many
// redeliveries as the parameter want.
func (g *github) redeliver(t *testing.T, want int) {
	t.Helper()
	if got, err := g.hook().Redeliver(t.Context()); got != want || err != nil {
		t.Errorf("got %d requested redeliveries, %v, want %d", got, err, want)
	}
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	g := newGitHub(t, r)
	g.deliver("fine-1", 50*time.Hour, false, false)
	r.store.down.Store(true)
	g.deliver("outage-1", 49*time.Hour, false, false)
	g.deliver("outage-2", 48*time.Hour, false, false)
	g.redeliver(t, 2) // the store is still unavailable
	r.store.down.Store(false)
	g.deliver("slow", 2*time.Hour, false, true) // handled, and GitHub does not know it
	g.deliver("fine-2", time.Hour, false, false)
	r.ran(t, "fine-1", "slow", "fine-2")

	g.redeliver(t, 3)
	r.ran(t, "fine-1", "outage-1", "outage-2", "slow", "fine-2")
	var order []string
	g.mu.Lock()
	last := slices.Clone(g.deliveries[len(g.deliveries)-3:])
	g.mu.Unlock()
	for _, d := range last {
		if d.Status != "OK" {
			t.Errorf("got %+v, want OK", d)
		}
		order = append(order, d.GUID)
	}
	if want := []string{"outage-1", "outage-2", "slow"}; !slices.Equal(order, want) {
		t.Errorf("got redeliveries of %v, want %v: the oldest event is lost first", order, want)
	}

	g.redeliver(t, 0)
	r.ran(t, "fine-1", "outage-1", "outage-2", "slow", "fine-2")
}

// TestRedeliver_GivesUp checks events whose handler always fails. They are redelivered
// only for the time of Redeliverable after their first delivery. Newer redeliveries do
// not prolong this time.
func TestRedeliver_GivesUp(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.answer.Store(http.StatusInternalServerError)
	g := newGitHub(t, r)
	g.deliver("old", webhook.Redeliverable+time.Minute, false, false)
	g.deliver("failing", webhook.Redeliverable-time.Hour, false, false)
	g.deliver("old", 2*time.Hour, true, false)
	for range 3 {
		g.redeliver(t, 1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs["failing"] != 4 || r.runs["old"] != 2 {
		t.Errorf("got runs %v, want 4 of failing, and none by the job of old", r.runs)
	}
	if webhook.Keep <= webhook.Redeliverable {
		t.Error("Keep is too short: a redelivery would not find the stored answer")
	}
}

func TestRedeliver_APIFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse    refusal
		requested int // by the first call
		again     int // by the second call, when the API works
	}{
		"list fails":        {func(string, int) int { return http.StatusBadGateway }, 0, 3},
		"second page fails": {func(_ string, n int) int { return map[int]int{2: http.StatusBadGateway}[n] }, 0, 3},
		"rate limit":        {func(_ string, n int) int { return map[int]int{4: http.StatusForbidden}[n] }, 1, 2},
		"one refused":       {func(_ string, n int) int { return map[int]int{4: http.StatusUnprocessableEntity}[n] }, 2, 1},
		"lost answer": {func(method string, n int) int {
			if method == http.MethodPost && n == 3 {
				return -1
			}
			return 0
		}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t)
			g := newGitHub(t, r)
			r.store.down.Store(true)
			for _, guid := range []string{"a", "b", "c"} {
				g.deliver(guid, time.Hour, false, false)
			}
			r.store.down.Store(false)
			g.refuseBy(c.refuse)
			if got, err := g.hook().Redeliver(t.Context()); got != c.requested || err == nil {
				t.Errorf("got %d, %v, want %d and an error", got, err, c.requested)
			}
			g.refuseBy(nil)
			g.redeliver(t, c.again)
			r.ran(t, "a", "b", "c")
		})
	}

	t.Run("wrong token", func(t *testing.T) {
		t.Parallel()
		g := newGitHub(t, newReceiver(t))
		if got, err := (webhook.Hook{URL: g.url, Token: "old"}).Redeliver(t.Context()); got != 0 || err == nil {
			t.Errorf("got %d, %v, want an error", got, err)
		}
	})
	t.Run("canceled call", func(t *testing.T) {
		t.Parallel()
		r := newReceiver(t)
		r.store.down.Store(true)
		g := newGitHub(t, r)
		g.deliver("a", time.Hour, false, false)
		ctx, cancel := context.WithCancel(t.Context())
		g.refuseBy(func(method string, _ int) int {
			if method == http.MethodPost {
				cancel()
			}
			return 0
		})
		if _, err := g.hook().Redeliver(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// TestRedeliver_Replicas checks jobs that run at once: by two replicas without a
// schedule, and by three replicas with the recipe cron.
func TestRedeliver_Replicas(t *testing.T) {
	t.Parallel()
	for name, replicas := range map[string]int{"without cron": 2, "with cron": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t)
			g := newGitHub(t, r)
			r.store.down.Store(true)
			for _, guid := range []string{"a", "b", "c", "d"} {
				g.deliver(guid, time.Hour, false, false)
			}
			r.store.down.Store(false)
			// Until repeats a job that fails.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			due, jobs := time.Now().Truncate(time.Hour), memstore.New()
			var requested atomic.Int32
			var wg sync.WaitGroup
			for range replicas {
				job := func(ctx context.Context) error {
					n, err := g.hook().Redeliver(ctx)
					requested.Add(int32(n))
					return err
				}
				locks, err := core.New(jobs)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = locks.Close(context.Background()) })
				runs, err := once.New(locks)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					err := error(nil)
					if name == "with cron" {
						err = cron.Until(ctx, runs, "github", due, time.Millisecond, job)
					} else {
						err = job(ctx)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			r.ran(t, "a", "b", "c", "d")
			if n := requested.Load(); n < 4 || name == "with cron" && n != 4 {
				t.Errorf("got %d requested redeliveries", n)
			}
		})
	}
}

// TestGitHubHooks delivers one event by two hooks. GitHub uses one ID for both
// deliveries, so the hooks need different names.
func TestGitHubHooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second string
		runs   int
		status int // of the second hook's delivery
	}{
		"one name":  {"github", 1, http.StatusUnprocessableEntity},
		"two names": {"github-audit", 2, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := memstore.New(), 0
			handle := func(w http.ResponseWriter, _ *http.Request) {
				runs++
				w.WriteHeader(http.StatusAccepted)
			}
			audit := senders["github"]
			audit.Name = c.second
			web := http.NewServeMux()
			web.Handle("/hooks", replica(t, s, senders["github"], handle))
			web.Handle("/audit", replica(t, s, audit, handle))
			if got := deliver(web, sign["github"]("guid", "{}"), "{}").Code; got != http.StatusAccepted {
				t.Errorf("the first hook got %d", got)
			}
			if got := deliverTo(web, "/audit", sign["github"]("guid", "{}"), "{}").Code; got != c.status || runs != c.runs {
				t.Errorf("the second hook got %d after %d runs, want %d after %d", got, runs, c.status, c.runs)
			}
		})
	}
}
