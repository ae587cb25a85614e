package httpmw_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/lockkit/lockkit/core"
)

type order struct {
	ID   int64  `json:"id" form:"id"`
	Note string `json:"note" form:"note"`
}

func TestBodyAfterLock(t *testing.T) { onEachKey(t, testBodyAfterLock) }

func testBodyAfterLock(t *testing.T, mw framework) {
	t.Parallel()
	const text = `{"id":9007199254740993,"note":"hi"}`
	want := order{9007199254740993, "hi"}
	for name, read := range map[string]func(c *gin.Context) (order, error){
		"ShouldBindJSON": func(c *gin.Context) (o order, err error) {
			return o, c.ShouldBindJSON(&o)
		},
		"ShouldBind": func(c *gin.Context) (o order, err error) {
			return o, c.ShouldBind(&o)
		},
		"ShouldBindBodyWith": func(c *gin.Context) (o order, err error) {
			return o, c.ShouldBindBodyWith(&o, binding.JSON)
		},
		"ShouldBindBodyWith twice then ShouldBindJSON": func(c *gin.Context) (o order, err error) {
			return o, errors.Join(c.ShouldBindBodyWith(&o, binding.JSON), c.ShouldBindBodyWith(&o, binding.JSON), c.ShouldBindJSON(&o))
		},
		"ShouldBindJSON then ShouldBindBodyWith": func(c *gin.Context) (o order, err error) {
			return o, errors.Join(c.ShouldBindJSON(&o), c.ShouldBindBodyWith(&o, binding.JSON))
		},
		"GetRawData": func(c *gin.Context) (o order, err error) {
			data, err := c.GetRawData()
			if string(data) != text {
				return o, errors.New("another text")
			}
			return want, err
		},
		"gin.BodyBytesKey": func(c *gin.Context) (o order, err error) {
			if data, _ := c.Get(gin.BodyBytesKey); string(data.([]byte)) != text {
				return o, errors.New("another text")
			}
			return want, c.Request.Body.Close()
		},
	} {
		t.Run("handler reads by "+name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(name, "Key") || strings.Contains(name, "then") {
				mw.ofGin(t)
			}
			s := mw.newSite(t)
			handler := func(c *gin.Context) {
				got, err := read(c)
				if err != nil || got != want {
					t.Errorf("got %+v, %v", got, err)
				}
				ok(c)
			}
			lock := mw.Lock(s.locker, "order", mw.JSON("id"), mw.Also(mw.JSON("note")))
			s.POST("/once", lock, handler)
			s.POST("/twice", lock, mw.Lock(s.locker, "again", mw.JSON("id")), handler)
			s.POST("/bound", lock, func(c *gin.Context) { _ = c.ShouldBindJSON(&order{}) }, lock, handler)
			s.POST("/above", func(c *gin.Context) { _ = c.ShouldBindBodyWith(&order{}, binding.JSON) }, lock, handler)
			s.POST("/part", lock, func(c *gin.Context) { _, _ = c.Request.Body.Read(make([]byte, 3)) }, lock, handler)
			for _, path := range []string{"/once", "/twice", "/bound", "/above", "/part"} {
				if path == "/above" && mw.pkg != onGin.pkg {
					// The outer handler stores the body in gin's context, which stdmw
					// does not read.
					continue
				}
				if r := s.send("POST", path, text, "Content-Type", "application/json"); r.status != http.StatusOK {
					t.Errorf("%s: got %d %q", path, r.status, r.body)
				}
			}
		})
	}

	t.Run("middleware replaces the body", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		decrypt := func(c *gin.Context) {
			c.Request.Body = io.NopCloser(strings.NewReader(`{"id":7}`))
			c.Request.ContentLength = -1
		}
		s.POST("/", mw.Lock(s.locker, "order", mw.JSON("id")), decrypt, mw.Lock(s.locker, "order", mw.JSON("id")), ok)
		if r := s.send("POST", "/", `{"id":1}`); r.body != "order:7" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("replaced body without a key", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		decrypt := func(c *gin.Context) {
			c.Request.Body = io.NopCloser(strings.NewReader(`{"id":7}`))
			c.Request.ContentLength = -1
		}
		handler := func(c *gin.Context) {
			var o order
			err := c.ShouldBindBodyWith(&o, binding.JSON)
			c.String(http.StatusOK, "%d %v", o.ID, err)
		}
		s.POST("/lock", mw.Lock(s.locker, "order", mw.Header(mw.header), mw.Acquire(core.Wait(soon))), decrypt, handler)
		s.POST("/once", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Fingerprint(mw.Header(mw.header))), decrypt, handler)
		for _, path := range []string{"/lock", "/once"} {
			if r := s.pay("k", path, `{"id":1}`); r.body != "7 <nil>" {
				t.Errorf("%s: got %d %q", path, r.status, r.body)
			}
		}
	})

	t.Run("body keeps its Close", func(t *testing.T) {
		t.Parallel()
		s, closed := mw.newSite(t), make(chan struct{}, 1)
		outer := func(c *gin.Context) { c.Request.Body = &closing{c.Request.Body, closed} }
		s.POST("/", outer, mw.Lock(s.locker, "order", mw.JSON("id")), mw.Lock(s.locker, "order", mw.JSON("id")), func(c *gin.Context) {
			if err := c.Request.Body.Close(); err != nil {
				t.Error(err)
			}
		})
		s.send("POST", "/", `{"id":1}`)
		within(t, "the body is closed", closed)
	})
}

