package httpmw_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// wire is a writer that records the part of a response that has reached the connection.
type wire struct {
	header http.Header // the map from which trailers are read at the end

	mu     sync.Mutex
	sentAs http.Header // a copy of the header at the first write
	status int
	sent   bytes.Buffer
	breaks any // if not nil, WriteHeader panics with this value
}

func (w *wire) Header() http.Header { return w.header }

func (w *wire) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.breaks != nil {
		panic(w.breaks)
	}
	w.status, w.sentAs = status, w.header.Clone()
}

func (w *wire) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.Write(data)
}

func (w *wire) CloseNotify() <-chan bool { return nil }

func (w *wire) Flush() { _, _ = w.Write([]byte("|")) }

// seen returns the status and body so far, with a "|" for each flush.
func (w *wire) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.status, " ", w.sent.String())
}

// bubble is a service without a listener, in virtual time.
type bubble struct {
	mw framework
	*gin.Engine
	idempotent gin.HandlerFunc
}

func (mw framework) inBubble(t *testing.T, body func(t *testing.T, s *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &bubble{mw, newEngine(), mw.idempotentOf(t)}
		body(t, s)
	})
}

// idempotentOf returns an Idempotent with a separate store.
func (mw framework) idempotentOf(t *testing.T) gin.HandlerFunc {
	t.Helper()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	o, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return mw.Idempotent(o, mw.AnyCaller())
}

// post sends a request. It returns the recorded response, and a channel that is closed
// when the response is complete.
func (s *bubble) post(path string) (*wire, <-chan struct{}) {
	w, over := &wire{header: http.Header{}}, make(chan struct{})
	req := httptest.NewRequest(http.MethodPost, path, nil)
	req.Header.Set(s.mw.header, "key-of-"+path)
	go func() {
		defer close(over)
		s.ServeHTTP(w, req)
	}()
	return w, over
}

// after waits for d, and until every other goroutine is blocked.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestFlushes(t *testing.T) { onEachKey(t, testFlushes) }

