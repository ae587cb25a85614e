package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/retry"
)

// A client waits for a response for at most patience. The bank takes bankDelay, which
// is longer.
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
	Refused  int    `json:"refused"`  // tries answered 409, because an earlier try was in progress
	Receipt  string `json:"receipt"`
	Replayed bool   `json:"replayed"` // the receipt was marked as replayed
	Charged  int64  `json:"charged"`  // number of charges by the bank
}

// satisfied reports whether the client was charged once and has a replayed receipt of
// that charge. The client never waits long enough for a run, so every receipt must be
// replayed.
func (i insistence) satisfied() bool {
	return i.Charged == 1 && i.Receipt == i.Order+"/1" && i.Replayed
}

// insistAll makes n clients pay one order each, all at the same time.
func insistAll(ctx context.Context, replicas []string, prefix string, n int) ([]insistence, error) {
	base := &http.Transport{MaxIdleConnsPerHost: n}
	defer base.CloseIdleConnections()
	results, failures := make([]insistence, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i].Order = prefix + strconv.Itoa(i+1)
			results[i].insist(ctx, base, replicas)
			o, err := get(ctx, &http.Client{Transport: base}, fmt.Sprintf("http://%s/orders/%s", replicas[0], results[i].Order))
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

// serviceName is the host of the requests. The rotation replaces it by the address of a
// replica.
const serviceName = "payment.example"

// insist sends requests with one Idempotency-Key until there is a receipt, at most
// mostTries times.
func (i *insistence) insist(ctx context.Context, base http.RoundTripper, replicas []string) {
	client := &http.Client{Transport: httpretry.New(&rotation{base, replicas, i}, httpretry.Hosts(serviceName),
		httpretry.TryTimeout(patience), httpretry.Retry(retry.Policy{Initial: 10 * time.Millisecond, Attempts: mostTries}))}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://%s/orders/%s/pay", serviceName, i.Order), nil)
	if err != nil {
		return
	}
	req.Header.Set("X-Bank-Delay", bankDelay.String())
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var answer struct {
		Receipt string `json:"receipt"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		return
	}
	i.Receipt, i.Replayed = answer.Receipt, resp.Header.Get("Idempotent-Replayed") == "true"
}

// rotation sends each try to the next replica, and counts the outcomes.
type rotation struct {
	http.RoundTripper
	replicas []string
	counts   *insistence
}

func (r *rotation) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = r.replicas[r.counts.Tries%len(r.replicas)]
	r.counts.Tries++
	resp, err := r.RoundTripper.RoundTrip(req)
	switch {
	case err != nil:
		r.counts.GivenUp++
	case resp.StatusCode == http.StatusConflict:
		r.counts.Refused++
	}
	return resp, err
}
