package latency_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// ordersOfRound is the number of orders that are paid at once. clicks is the number
	// of requests that are sent at once for each order. The last two requests for an
	// order are the same request, with the same Idempotency-Key.
	ordersOfRound = 6
	clicks        = 5
	// maxTries is the maximum number of requests that a user sends for a receipt.
	maxTries = 100
	// patience limits a round, with room for a busy machine.
	patience = 5 * time.Minute
)

// try is one request of a user, with its response.
type try struct {
	id, order string
	status    int    // 0 if there was no response
	kind      string // the problem type, "" for a receipt
	receipt   string
	pause     time.Duration // from Retry-After; 0 if absent
	took      time.Duration
	err       error
}

func (t try) String() string {
	return fmt.Sprintf("%s: %d %s %s (Retry-After %v, %v)", t.order, t.status, t.kind, t.receipt, t.pause, t.err)
}

// users contains the answers that the paying users received. It is safe for concurrent
// use.
type users struct {
	client *http.Client

	mu       sync.Mutex
	tries    []try
	unserved []string // orders of users without a receipt
	asked    []string // the orders of all rounds
}

func newUsers() *users {
	return &users{client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: ordersOfRound * clicks}}}
}

// round makes all users of some new orders click at once, and waits until each user has a
// receipt or has given up.
func (u *users) round(ctx context.Context, replicas []*replica, keyed bool) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range ordersOfRound {
		order, same := rand.Text(), rand.Text()
		u.asked = append(u.asked, order)
		for n := range clicks {
			key := ""
			if n >= clicks-2 && keyed {
				key = same
			}
			wg.Go(func() {
				<-start
				u.insist(ctx, replicas, n, order, key)
			})
		}
	}
	close(start)
	wg.Wait()
}

// insist sends requests, each to the next replica, until the user has a receipt. The user
// gives up after maxTries requests, or when ctx is done.
func (u *users) insist(ctx context.Context, replicas []*replica, n int, order, key string) {
	for i := 0; i < maxTries; i++ {
		t := u.ask(ctx, replicas[(n+i)%len(replicas)], order, key)
		if ctx.Err() != nil {
			break // the round's time is over
		}
		u.mu.Lock()
		u.tries = append(u.tries, t)
		u.mu.Unlock()
		if t.receipt != "" {
			return
		}
		select {
		case <-time.After(max(t.pause, 100*time.Millisecond) + mrand.N(500*time.Millisecond)):
		case <-ctx.Done():
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unserved = append(u.unserved, order)
}

func (u *users) ask(ctx context.Context, r *replica, order, key string) try {
	t := try{id: rand.Text(), order: order}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/orders/"+order+"/pay", nil)
	if err != nil {
		t.err = err
		return t
	}
	req.Header.Set(tryHeader, t.id)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	start := time.Now()
	resp, err := u.client.Do(req)
	if err != nil {
		t.err = err
		return t
	}
	defer resp.Body.Close()
	var body struct{ Type, Receipt string }
	t.err = json.NewDecoder(resp.Body).Decode(&body)
	_, _ = io.Copy(io.Discard, resp.Body)
	t.took, t.status, t.receipt = time.Since(start), resp.StatusCode, body.Receipt
	if body.Type != "" {
		t.kind = path.Base(body.Type)
		if _, section, ok := strings.Cut(body.Type, "#"); ok {
			t.kind = section
		}
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		t.pause = time.Duration(seconds) * time.Second
	}
	return t
}
