package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A client waits for patience, and the bank takes bankDelay, which is longer.
const (
	patience  = 250 * time.Millisecond
	bankDelay = 600 * time.Millisecond
	mostTries = 60
)

// insistence is the outcome of a client that repeats its request until it has a receipt.
type insistence struct {
	Order    string `json:"order"`
	Tries    int    `json:"tries"`
	GivenUp  int    `json:"given_up"` // tries whose response the client did not wait for
	Refused  int    `json:"refused"`  // tries answered 409, because an earlier one was in progress
	Receipt  string `json:"receipt"`
	Replayed bool   `json:"replayed"` // the receipt was marked as replayed
	Charged  int64  `json:"charged"`  // number of charges by the bank
}

// satisfied reports whether the client was charged once and has a replayed receipt of
// that charge. Since the client never waits long enough for a run, it can only have a
// replayed one.
func (i insistence) satisfied() bool {
	return i.Charged == 1 && i.Receipt == i.Order+"/1" && i.Replayed
}

// insistAll makes n clients pay one order each, all at the same time.
func insistAll(ctx context.Context, replicas []string, prefix string, n int) ([]insistence, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	defer client.CloseIdleConnections()
	results, failures := make([]insistence, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i].Order = prefix + strconv.Itoa(i+1)
			results[i].insist(ctx, client, replicas)
			o, err := get(ctx, client, fmt.Sprintf("http://%s/orders/%s", replicas[0], results[i].Order))
			results[i].Charged, failures[i] = o.Charges, err
		})
	}
	wg.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// insist sends requests with one Idempotency-Key, alternately to the replicas.
func (i *insistence) insist(ctx context.Context, client *http.Client, replicas []string) {
	key := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	for i.Tries < mostTries && ctx.Err() == nil {
		url := fmt.Sprintf("http://%s/orders/%s/pay", replicas[i.Tries%len(replicas)], i.Order)
		i.Tries++
		pause := i.try(ctx, client, url, key)
		if i.Receipt != "" {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// try sends one request, and returns the time to wait before the next one.
func (i *insistence) try(ctx context.Context, client *http.Client, url, key string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Bank-Delay", bankDelay.String())
	resp, err := client.Do(req)
	if err != nil {
		i.GivenUp++
		return 0
	}
	defer resp.Body.Close()
	var answer struct {
		Receipt string `json:"receipt"`
		Pause   int64  `json:"retry_after_ms"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		i.GivenUp++
		return 0
	}
	switch resp.StatusCode {
	case http.StatusOK:
		i.Receipt = answer.Receipt
		i.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	case http.StatusConflict:
		i.Refused++
	}
	return max(time.Duration(answer.Pause)*time.Millisecond, patience)
}
