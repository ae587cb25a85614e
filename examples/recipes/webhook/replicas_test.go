package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/examples/recipes/webhook"
)

// service receives the deliveries of one sender. It has two replicas, each with its own
// server and its own connection to the store.
type service struct {
	t        *testing.T
	sender   string
	replicas [2]*httptest.Server
	runs     atomic.Int32
	handle   http.HandlerFunc
}

// newService starts the replicas. addr is the address of their store.
func newService(t *testing.T, addr, sender string, keep time.Duration) *service {
	t.Helper()
	s := &service{t: t, sender: sender}
	for i := range s.replicas {
		client := redis.NewClient(&redis.Options{Addr: addr})
		store, err := redisstore.New(client)
		if err != nil {
			t.Fatal(err)
		}
		locks, err := core.New(store)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := once.New(locks, once.Retain(keep), once.Acquire(core.TTL(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		s.replicas[i] = httptest.NewServer(senders[sender].Handler(runs, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.runs.Add(1)
			if s.handle != nil {
				s.handle(w, r)
			}
			w.WriteHeader(http.StatusAccepted)
		})))
		t.Cleanup(func() {
			s.replicas[i].Close()
			_ = locks.Close(context.Background())
			_ = client.Close()
		})
	}
	return s
}

type delivery struct {
	status     int
	replayed   bool
	retryAfter string
	err        error
}

// send delivers the event id to a replica, with a body that differs for each delivery.
func (s *service) send(ctx context.Context, replica int, id string) delivery {
	body := fmt.Sprintf(`{"id":%q,"pending":%d}`, id, time.Now().UnixNano())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.replicas[replica].URL+"/hooks", strings.NewReader(body))
	if err != nil {
		return delivery{err: err}
	}
	r.Header = sign[s.sender](id, body)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.replicas[replica].Client().Do(r)
	if err != nil {
		return delivery{err: err}
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return delivery{response.StatusCode, response.Header.Get("Idempotent-Replayed") == "true", response.Header.Get("Retry-After"), nil}
}

// await delivers the event until the replica accepts it, and returns that answer.
func (s *service) await(replica int, id string) (d delivery) {
	s.t.Helper()
	testserver.Eventually(s.t, time.Minute, "the event is accepted", func() bool {
		d = s.send(s.t.Context(), replica, id)
		return d.status == http.StatusAccepted
	})
	return d
}

func (s *service) ran(want int32) {
	s.t.Helper()
	if got := s.runs.Load(); got != want {
		s.t.Errorf("the handler has run %d times, want %d", got, want)
	}
}

// TestReplicas delivers each sender's events to two replicas on one Redis.
func TestReplicas(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	direct := testclient.Redis(t, server.Addr)
	for _, sender := range []string{"acme", "stripe", "github", "paypal"} {
		t.Run(sender, func(t *testing.T) {
			t.Parallel()

			t.Run("twice at once", func(t *testing.T) {
				t.Parallel()
				s, answers := newService(t, server.Addr, sender, webhook.Keep), make(chan delivery, 2)
				other := make(chan delivery, 1)
				// The handler runs until the other request is answered.
				s.handle = func(http.ResponseWriter, *http.Request) { other <- <-answers }
				for replica := range s.replicas {
					go func() { answers <- s.send(t.Context(), replica, "evt_twice") }()
				}
				first, second := <-other, <-answers
				if first.status != http.StatusConflict || first.retryAfter == "" {
					t.Errorf("beside the run: got %+v, want 409 with Retry-After", first)
				}
				if second.status != http.StatusAccepted || second.replayed {
					t.Errorf("of the run: got %+v, want 202", second)
				}
				if d := s.send(t.Context(), 0, "evt_twice"); d.status != http.StatusAccepted || !d.replayed {
					t.Errorf("again: got %+v, want a replay", d)
				}
				if d := s.send(t.Context(), 1, "evt_twice"); d.status != http.StatusAccepted || !d.replayed {
					t.Errorf("again at the other one: got %+v, want a replay", d)
				}
				s.ran(1)
			})

			t.Run("outages of Redis", func(t *testing.T) {
				t.Parallel()
				proxy := testserver.NewRedisProxy(t, server.Addr)
				s := newService(t, proxy.Addr, sender, webhook.Keep)

				proxy.Down()
				if d := s.send(t.Context(), 0, "evt_out"); d.status != http.StatusServiceUnavailable || d.retryAfter == "" {
					t.Errorf("before the run: got %+v, want 503 with Retry-After", d)
				}
				s.ran(0)
				proxy.Up()
				during := true
				s.handle = func(http.ResponseWriter, *http.Request) {
					if during {
						proxy.Down()
					}
				}
				// The event is handled and answered, although the answer cannot be
				// stored yet.
				if d := s.await(0, "evt_out"); d.replayed {
					t.Errorf("during the run: got %+v, want 202", d)
				}
				during = false
				proxy.Up()
				if d := s.await(1, "evt_out"); !d.replayed {
					t.Errorf("when the store is back: got %+v, want a replay", d)
				}
				proxy.Down()
				if d := s.send(t.Context(), 0, "evt_out"); d.status != http.StatusServiceUnavailable || d.replayed {
					t.Errorf("after the run: got %+v, want 503", d)
				}
				proxy.Up()
				if d := s.await(0, "evt_out"); !d.replayed {
					t.Errorf("after the last outage: got %+v, want a replay", d)
				}
				s.ran(1)
			})

			t.Run("the sender does not wait", func(t *testing.T) {
				t.Parallel()
				s, inside, left := newService(t, server.Addr, sender, webhook.Keep), make(chan struct{}), make(chan struct{})
				s.handle = func(_ http.ResponseWriter, r *http.Request) {
					close(inside)
					<-left
					select {
					case <-r.Context().Done():
						t.Errorf("Detached: the handler's context is done: %v", context.Cause(r.Context()))
					case <-time.After(200 * time.Millisecond):
						// A server notices within this time that a client has left.
					}
				}
				ctx, leave := context.WithCancel(t.Context())
				answer := make(chan delivery)
				go func() { answer <- s.send(ctx, 0, "evt_slow") }()
				<-inside
				leave()
				if d := <-answer; d.err == nil {
					t.Errorf("got %+v, want none: the sender has left", d)
				}
				close(left)
				if d := s.await(1, "evt_slow"); !d.replayed {
					t.Errorf("got %+v, want the answer of the run that the sender has left", d)
				}
				s.ran(1)
			})

			t.Run("after Retain", func(t *testing.T) {
				t.Parallel()
				s := newService(t, server.Addr, sender, 100*time.Millisecond)
				if d := s.await(0, "evt_old"); d.replayed {
					t.Errorf("got %+v", d)
				}
				testserver.Eventually(t, time.Minute, "the event is a new one", func() bool {
					return !s.await(1, "evt_old").replayed
				})
				s.ran(2)
			})
		})
	}
	t.Cleanup(func() {
		// The replicas of each of the four senders have stored at least three answers
		// for the time of Keep.
		kept := 0
		for _, key := range direct.Keys(context.Background(), "*").Val() {
			if left := direct.PTTL(context.Background(), key).Val(); left > webhook.Keep-time.Hour {
				kept++
			}
		}
		if kept < 4*3 {
			t.Errorf("%d answers are kept for %v, want at least 12", kept, webhook.Keep)
		}
	})
}

// TestLongBody checks the limits of bodies. GitHub's bodies may be longer than the
// bodies of other senders.
func TestLongBody(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, c := range []struct {
		sender string
		length int
		want   int
	}{
		{"github", 24 << 20, http.StatusAccepted},
		{"github", 26 << 20, http.StatusRequestEntityTooLarge},
		{"acme", 1 << 20, http.StatusAccepted},
		{"acme", 1<<20 + 1, http.StatusRequestEntityTooLarge},
	} {
		s := newService(t, server.Addr, c.sender, webhook.Keep)
		body := strings.Repeat("x", c.length)
		s.handle = func(_ http.ResponseWriter, r *http.Request) {
			if got, err := io.ReadAll(r.Body); string(got) != body || err != nil {
				t.Errorf("%s: got %d bytes, %v", c.sender, len(got), err)
			}
		}
		r, err := http.NewRequest(http.MethodPost, s.replicas[0].URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = sign[c.sender](fmt.Sprint("evt_long_", c.length), body)
		response, err := s.replicas[0].Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s, %d bytes: got %d, want %d", c.sender, c.length, response.StatusCode, c.want)
		}
	}
}

// TestGitHubID shows that GitHub's signature does not cover the ID. A recorded delivery
// counts as a new delivery under another ID.
func TestGitHubID(t *testing.T) {
	t.Parallel()
	s := newService(t, testserver.StartRedis(t).Addr, "github", webhook.Keep)
	recorded := `{"action":"opened"}`
	for _, id := range []string{"sent", "forged"} {
		r, err := http.NewRequest(http.MethodPost, s.replicas[0].URL, strings.NewReader(recorded))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = sign["github"]("sent", recorded)
		r.Header.Set("X-GitHub-Delivery", id)
		response, err := s.replicas[0].Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			t.Errorf("%s: got %d", id, response.StatusCode)
		}
	}
	s.ran(2)
}
