package stdmw_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// The handler refuses a request before it has done anything, and leaves the key free.
// The client corrects the request and sends it again under the same key.
func ExampleError() {
	locker, _ := core.New(memstore.New()) // in production a store that all replicas share
	runs, _ := once.New(locker)
	charges := 0
	pay := stdmw.Idempotent(runs, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Amount int }
		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil && in.Amount <= 0 {
			err = errors.New("the amount is missing")
		}
		if err != nil {
			stdmw.Error(r.Context(), once.Withdraw(err)) // nothing was done
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		charges++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "charge %d of %d", charges, in.Amount)
	}))

	for _, body := range []string{`{}`, `{"amount":5}`, `{"amount":5}`} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "k-1")
		pay.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 422 the amount is missing
	// 201 charge 1 of 5
	// 201 charge 1 of 5
}
