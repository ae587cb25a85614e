package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

// order is the state of an order in the ledger and at the bank.
type order struct {
	ID      string `json:"id"`
	Paid    bool   `json:"paid"`
	Receipt string `json:"receipt,omitempty"`
	Charges int64  `json:"charges"` // number of charges by the bank
}

// service is one replica of the payment service.
type service struct {
	orders ledger
}

// routes returns the service's routes. locks may be nil, to show the effect of missing
// locks. It fails if the engine or a route does not fit its locks.
func (s *service) routes(locks *core.Locker, runs *once.Once) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true // makes c done too when the lock is lost
	r.Use(gin.Recovery())
	r.GET("/orders/:id", s.show)
	if locks == nil {
		r.POST("/orders/:id/pay", s.pay)
		return r, nil
	}
	// A client that repeats a request with its Idempotency-Key receives the first
	// response, even if it disconnected before the response was complete. For requests
	// without a key, the lock only prevents concurrent payments of an order.
	idempotent := httpmw.Idempotent(runs, customer, httpmw.Detached(), httpmw.Optional())
	r.POST("/orders/:id/pay", idempotent, httpmw.Lock(locks, "order", httpmw.Param("id")), s.pay)
	return r, httpmw.Check(r)
}

// customer returns the paying customer. A real service must take the customer from
// authentication, so that no customer receives another customer's receipt.
func customer(c *gin.Context) (string, error) {
	if name := c.GetHeader("X-Customer"); name != "" {
		return name, nil
	}
	return "guest", nil
}

// pay reads the order, charges the bank, and writes the order, as if no other request
// ran at the same time. Two concurrent calls for one order charge twice.
func (s *service) pay(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	o, err := s.orders.read(ctx, id)
	if err != nil {
		fail(c, err)
		return
	}
	if o.Paid {
		answer(c, o)
		return
	}
	slow, _ := time.ParseDuration(c.GetHeader("X-Bank-Delay"))
	if o.Receipt, err = s.charge(ctx, id, min(slow, time.Minute)); err != nil {
		fail(c, err)
		return
	}
	o.Paid = true
	// If this write fails, the response is not stored, and a repetition charges again. A
	// real bank needs a key for each order, as in examples/recipes/charge.
	if err := s.orders.finish(c, o); err != nil {
		fail(c, err)
	}
}

// charge stands for the bank. After a few milliseconds it charges the order and counts
// the charge. It returns a receipt after the additional time slow.
func (s *service) charge(ctx context.Context, id string, slow time.Duration) (receipt string, err error) {
	select {
	case <-time.After(5*time.Millisecond + rand.N(5*time.Millisecond)):
	case <-ctx.Done(): // the client has disconnected, or the lock is lost
		return "", context.Cause(ctx)
	}
	n, err := s.orders.charge(ctx, id)
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done(): // the order is already charged
		return "", context.Cause(ctx)
	}
	return fmt.Sprintf("%s/%d", id, n), nil
}

func (s *service) show(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	o, err := s.orders.read(ctx, id)
	if err == nil {
		o.Charges, err = s.orders.charges(ctx, id)
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, o)
}

func fail(c *gin.Context, err error) {
	c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
}
