package httpmw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

func TestHandlerUnderLock(t *testing.T) { onEach(t, testHandlerUnderLock) }

func testHandlerUnderLock(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("client leaves and handler returns", func(t *testing.T) {
		t.Parallel()
		s, inside, ended := mw.newSite(t), make(chan struct{}), make(chan error, 1)
		s.POST("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			_, _ = io.ReadAll(c.Request.Body)
			close(inside)
			<-c.Request.Context().Done()
			ended <- context.Cause(c.Request.Context())
		})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := s.try(ctx, "POST", "/5", "body")
			gone <- err
		}()
		within(t, "the handler runs", inside)
		if s.isFree("order:5") {
			t.Error("the key is free while the handler runs")
		}
		leave()
		if err := within(t, "the client has left", gone); !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		if err := within(t, "the handler's context is done", ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is %v", err)
		}
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
	})

	t.Run("client leaves and handler works", func(t *testing.T) {
		t.Parallel()
		s, inside, finish := mw.newSite(t), make(chan struct{}), make(chan struct{})
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			close(inside)
			<-c.Request.Context().Done()
			<-finish
		})
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-inside
			leave()
		}()
		_, _ = s.try(ctx, "GET", "/5", "")
		if s.isFree("order:5") {
			t.Error("the key is free while the handler runs")
		}
		close(finish)
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
	})

	t.Run("panic frees the key", func(t *testing.T) {
		t.Parallel()
		s, outside := mw.newSite(t), make(chan context.Context, 1)
		recovery := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, reason any) {
			if reason != "card reader on fire" {
				t.Errorf("recovered %v", reason)
			}
			outside <- c.Request.Context()
			c.AbortWithStatus(http.StatusInternalServerError)
		})
		s.GET("/:id", recovery, mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			panic("card reader on fire")
		})
		for range 2 {
			if r := s.send("GET", "/5", ""); r.status != http.StatusInternalServerError || r.body != "" {
				t.Errorf("got %d %q, want an empty 500", r.status, r.body)
			}
			if _, found := core.LeaseFromContext(within(t, "recovered", outside)); found {
				t.Error("recovery still sees the lease")
			}
			if !s.isFree("order:5") {
				t.Error("the key is not free")
			}
		}
	})

	t.Run("lost lease", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		gone := core.ErrLost
		lock := mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.TTL(2*time.Second)))
		s.GET("/:id", pushed.collect, lock, func(c *gin.Context) {
			s.store.extend.Store(&gone)
			<-c.Request.Context().Done()
			if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			c.String(http.StatusCreated, "charged before the loss")
		})
		if r := s.send("GET", "/5", ""); r.status != http.StatusCreated || r.body != "charged before the loss" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		pushed.none(t)
	})

	t.Run("response of the handler stands", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			c.Header("X-Own", "yes")
			_ = c.AbortWithError(http.StatusConflict, core.ErrBusy)
		})
		if r := s.send("GET", "/5", ""); r.status != http.StatusConflict || r.body != "" || r.header.Get("X-Own") != "yes" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("lock is free after the response", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), ok)
		for range 200 {
			if r := s.send("GET", "/5", ""); r.status != http.StatusOK {
				t.Fatalf("got %d %q", r.status, r.body)
			}
		}
	})

	t.Run("request outside is unchanged", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		type tag struct{}
		outer := func(c *gin.Context) {
			c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), tag{}, "kept"))
			before := c.Request
			c.Next()
			if c.Request != before {
				t.Error("c.Request is another one")
			}
			if err := c.Request.Context().Err(); err != nil {
				t.Errorf("its context is done: %v", err)
			}
			if c.Request.MultipartForm == nil || c.Request.PostForm.Get("note") != "hi" {
				t.Error("the parsed form is missing, so its files would not be removed")
			}
		}
		s.POST("/:id", outer, mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			if c.Request.Context().Value(tag{}) != "kept" {
				t.Error("the handler's context is not derived from the request's")
			}
			if lease, _ := core.LeaseFromContext(c.Request.Context()); lease.Token() == 0 || lease.Context().Err() != nil {
				t.Error("no live lease with a token")
			}
			if c.PostForm("note") != "hi" {
				t.Error("no form")
			}
		})
		contentType, form := multipartForm(t, "note", "hi")
		if r := s.send("POST", "/5", form, "Content-Type", contentType); r.status != http.StatusOK {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})
}

func TestStreamsUnderLock(t *testing.T) { onEach(t, testStreamsUnderLock) }

func testStreamsUnderLock(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("server-sent events", func(t *testing.T) {
		t.Parallel()
		s, next := mw.newSite(t), make(chan struct{})
		s.GET("/:id", mw.Lock(s.locker, "feed", mw.Param("id")), func(c *gin.Context) {
			n := 0
			c.Stream(func(io.Writer) bool {
				c.SSEvent("tick", n)
				n++
				if n < 3 {
					c.Writer.Flush()
					within(t, "the client wants more", next)
				}
				return n < 3
			})
		})
		resp, err := s.client.Get(s.url + "/5")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for n := range 3 {
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "data:") {
			}
			if lines.Text() != fmt.Sprintf("data:%d", n) {
				t.Fatalf("got %q, want event %d", lines.Text(), n)
			}
			if n < 2 {
				if s.isFree("feed:5") {
					t.Error("the key is free during the stream")
				}
				next <- struct{}{}
			}
		}
		eventually(t, "the key is free", func() bool { return s.isFree("feed:5") })
	})

	t.Run("hijacked connection", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "socket", mw.Param("id")), func(c *gin.Context) {
			conn, rw, err := c.Writer.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if s.isFree("socket:5") {
				t.Error("the key is free while the connection is used")
			}
			fmt.Fprint(rw, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
			rw.Flush()
		})
		if r := s.send("GET", "/5", ""); r.status != http.StatusOK || r.body != "raw" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		eventually(t, "the key is free", func() bool { return s.isFree("socket:5") })
	})
}

// errorsOf collects c.Errors by the outer middleware collect.
type errorsOf struct {
	mu   sync.Mutex
	list []error
}

func (e *errorsOf) collect(c *gin.Context) {
	c.Next()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range c.Errors {
		e.list = append(e.list, x.Err)
	}
}

func (e *errorsOf) none(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) != 0 {
		t.Errorf("c.Errors has %v, want nothing", e.list)
	}
}

func (e *errorsOf) only(t *testing.T) error {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) != 1 {
		t.Fatalf("c.Errors has %v, want one error", e.list)
	}
	return e.list[0]
}
