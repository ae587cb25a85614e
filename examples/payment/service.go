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

// order is what the ledger and the bank know of an order.
type order struct {
	ID      string `json:"id"`
	Paid    bool   `json:"paid"`
	Receipt string `json:"receipt,omitempty"`
	Charges int64  `json:"charges"` // how often the bank took the money
}

// service is one replica of the payment service.
type service struct {
	orders ledger
}

// routes mounts the service. locks may be nil, to show what happens then.
func (s *service) routes(locks *core.Locker, runs *once.Once) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true // so that c, too, ends when the lock is lost
	r.Use(gin.Recovery())
	r.GET("/orders/:id", s.show)
	if locks == nil {
		r.POST("/orders/:id/pay", s.pay)
		return r
	}
	// A client that asks again under its Idempotency-Key gets the first answer,
	// also if it went away before there was one. Clients without a key are only
	// kept from each other.
	idempotent := httpmw.Idempotent(runs, customer, httpmw.Detached(), httpmw.Optional())
	r.POST("/orders/:id/pay", idempotent, httpmw.Lock(locks, "order", httpmw.Param("id")), s.pay)
	return r
}

// customer is the paying customer. A real service takes it from authentication, so that
// no customer gets another one's receipt.
func customer(c *gin.Context) (string, error) {
	if name := c.GetHeader("X-Customer"); name != "" {
		return name, nil
	}
	return "guest", nil
}

// pay is written as if it were the only request: it reads the order, charges the
// bank, and writes the order back. Two of them at once charge twice.
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
	if err := s.orders.finish(c, o); err != nil {
		fail(c, err)
	}
}

// charge is the bank: it takes the money, needs a few milliseconds, or as long as
// the client says, and answers with a receipt. It counts what it did.
func (s *service) charge(ctx context.Context, id string, slow time.Duration) (receipt string, err error) {
	select {
	case <-time.After(5*time.Millisecond + rand.N(5*time.Millisecond)):
	case <-ctx.Done(): // the client has gone, or the lock is lost
		return "", context.Cause(ctx)
	}
	n, err := s.orders.charge(ctx, id)
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done(): // and the money is gone
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
