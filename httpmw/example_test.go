package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func ExampleLock() {
	locker, _ := core.New(memstore.New()) // in production a store that all replicas share
	router := gin.New()
	router.POST("/orders/:id/pay", httpmw.Lock(locker, "order", httpmw.Param("id")), func(c *gin.Context) {
		ctx := c.Request.Context() // canceled when the client goes away or the lock is lost
		lease, _ := core.LeaseFromContext(ctx)
		c.String(http.StatusOK, "charged under %s, fenced: %v", lease.Key(), lease.Token() > 0)
	})

	fmt.Println(post(router, "/orders/42/pay", ""))

	// Another process is working on the order.
	lease, _ := locker.Acquire(context.Background(), core.Key("order", "42"))
	fmt.Println(post(router, "/orders/42/pay", ""))
	_ = lease.Release(context.Background())
	// Output:
	// 200 charged under order:42, fenced: true
	// 409 {"type":"https://github.com/lockkit/lockkit/blob/main/httpmw/PROBLEMS.md#lock-busy","title":"Busy","status":409,"detail":"Another request is in progress.","lock":"order","retry_after_ms":1000}
}

// A client that got no response repeats its request under the same key, and is not
// charged twice. The same key from another caller counts as another key.
func ExampleIdempotent() {
	locker, _ := core.New(memstore.New()) // in production a store that all replicas share
	runs, _ := once.New(locker)
	// Your authentication middleware sets the header.
	customer := func(c *gin.Context) (string, error) { return c.GetHeader("X-Customer"), nil }
	charges := 0
	router := gin.New()
	router.POST("/orders/:id/pay", httpmw.Idempotent(runs, customer), func(c *gin.Context) {
		charges++
		c.String(http.StatusCreated, "receipt %d", charges)
	})

	for _, request := range [][3]string{{"ann", "k-1", "5 euros"}, {"ann", "k-1", "5 euros"}, {"bob", "k-1", "5 euros"}, {"ann", "k-1", "6 euros"}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/orders/42/pay", strings.NewReader(request[2]))
		r.Header.Set("X-Customer", request[0])
		r.Header.Set("Idempotency-Key", request[1])
		router.ServeHTTP(w, r)
		fmt.Printf("%d %.9s, replayed: %v\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 receipt 1, replayed: false
	// 201 receipt 1, replayed: true
	// 201 receipt 2, replayed: false
	// 422 {"type":", replayed: false
}

// A handler refuses a request before it has done anything, and leaves the key free.
// The client corrects the request and sends it again under the same key.
func ExampleIdempotent_withdraw() {
	locker, _ := core.New(memstore.New())
	runs, _ := once.New(locker)
	charges := 0
	router := gin.New()
	router.POST("/pay", httpmw.Idempotent(runs, httpmw.AnyCaller()), func(c *gin.Context) {
		var in struct {
			Amount int `binding:"required"`
		}
		if err := c.ShouldBindJSON(&in); err != nil {
			_ = c.Error(once.Withdraw(err)) // nothing was done
			c.String(http.StatusUnprocessableEntity, "the amount is missing")
			return
		}
		charges++
		c.String(http.StatusCreated, "charge %d of %d", charges, in.Amount)
	})

	fmt.Println(postWithKey(router, "/pay", `{}`, "k-1"))
	fmt.Println(postWithKey(router, "/pay", `{"amount":5}`, "k-1"))
	fmt.Println(postWithKey(router, "/pay", `{"amount":5}`, "k-1"))
	// Output:
	// 422 the amount is missing
	// 201 charge 1 of 5
	// 201 charge 1 of 5
}

// Code outside HTTP takes the lock of a request whose key Join makes.
func ExampleJoin() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	key := httpmw.Join(httpmw.Param("tenant"), httpmw.Param("order"))
	router.POST("/:tenant/orders/:order", httpmw.Lock(locker, "order", key), ok)

	fmt.Println(post(router, "/acme/orders/a:7", ""))
	fmt.Println("   ", core.Key("order", "acme", "a:7"))
	// Output:
	// 200 order:acme:a%3A7
	//     order:acme:a%3A7
}

func ExampleJSON() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	router.POST("/pay", httpmw.Lock(locker, "order", httpmw.JSON("order.id")), func(c *gin.Context) {
		var in struct{ Order struct{ ID int64 } }
		if err := c.ShouldBindJSON(&in); err != nil { // the body can be read again
			c.String(http.StatusBadRequest, "%v", err)
			return
		}
		c.String(http.StatusOK, "charged %d", in.Order.ID)
	})

	fmt.Println(post(router, "/pay", `{"order":{"id":9007199254740993}}`))
	// Output:
	// 200 charged 9007199254740993
}

// A transfer locks both accounts. Two transfers in opposite directions do not
// deadlock.
func ExampleAlso() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	lock := httpmw.Lock(locker, "account", httpmw.JSON("from"), httpmw.Also(httpmw.JSON("to")))
	router.POST("/transfers", lock, func(c *gin.Context) {
		_, from := core.LeaseOf(c.Request.Context(), core.Key("account", "a"))
		_, to := core.LeaseOf(c.Request.Context(), core.Key("account", "b"))
		c.String(http.StatusOK, "locked: %v and %v", from, to)
	})

	fmt.Println(post(router, "/transfers", `{"from":"b","to":"a","amount":5}`))
	// Output:
	// 200 locked: true and true
}

