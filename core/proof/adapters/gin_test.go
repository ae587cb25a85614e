package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw"
)

// ginFront is a gin service behind an http.Server with its own listener.
type ginFront struct {
	*service
	server *http.Server
	addr   string
	client *http.Client
	served chan struct{}
}

func serveGin(v *service) front {
	f := &ginFront{service: v, client: &http.Client{Transport: &http.Transport{}}, served: make(chan struct{})}
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), withTimeout)
	var opts []httpmw.Option
	if v.rushes() {
		opts = append(opts, httpmw.Acquire(core.Wait(patience)))
	}
	route := []gin.HandlerFunc{httpmw.Lock(v.locker, "order", httpmw.JSON("order"), opts...), f.pay}
	if v.idempotent {
		route = append([]gin.HandlerFunc{httpmw.Idempotent(v.runs, httpmw.AnyCaller())}, route...)
	}
	engine.POST("/pay", route...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		v.t.Fatal(err)
	}
	f.addr, f.server = listener.Addr().String(), &http.Server{Handler: engine}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(listener)
	}()
	return f
}

// withTimeout gives the request's context the timeout in the header X-Timeout.
func withTimeout(c *gin.Context) {
	if d, err := time.ParseDuration(c.GetHeader("X-Timeout")); err == nil {
		ctx, cancel := context.WithTimeout(c.Request.Context(), d)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
	}
	c.Next()
}

func (f *ginFront) pay(c *gin.Context) {
	text, err := f.work(c.Request.Context(), f.name)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		c.String(http.StatusGatewayTimeout, "too late")
	case err != nil:
		c.String(http.StatusBadGateway, "failed")
	default:
		c.String(http.StatusOK, text)
	}
}

func (f *ginFront) call(ctx context.Context, r request) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.addr+"/pay", strings.NewReader(fmt.Sprintf(`{"order":%q}`, r.order)))
	if err != nil {
		return answer{outcome: outcome(err.Error())}
	}
	if r.timeout > 0 {
		req.Header.Set("X-Timeout", r.timeout.String())
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", r.key)
	resp, err := f.client.Do(req)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return answer{outcome: gone, raw: err.Error()}
		}
		return answer{outcome: outcome(err.Error())}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{outcome: outcome(err.Error())}
	}
	a := answer{text: string(body), raw: fmt.Sprint(resp.Status, " ", resp.Header, " ", string(body))}
	a.outcome = f.outcome(resp, a.text)
	return a
}

func (f *ginFront) outcome(resp *http.Response, body string) outcome {
	is := func(status int, problems ...string) bool {
		if resp.StatusCode != status || len(problems) == 0 {
			return resp.StatusCode == status
		}
		named := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(body, "#"+p+`"`) })
		return named && resp.Header.Get("Content-Type") == "application/problem+json" && resp.Header.Get("Retry-After") == "1"
	}
	switch {
	case is(http.StatusOK) && resp.Header.Get("Idempotent-Replayed") == "true":
		return replayed
	case is(http.StatusOK):
		return done
	case is(http.StatusConflict, "lock-busy", "idempotency-in-progress"):
		return busy
	case is(http.StatusServiceUnavailable, "lock-unavailable", "idempotency-unavailable"):
		return unavailable
	case is(http.StatusGatewayTimeout):
		return timeout
	case is(http.StatusInternalServerError) && body == "":
		return crashed
	}
	return "another answer"
}

func (f *ginFront) redelivered(int) {}

func (f *ginFront) stop() <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.server.Shutdown(ctx); err != nil {
			f.t.Errorf("shutdown: %v", err)
		}
	}()
	awaitRefusal(f.stage, f.addr)
	return stopped
}

func awaitRefusal(s *stage, addr string) {
	testserver.Eventually(s.t, patience, "connections are refused", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

func (f *ginFront) close() {
	_ = f.server.Close()
	<-f.served
	f.client.CloseIdleConnections()
}