func TestBodyLimit(t *testing.T) { onEach(t, testBodyLimit) }

func testBodyLimit(t *testing.T, mw framework) {
	t.Parallel()
	sized := func(n int) string { return `{"id":1,"x":"` + strings.Repeat("x", n-15) + `"}` }

	t.Run("body at the limit", func(t *testing.T) {
		t.Parallel()
		for _, chunked := range []bool{false, true} {
			for _, c := range []struct {
				path         string
				size, status int
			}{
				{"/small", 100, http.StatusOK}, {"/small", 101, http.StatusRequestEntityTooLarge},
				{"/default", 1 << 20, http.StatusOK}, {"/default", 1<<20 + 1, http.StatusRequestEntityTooLarge},
				{"/endless", 1<<20 + 1, http.StatusOK},
			} {
				s, pushed := mw.newSite(t), errorsOf{}
				s.Use(pushed.collect, func(c *gin.Context) {
					if chunked {
						c.Request.ContentLength = -1
					}
				})
				s.POST("/small", mw.Lock(s.locker, "order", mw.JSON("id"), mw.BodyLimit(100)), ok)
				s.POST("/default", mw.Lock(s.locker, "order", mw.JSON("id")), ok)
				s.POST("/endless", mw.Lock(s.locker, "order", mw.JSON("id"), mw.BodyLimit(math.MaxInt64)), ok)
				r := s.send("POST", c.path, sized(c.size))
				if r.status != c.status {
					t.Errorf("%s, %d bytes: got %d %q, want %d", c.path, c.size, r.status, r.body, c.status)
				}
				if c.status != http.StatusOK && r.problem(t, c.status)["type"] != base+"body-too-large" {
					t.Errorf("got %q", r.body)
				}
				pushed.none(t)
			}
		}
	})

	t.Run("announced length over the limit", func(t *testing.T) {
		t.Parallel()
		s, touched := mw.newSite(t), false
		outer := func(c *gin.Context) { c.Request.Body = &noticing{c.Request.Body, &touched} }
		s.POST("/", outer, mw.Lock(s.locker, "order", mw.JSON("id"), mw.BodyLimit(100)), mustNotRun(t))
		s.send("POST", "/", sized(101)).problem(t, http.StatusRequestEntityTooLarge)
		if touched {
			t.Error("it was read")
		}
	})

	t.Run("form over the limit", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Lock(s.locker, "order", mw.Form("id"), mw.BodyLimit(10)), mustNotRun(t))
		s.send("POST", "/", "id=1&x=2345", "Content-Type", formType).problem(t, http.StatusRequestEntityTooLarge)
	})

	t.Run("limit of an outer middleware", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		outer := func(c *gin.Context) {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 10)
			c.Request.ContentLength = -1
		}
		s.POST("/", outer, mw.Lock(s.locker, "order", mw.JSON("id")), mustNotRun(t))
		s.send("POST", "/", sized(100)).problem(t, http.StatusRequestEntityTooLarge)
	})

	t.Run("body without a key", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		echo := func(c *gin.Context) {
			data, err := io.ReadAll(c.Request.Body)
			if err != nil || string(data) != sized(1000) {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
		}
		for path, wait := range map[string]time.Duration{"/try": 0, "/wait": time.Minute} {
			s.POST(path+"/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.BodyLimit(100), mw.Acquire(core.Wait(wait))), echo)
			s.POST(path+"/chunked/:id", func(c *gin.Context) { c.Request.ContentLength = -1 },
				mw.Lock(s.locker, "order", mw.Param("id"), mw.BodyLimit(100), mw.Acquire(core.Wait(wait))), echo)
			for _, p := range []string{path + "/1", path + "/chunked/1"} {
				if r := s.send("POST", p, sized(1000)); r.status != http.StatusOK {
					t.Errorf("%s: got %d %q", p, r.status, r.body)
				}
			}
		}
	})

	t.Run("body without key or wait", func(t *testing.T) {
		t.Parallel()
		s, touched := mw.newSite(t), false
		outer := func(c *gin.Context) { c.Request.Body = &noticing{c.Request.Body, &touched} }
		lock := mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.TTL(time.Minute)))
		s.POST("/:id", outer, lock, func(c *gin.Context) {
			_, same := c.Request.Body.(*noticing)
			if _, cached := c.Get(gin.BodyBytesKey); touched || !same || cached {
				t.Errorf("read %v, same reader %v, cached %v", touched, same, cached)
			}
		})
		s.send("POST", "/1", "body")
	})

	t.Run("body breaks off", func(t *testing.T) {
		t.Parallel()
		s, broken := mw.newSite(t), errors.New("connection reset")
		outer := func(c *gin.Context) {
			c.Request.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"id":`), &failing{broken}))
		}
		s.POST("/json", outer, mw.Lock(s.locker, "order", mw.JSON("id")), mustNotRun(t))
		s.POST("/param/:id", outer, mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(time.Minute))), func(c *gin.Context) {
			if data, err := io.ReadAll(c.Request.Body); string(data) != `{"id":` || !errors.Is(err, broken) {
				t.Errorf("read %q, %v", data, err)
			}
		})
		s.send("POST", "/json", "x").problem(t, http.StatusBadRequest)
		if r := s.send("POST", "/param/1", "x"); r.status != http.StatusOK {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("client leaves within its body", func(t *testing.T) {
		t.Parallel()
		s, status := mw.newSite(t), make(chan int, 1)
		s.POST("/", func(c *gin.Context) { c.Next(); status <- c.Writer.Status() }, mw.Lock(s.locker, "order", mw.JSON("id")), mustNotRun(t))
		ctx, leave := context.WithCancel(t.Context())
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/", r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(w, `{"id":`)
			leave()
			_ = w.CloseWithError(context.Canceled)
		}()
		if resp, err := s.client.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("got %d", resp.StatusCode)
		}
		if got := within(t, "the middleware has returned", status); got == http.StatusOK || got >= 500 {
			t.Errorf("the access log shows %d", got)
		}
	})
}

type closing struct {
	io.ReadCloser
	closed chan<- struct{}
}

func (b *closing) Close() error {
	b.closed <- struct{}{}
	return b.ReadCloser.Close()
}

type noticing struct {
	io.ReadCloser
	touched *bool
}

func (b *noticing) Read(p []byte) (int, error) {
	*b.touched = true
	return b.ReadCloser.Read(p)
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}
