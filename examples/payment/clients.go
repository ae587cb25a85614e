package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// result is what came of the clicks on one order.
type result struct {
	Order   string `json:"order"`
	Clicks  int    `json:"clicks"`
	Charged int64  `json:"charged"` // by the bank
	Paid    int    `json:"paid"`    // clicks answered 200, with a receipt
	Refused int    `json:"refused"` // clicks answered 409, another one was at it
	Again   int    `json:"again"`   // tries answered 503 that were repeated
	Failed  int    `json:"failed"`  // clicks answered anything else, 503 to the last try included
}

// unserved reports whether the service has refused the order for want of its locks, and has
// said so: nothing was charged, and no click got a receipt.
func (r result) unserved() bool { return r.Charged == 0 && r.Paid == 0 && r.Failed > 0 }

// tries is how a client clicks again after a 503: nothing was charged then.
var tries = retry.Policy{Initial: 200 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2, Jitter: 0.5, Attempts: 6}

// click presses "pay" on every order, all at the same moment, each time at
// another replica, and then asks what the bank has charged.
func click(ctx context.Context, replicas, orders []string, clicks int) ([]result, error) {
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: len(orders) * clicks},
	}
	defer client.CloseIdleConnections()
	results := make([]result, len(orders))
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, id := range orders {
		results[i] = result{Order: id, Clicks: clicks}
		for n := range clicks {
			url := fmt.Sprintf("http://%s/orders/%s/pay", replicas[(i+n)%len(replicas)], id)
			wg.Go(func() {
				<-start
				status, again := clickUntilServed(ctx, client, url)
				mu.Lock()
				defer mu.Unlock()
				results[i].Again += again
				switch status {
				case http.StatusOK:
					results[i].Paid++
				case http.StatusConflict:
					results[i].Refused++
				default:
					results[i].Failed++
				}
			})
		}
	}
	close(start)
	wg.Wait()
	for i, id := range orders {
		o, err := get(ctx, client, fmt.Sprintf("http://%s/orders/%s", replicas[i%len(replicas)], id))
		if err != nil {
			return nil, err
		}
		results[i].Charged = o.Charges
	}
	return results, nil
}

// clickUntilServed returns the last status, and how many tries before it were answered 503.
func clickUntilServed(ctx context.Context, client *http.Client, url string) (status, again int) {
	unavailable := 0
	_, _ = retry.Do(ctx, tries, func(ctx context.Context) (struct{}, error) {
		if status = post(ctx, client, url); status != http.StatusServiceUnavailable {
			return struct{}{}, nil
		}
		unavailable++
		return struct{}{}, errors.New("503")
	})
	if status == http.StatusServiceUnavailable {
		unavailable-- // the last try was not repeated
	}
	return status, unavailable
}

// post returns the status, or 0 if there was no answer.
func post(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func get(ctx context.Context, client *http.Client, url string) (o order, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return o, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return o, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return o, json.NewDecoder(resp.Body).Decode(&o)
}
