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

// result is the outcome of the clicks on one order.
type result struct {
	Order   string `json:"order"`
	Clicks  int    `json:"clicks"`
	Charged int64  `json:"charged"` // number of charges by the bank
	Paid    int    `json:"paid"`    // clicks answered 200, with a receipt
	Refused int    `json:"refused"` // clicks answered 409, because another click was in progress
	Again   int    `json:"again"`   // tries answered 503 and then repeated
	Failed  int    `json:"failed"`  // clicks with any other last answer, including 503
}

// unserved reports whether a click on the order failed, nothing was charged, and no
// click has a receipt. The usual cause is that the locks were unavailable.
func (r result) unserved() bool { return r.Charged == 0 && r.Paid == 0 && r.Failed > 0 }

// tries is the retry policy of a click that is answered 503. Nothing was charged for
// such a click.
var tries = retry.Policy{Initial: 200 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2, Jitter: 0.5, Attempts: 6}

// click clicks "pay" on every order, with all clicks at the same time and alternately on
// the replicas. Then it asks the bank for the number of charges.
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

// clickUntilServed returns the last status, and the number of earlier tries that were
// answered 503.
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

// post returns the status, or 0 without a response.
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
