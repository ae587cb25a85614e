package httpmw_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw"
)

// TestMismatch_InProgress checks another request under the key of a request in
// progress. It covers hazard 60.
func TestMismatch_InProgress(t *testing.T) { onEachKey(t, testMismatchInProgress) }

func testMismatchInProgress(t *testing.T, mw framework) {
	t.Parallel()
	s, inside, finish := mw.newSite(t), make(chan struct{}), make(chan struct{})
	s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
		close(inside)
		<-finish
		c.String(http.StatusOK, "paid")
	})
	first := make(chan reply, 1)
	go func() { first <- s.pay("k", "/", "5 euros") }()
	within(t, "the handler runs", inside)
	p := s.pay("k", "/", "6 euros").problem(t, http.StatusConflict)
	if !strings.HasSuffix(p["type"].(string), "idempotency-in-progress") {
		t.Errorf("got %v, want idempotency-in-progress", p["type"])
	}
	close(finish)
	if r := within(t, "the first answer", first); r.body != "paid" {
		t.Errorf("got %q, want paid", r.body)
	}
	s.pay("k", "/", "6 euros").problem(t, http.StatusUnprocessableEntity)
}

// TestServicesOfOneStore tests two services with one store. One service passes its
// client's key on to the other service.
func TestServicesOfOneStore(t *testing.T) { onEachKey(t, testServicesOfOneStore) }

func testServicesOfOneStore(t *testing.T, mw framework) {
	t.Parallel()
	named := func(service string) httpmw.KeyFunc {
		return mw.Join(func(*gin.Context) (string, error) { return service, nil }, mw.AnyCaller())
	}
	for name, c := range map[string]struct {
		shop, billing httpmw.KeyFunc
		want          int
	}{
		"one scope":         {mw.AnyCaller(), mw.AnyCaller(), http.StatusConflict},
		"scopes with names": {named("shop"), named("billing"), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, charges := mw.newSite(t), atomic.Int32{}
			s.POST("/charge", mw.Idempotent(s.runs(), c.billing), func(c *gin.Context) {
				c.String(http.StatusOK, "charge %d", charges.Add(1))
			})
			s.POST("/buy", mw.Idempotent(s.runs(), c.shop), func(c *gin.Context) {
				r := s.pay(c.GetHeader(mw.header), "/charge", "{}")
				c.String(r.status, r.body)
			})
			for range 2 {
				if r := s.pay("k", "/buy", "{}"); r.status != c.want || r.status == http.StatusOK && r.body != "charge 1" {
					t.Errorf("got %d %q, want %d", r.status, r.body, c.want)
				}
			}
		})
	}
}