// Requests wait up to 2 seconds for the lock before they are refused.
func ExampleAcquire() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	lock := httpmw.Lock(locker, "cart", httpmw.Header("X-Cart"), httpmw.Acquire(
		core.Wait(2*time.Second),
		core.MaxHold(time.Minute), // a handler that hangs does not block its cart for ever
	))
	router.POST("/cart", lock, ok)

	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/cart", nil)
	r.Header.Set("X-Cart", "c-17")
	router.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	// Output:
	// 200 cart:c-17
}

func ExampleRender() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	inHouse := func(c *gin.Context, p httpmw.Problem) {
		c.JSON(p.Status, gin.H{"error": p.Title, "retryable": p.RetryAfter > 0})
	}
	router.POST("/pay", httpmw.Lock(locker, "order", httpmw.Query("order"), httpmw.Render(inHouse)), ok)

	fmt.Println(post(router, "/pay", ""))
	// Output:
	// 400 {"error":"Key missing or not allowed","retryable":false}
}

// A key function returns one key for several spellings of a value.
func ExampleKeyFunc() {
	locker, _ := core.New(memstore.New())
	router := gin.New()
	email := func(c *gin.Context) (string, error) {
		address := strings.ToLower(c.Query("email"))
		if !strings.Contains(address, "@") {
			return "", fmt.Errorf("no e-mail address: %w", core.ErrInvalid) // 400
		}
		return address, nil
	}
	router.POST("/signup", httpmw.Lock(locker, "signup", email), ok)

	fmt.Println(post(router, "/signup?email=Ann@Example.com", ""))
	fmt.Println(post(router, "/signup?email=ann@example.com", ""))
	// Output:
	// 200 signup:ann@example.com
	// 200 signup:ann@example.com
}

// Responses of 500 are stored too, because the charge may have been made.
func ExampleKeepIf() {
	locker, _ := core.New(memstore.New())
	runs, _ := once.New(locker)
	charges := 0
	router := gin.New()
	keepAll := httpmw.KeepIf(func(httpmw.Kept) bool { return true })
	router.POST("/pay", httpmw.Idempotent(runs, httpmw.AnyCaller(), keepAll), func(c *gin.Context) {
		charges++
		c.String(http.StatusInternalServerError, "attempt %d failed", charges)
	})

	fmt.Println(postWithKey(router, "/pay", "{}", "k-1"))
	fmt.Println(postWithKey(router, "/pay", "{}", "k-1"))
	// Output:
	// 500 attempt 1 failed
	// 500 attempt 1 failed
}

// The Idempotency-Key is optional: a request without a key runs as usual.
func ExampleSkip() {
	locker, _ := core.New(memstore.New())
	runs, _ := once.New(locker)
	router := gin.New()
	keyless := httpmw.Skip(func(c *gin.Context) bool { return c.GetHeader("Idempotency-Key") == "" })
	router.POST("/pay", httpmw.Idempotent(runs, httpmw.AnyCaller(), keyless), func(c *gin.Context) {
		c.String(http.StatusOK, "charged")
	})

	fmt.Println(post(router, "/pay", "{}"))
	// Output:
	// 200 charged
}

// A client that writes the same order in another form sends the same request.
func ExampleFingerprint() {
	locker, _ := core.New(memstore.New())
	runs, _ := once.New(locker)
	router := gin.New()
	same := httpmw.Fingerprint(httpmw.Join(httpmw.JSON("order"), httpmw.JSON("amount")))
	charges := 0
	router.POST("/pay", httpmw.Idempotent(runs, httpmw.AnyCaller(), same), func(c *gin.Context) {
		charges++
		c.String(http.StatusOK, "charge %d", charges)
	})

	fmt.Println(postWithKey(router, "/pay", `{"order": 42, "amount": 5}`, "k-1"))
	fmt.Println(postWithKey(router, "/pay", `{"amount":5,"order":42}`, "k-1"))
	fmt.Printf("%.3s\n", postWithKey(router, "/pay", `{"order":42,"amount":6}`, "k-1"))
	// Output:
	// 200 charge 1
	// 200 charge 1
	// 422
}

// The client disconnects while the handler runs, and gets the response when it repeats
// the request.
func ExampleDetached() {
	locker, _ := core.New(memstore.New())
	runs, _ := once.New(locker)
	leave := func() {}
	router := gin.New()
	router.POST("/pay", httpmw.Idempotent(runs, httpmw.AnyCaller(), httpmw.Detached()), func(c *gin.Context) {
		leave()
		if err := c.Request.Context().Err(); err != nil {
			c.String(http.StatusInternalServerError, "not charged: %v", err)
			return
		}
		c.String(http.StatusOK, "charged")
	})

	ctx, cancel := context.WithCancel(context.Background())
	leave = cancel
	first := httptest.NewRequestWithContext(ctx, http.MethodPost, "/pay", strings.NewReader("{}"))
	first.Header.Set("Idempotency-Key", "k-1")
	router.ServeHTTP(httptest.NewRecorder(), first)

	fmt.Println(postWithKey(router, "/pay", "{}", "k-1"))
	// Output:
	// 200 charged
}

func postWithKey(h http.Handler, path, body, key string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body)
}

func post(h http.Handler, path, body string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return fmt.Sprint(w.Code, " ", w.Body)
}