func testFlushes(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("flushed response done within a second", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				c.Status(http.StatusCreated)
				for i := range 3 {
					fmt.Fprintf(c.Writer, "%d", i)
					c.Writer.Flush()
					time.Sleep(333 * time.Millisecond)
				}
			})
			first, over := s.post("/")
			after(998 * time.Millisecond)
			if got := first.seen(); got != "0 " {
				t.Errorf("before the answer is over, %q was sent", got)
			}
			<-over
			if got := first.seen(); got != "201 0|1|2|" {
				t.Errorf("got %q", got)
			}
			again, over := s.post("/")
			<-over
			if got := again.seen(); got != "201 012" || again.sentAs.Get("Idempotent-Replayed") != "true" {
				t.Errorf("the replay is %q %v", got, again.sentAs)
			}
		})
	})

	t.Run("gin stream done within a second", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				n := 0
				c.Stream(func(w io.Writer) bool {
					n++
					fmt.Fprintf(w, "%d ", n)
					return n < 3
				})
			})
			for _, want := range []string{"200 1 |2 |3 |", "200 1 2 3 "} {
				w, over := s.post("/")
				<-over
				if got := w.seen(); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	})

	t.Run("silent stream", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				c.String(http.StatusOK, "one")
				c.Writer.Flush()
				time.Sleep(time.Minute)
				c.String(http.StatusOK, "two")
				c.Writer.Flush()
				time.Sleep(time.Minute)
				if !c.Writer.Written() || c.Writer.Size() != 6 || c.Writer.Status() != http.StatusOK {
					t.Errorf("the writer says %v %d %d", c.Writer.Written(), c.Writer.Size(), c.Writer.Status())
				}
			})
			w, over := s.post("/")
			for _, step := range []struct {
				wait time.Duration
				want string
			}{{999 * time.Millisecond, "0 "}, {time.Millisecond, "200 one|"}, {time.Minute, "200 one|two|"}} {
				after(step.wait)
				if got := w.seen(); got != step.want {
					t.Errorf("%v later, %q was sent, want %q", step.wait, got, step.want)
				}
			}
			<-over
			again, over := s.post("/")
			<-over
			if !strings.HasPrefix(again.seen(), "410 ") {
				t.Errorf("asked again, got %q", again.seen())
			}
		})
	})

	t.Run("second counts from the first flush", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				for i := range 4 {
					fmt.Fprintf(c.Writer, "%d", i)
					c.Writer.Flush()
					time.Sleep(400 * time.Millisecond)
				}
			})
			w, over := s.post("/")
			after(time.Second)
			if got := w.seen(); got != "200 0|1|2|" {
				t.Errorf("after a second, %q was sent", got)
			}
			<-over
		})
	})

	t.Run("many flushes are joined", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				for range 1000 {
					_, _ = c.Writer.WriteString("x")
					c.Writer.Flush()
				}
				time.Sleep(time.Minute)
			})
			w, over := s.post("/")
			after(time.Second)
			if got := w.seen(); strings.Count(got, "x") != 1000 || !strings.HasSuffix(got, "|") {
				t.Errorf("after a second, %d bytes were sent, which end with %q", strings.Count(got, "x"), got[len(got)-1:])
			}
			<-over
		})
	})

	t.Run("flush under two Idempotents", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, mw.idempotentOf(t), func(c *gin.Context) {
				c.String(http.StatusOK, "one")
				c.Writer.Flush()
				time.Sleep(time.Minute)
			})
			w, over := s.post("/")
			after(time.Second)
			if got := w.seen(); got != "200 one|" {
				t.Errorf("after a second, %q was sent", got)
			}
			<-over
		})
	})

	t.Run("handler panics after a flush", func(t *testing.T) {
		t.Parallel()
		for pause, want := range map[time.Duration]string{time.Second / 2: "500 ", 2 * time.Second: "200 one|"} {
			mw.inBubble(t, func(t *testing.T, s *bubble) {
				runs := 0
				s.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
				s.POST("/", s.idempotent, func(c *gin.Context) {
					runs++
					c.String(http.StatusOK, "one")
					c.Writer.Flush()
					time.Sleep(pause)
					panic("card reader on fire")
				})
				for n := range 2 {
					w, over := s.post("/")
					<-over
					after(time.Minute)
					if got := w.seen(); got != want || runs != n+1 {
						t.Errorf("got %q after %d runs, want %q", got, runs, want)
					}
				}
			})
		}
	})

	t.Run("writer panics under the timer", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			var recovered []any
			s.Use(func(c *gin.Context) {
				defer func() { recovered = append(recovered, recover()) }()
				c.Next()
			})
			s.POST("/:more", s.idempotent, func(c *gin.Context) {
				c.Writer.Flush()
				time.Sleep(time.Minute)
				if c.Param("more") == "write" {
					_, _ = c.Writer.WriteString("two")
					t.Error("it could write")
				}
			})
			for _, path := range []string{"/write", "/return"} {
				w, over := s.post(path)
				w.mu.Lock()
				w.breaks = http.ErrAbortHandler
				w.mu.Unlock()
				<-over
			}
			if len(recovered) != 2 || recovered[0] != http.ErrAbortHandler || recovered[1] != http.ErrAbortHandler {
				t.Errorf("recovered %v", recovered)
			}
		})
	})

	t.Run("headers set during a flush", func(t *testing.T) {
		t.Parallel()
		mw.inBubble(t, func(t *testing.T, s *bubble) {
			s.POST("/", s.idempotent, func(c *gin.Context) {
				h := c.Writer.Header()
				h.Set("Trailer", "X-Sum")
				_, _ = c.Writer.WriteString("one")
				c.Writer.Flush()
				time.Sleep(time.Second) // the timer runs at the same instant
				for i := range 1000 {
					h.Set("X-Sum", fmt.Sprint(i))
				}
			})
			w, over := s.post("/")
			<-over
			if w.sentAs.Get("Trailer") != "X-Sum" || w.header.Get("X-Sum") != "999" {
				t.Errorf("the header is %v, and %v in the end", w.sentAs, w.header)
			}
		})
	})
}
