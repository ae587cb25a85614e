// Command stdlib is a payment service that uses only net/http. Its clients click "pay"
// on one order many times at once, at two replicas. The order is charged once. A click
// during the charge is refused, because a payment is in progress. A client that sends its
// request again with its Idempotency-Key receives the same receipt.
//
//	go run ./examples/stdlib                         # embedded Redis, no server needed
//	go run ./examples/stdlib -redis 127.0.0.1:6379
//
// The exit code is 0 if the order was charged once, and the repeated request got the same
// receipt. It is 1 if not, or if something failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis server (default: an embedded one)")
	clicks := flag.Int("clicks", 20, "how many clicks at once")
	flag.Parse()
	if err := run(*addr, *clicks); err != nil {
		fmt.Fprintln(os.Stderr, "stdlib:", err)
		os.Exit(1)
	}
}

// bank handles a request as if no other request ran at the same time: two concurrent
// clicks charge twice.
type bank struct {
	receipts sync.Map // receipts of the paid orders
	charges  atomic.Int32
}

func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	lease, _ := core.LeaseFromContext(r.Context())
	receipt, paid := b.receipts.Load(lease.Key())
	if !paid {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done(): // the client has disconnected, or the lock is lost
			return
		}
		receipt = fmt.Sprintf("receipt %d for %s", b.charges.Add(1), lease.Key())
		b.receipts.Store(lease.Key(), receipt)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, receipt)
}

// replica starts a service with its own client and locks.
func replica(addr string, b *bank) (_ *httptest.Server, stop func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.New(client)
	if err != nil {
		return nil, nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, nil, err
	}
	runs, err := once.New(locks)
	if err != nil {
		return nil, nil, err
	}
	customer := stdmw.Header("X-Customer") // a real service takes it from authentication
	idempotent, lock := stdmw.Idempotent(runs, customer), stdmw.Lock(locks, "order", stdmw.Path("id"))

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", idempotent(lock(http.HandlerFunc(b.pay))))
	server := httptest.NewServer(mux)
	return server, func() error {
		server.Close()
		return errors.Join(locks.Close(context.Background()), store.Close(), client.Close())
	}, nil
}

func run(addr string, clicks int) (err error) {
	if addr == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		embedded.ClockTTL(true)
		addr = embedded.Addr()
	}
	var b bank
	var urls []string
	order := fmt.Sprint(time.Now().UnixNano())
	for range 2 {
		server, stop, failed := replica(addr, &b)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
		urls = append(urls, server.URL+"/orders/"+order+"/pay")
	}
	var wg sync.WaitGroup
	var paid atomic.Value // the Idempotency-Key of a click that got a receipt
	var busy atomic.Int32
	for i := range clicks {
		wg.Go(func() {
			key := fmt.Sprintf("%s-%d", order, i)
			switch status, _ := post(urls[i%2], key); status {
			case http.StatusCreated:
				paid.Store(key)
			case http.StatusConflict:
				busy.Add(1)
			}
		})
	}
	wg.Wait()
	key, _ := paid.Load().(string)
	status, receipt := post(urls[0], key)
	again, same := post(urls[1], key)
	fmt.Printf("%d clicks: %d charged, %d refused meanwhile\nasked again: %d %s\n", clicks, b.charges.Load(), busy.Load(), again, same)
	if b.charges.Load() != 1 || status != http.StatusCreated || again != status || same != receipt {
		return errors.New("the order was not charged once")
	}
	return nil
}

func post(url, key string) (status int, body string) {
	req, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("X-Customer", "ann")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}
