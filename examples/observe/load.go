package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// sent counts requests by the status of their responses.
type sent struct {
	mu sync.Mutex
	by map[int]int
}

func (a *sent) of(status ...int) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range status {
		n += a.by[s]
	}
	return n
}

// ask runs this number of clients until ctx is done. It returns the counts of their
// requests.
func (s *service) ask(ctx context.Context, clients int) *sent {
	all := &sent{by: map[int]int{}}
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer web.CloseIdleConnections()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				status, err := s.request(ctx, web, client, n)
				if err != nil && ctx.Err() != nil {
					return
				}
				all.mu.Lock()
				all.by[status]++
				all.mu.Unlock()
				pause(ctx, rand.N(10*time.Millisecond))
			}
		})
	}
	wg.Wait()
	return all
}

// request sends the n-th request of a client.
func (s *service) request(ctx context.Context, web *http.Client, client, n int) (status int, err error) {
	method, path, key, body := http.MethodPost, "", "", ""
	switch order := n / 10 * 10; n % 10 {
	case 0, 1, 2: // pay, and repeat the payment twice
		path, key = fmt.Sprintf("/orders/%d-%d/pay", client, order), fmt.Sprintf("%d-%d", client, order)
	case 3: // another request under the same key
		path, key, body = fmt.Sprintf("/orders/%d-%d/pay", client, order), fmt.Sprintf("%d-%d", client, order), "more"
	case 4: // pay an order that other clients also pay
		path, key = fmt.Sprintf("/orders/%d/pay", rand.N(3)), fmt.Sprintf("own-%d-%d", client, n)
	case 5, 6, 7, 8:
		path = fmt.Sprintf("/stock/%d", rand.N(2))
		if n%2 == 0 {
			method = http.MethodGet
		}
	default:
		path = fmt.Sprintf("/refunds/%d", n)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Customer", fmt.Sprintf("customer-%d", client))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := web.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}
