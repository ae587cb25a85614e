package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// The reply to the first try is lost. The second try gets the first try's response, and
// the order is charged once.
func ExampleNew() {
	locker, _ := core.New(memstore.New()) // in production a store that all replicas share
	runs, _ := once.New(locker)
	charges := 0
	pay := stdmw.Idempotent(runs, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
	}))
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 1 {
			pay.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection breaks
		}
		pay.ServeHTTP(w, r)
	}))
	defer server.Close()

	client := &http.Client{Transport: httpretry.New(nil, httpretry.Hosts(server.Listener.Addr().String()))}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx = httpretry.WithKey(ctx, "order-42") // stored with the order before the request is sent
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/pay", strings.NewReader("5 euros"))
	resp, err := client.Do(req)
	var unknown *httpretry.UnknownError
	isUnknown := errors.As(err, &unknown)
	switch {
	case isUnknown:
		fmt.Println("repeat it later under", unknown.Key)
	case err != nil:
		fmt.Println("not carried out:", err)
	default:
		defer resp.Body.Close()
		fmt.Println(resp.Status, "replayed:", resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("requests:", requests, "charges:", charges)
	// Output:
	// 201 Created replayed: true
	// requests: 2 charges: 1
}
