package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/storetest/saving"
	"github.com/lockkit/lockkit/httpmw"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func (mw framework) commit(c *gin.Context, tx once.Saver) error {
	if mw.pkg != "stdmw" {
		return httpmw.Commit(c, tx)
	}
	if inner, ok := c.Get(innerKey); ok && !replaced(c.Writer) {
		return stdmw.Commit(inner.(http.ResponseWriter), c.Request, tx)
	}
	return stdmw.Commit(c.Writer, c.Request, tx)
}

// replaced reports whether w is a writer that a test in this file has put in place of
// gin's writer.
func replaced(w gin.ResponseWriter) bool {
	switch w.(type) {
	case leading, struct{ gin.ResponseWriter }:
		return true
	}
	return false
}

// savingRuns returns a Once whose responses are in a store with transactions.
func savingRuns(t *testing.T) (*saving.Store, *once.Once) {
	t.Helper()
	in := saving.New()
	l, err := core.New(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	o, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return in, o
}

func TestCommit(t *testing.T) { onEachKey(t, testCommit) }

func testCommit(t *testing.T, mw framework) {
	t.Parallel()
	s := mw.newSite(t)
	in, o := savingRuns(t)
	var end func(c *gin.Context, x *saving.Tx)
	runs := 0
	s.POST("/:id", mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
		runs++
		x := in.Begin()
		c.Header("Location", "/receipts/"+c.Param("id"))
		c.String(http.StatusCreated, "receipt of ")
		c.String(http.StatusCreated, c.Param("id"))
		if err := mw.commit(c, x); err != nil {
			t.Error(err)
		}
		end(c, x)
	})
	commit := func(_ *gin.Context, x *saving.Tx) {
		if err := x.Commit(); err != nil {
			t.Error(err)
		}
	}
	for _, r := range []struct {
		name, id string
		end      func(c *gin.Context, x *saving.Tx)
		status   int
		runs     int
	}{
		{"committed", "1", commit, http.StatusCreated, 1},
		{"again", "1", commit, http.StatusCreated, 0},
		{"committed without a reply", "2", func(c *gin.Context, x *saving.Tx) {
			commit(c, x)
			c.Header("Location", "/nowhere")
			c.String(http.StatusInternalServerError, "no reply to the commit")
			c.Writer.Flush()
		}, http.StatusCreated, 1},
		{"again without a reply", "2", commit, http.StatusCreated, 0},
		{"rolled back", "3", func(*gin.Context, *saving.Tx) {}, http.StatusServiceUnavailable, 1},
		{"at last", "3", commit, http.StatusCreated, 1},
		{"once more", "3", commit, http.StatusCreated, 0},
	} {
		runs, end = 0, r.end
		got := s.pay("key-"+r.id, "/"+r.id, "{}")
		if got.status != r.status || runs != r.runs || got.isReplay() != (r.runs == 0) {
			t.Errorf("%s: got %d %q after %d runs, replay %v, want %d after %d", r.name, got.status, got.body, runs, got.isReplay(), r.status, r.runs)
		}
		if r.status != http.StatusCreated {
			if p := got.problem(t, r.status); !strings.HasSuffix(p["type"].(string), "#idempotency-uncommitted") || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: got %v", r.name, p)
			}
		} else if got.body != "receipt of "+r.id || got.header.Get("Location") != "/receipts/"+r.id {
			t.Errorf("%s: got %q at %q, want the answer that was committed", r.name, got.body, got.header.Get("Location"))
		}
	}
}

// TestCommit_HeadersAlone checks a status and headers that are set before Commit. They
// are sent, even if no body was written.
func TestCommit_HeadersAlone(t *testing.T) { onEachKey(t, testCommitHeadersAlone) }

func testCommitHeadersAlone(t *testing.T, mw framework) {
	mw.ofGin(t) // with net/http, setting a status writes the header
	t.Parallel()
	s := mw.newSite(t)
	in, o := savingRuns(t)
	s.POST("/:id", mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
		x := in.Begin()
		c.Status(http.StatusAccepted)
		c.Header("Location", "/receipts/5")
		c.Header("Set-Cookie", "seen=1")
		if err := mw.commit(c, x); err != nil {
			t.Error(err)
		}
		c.Header("Location", "/nowhere")
		if err := x.Commit(); err != nil {
			t.Error(err)
		}
	})
	for _, cookie := range []string{"seen=1", ""} {
		got := s.pay("key", "/5", "{}")
		if got.status != http.StatusAccepted || got.header.Get("Location") != "/receipts/5" || got.header.Get("Set-Cookie") != cookie || got.isReplay() != (cookie == "") {
			t.Errorf("got %d with %v, want the cookie %q", got.status, got.header, cookie)
		}
	}
}

// TestCommit_LateFlush checks that a flush is held back while Commit decides the
// response. It covers hazard 74.
func TestCommit_LateFlush(t *testing.T) { onEachKey(t, testCommitLateFlush) }

func testCommitLateFlush(t *testing.T, mw framework) {
	t.Parallel()
	for _, r := range []struct {
		name        string
		ends, panic bool
		first       string
		again       string
	}{
		{"rolled back", false, false, "503", "503"},
		{"committed", true, false, "201 receipt|", "201 receipt"},
		{"first KeepIf panics", false, true, "500", "503"},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, o := savingRuns(t)
				calls := 0
				slow := mw.KeepIf(func(httpmw.Kept) bool {
					time.Sleep(2 * time.Second) // the flush is due in the meantime
					if calls++; r.panic && calls == 1 {
						panic("card reader on fire")
					}
					return true
				})
				s := &bubble{mw, newEngine(), mw.Idempotent(o, mw.AnyCaller(), slow)}
				s.POST("/", s.idempotent, func(c *gin.Context) {
					defer func() { _ = recover() }()
					x := in.Begin()
					c.String(http.StatusCreated, "receipt")
					c.Writer.Flush()
					if err := mw.commit(c, x); err != nil {
						t.Error(err)
					}
					if r.ends {
						if err := x.Commit(); err != nil {
							t.Error(err)
						}
					}
				})
				for _, want := range []string{r.first, r.again} {
					w, over := s.post("/")
					<-over
					if got := w.seen(); !strings.HasPrefix(got, want) || want == "503" && !strings.Contains(got, "#idempotency-uncommitted") {
						t.Errorf("got %q, want %q", got, want)
					}
				}
			})
		})
	}
}

// TestCommit_InsideAnother checks an outer Idempotent whose KeepIf stores everything. A
// response that an inner Commit has not committed is neither stored nor withdrawn. It
// covers hazard 74.
func TestCommit_InsideAnother(t *testing.T) { onEachKey(t, testCommitInsideAnother) }

func testCommitInsideAnother(t *testing.T, mw framework) {
	t.Parallel()
	s := mw.newSite(t)
	in, o := savingRuns(t)
	all := mw.KeepIf(func(httpmw.Kept) bool { return true })
	outer := func(*gin.Context) (string, error) { return "outer", nil }
	runs := 0
	s.POST("/", mw.Idempotent(s.runs(), outer, all), mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
		runs++
		x := in.Begin()
		c.String(http.StatusCreated, "receipt")
		if err := mw.commit(c, x); err != nil {
			t.Error(err)
		}
		if runs == 1 {
			return // the transaction is rolled back
		}
		if err := x.Commit(); err != nil {
			t.Error(err)
		}
	})
	s.pay("k", "/", "{}").problem(t, http.StatusServiceUnavailable)
	s.pay("k", "/", "other").problem(t, http.StatusUnprocessableEntity)
	for _, replay := range []bool{false, true} {
		if got := s.pay("k", "/", "{}"); got.status != http.StatusCreated || got.isReplay() != replay || runs != 2 {
			t.Errorf("got %d %q after %d runs, replay %v, want 201 after 2 runs", got.status, got.body, runs, got.isReplay())
		}
	}
}

func TestCommit_Refused(t *testing.T) { onEachKey(t, testCommitRefused) }

func testCommitRefused(t *testing.T, mw framework) {
	t.Parallel()
	in, o := savingRuns(t)
	for name, r := range map[string]struct {
		want   error
		answer func(c *gin.Context)
		tx     once.Saver
	}{
		"nothing written": {core.ErrInvalid, func(*gin.Context) {}, in.Begin()},
		"not kept":        {core.ErrInvalid, func(c *gin.Context) { c.String(http.StatusConflict, "untrue") }, in.Begin()},
		"a stream":        {core.ErrInvalid, func(c *gin.Context) { c.Data(http.StatusOK, "text/event-stream", nil) }, in.Begin()},
		"nil":             {core.ErrInvalid, ok, nil},
		"another store":   {core.ErrUnsupported, ok, saving.New().Begin()},
		"another writer": {core.ErrInvalid, func(c *gin.Context) {
			ok(c)
			c.Writer = struct{ gin.ResponseWriter }{c.Writer}
		}, in.Begin()},
		"writer that may hold back": {core.ErrInvalid, func(c *gin.Context) {
			ok(c)
			c.Writer = leading{c.Writer}
		}, in.Begin()},
	} {
		t.Run(name, func(t *testing.T) {
			s := mw.newSite(t)
			s.POST("/:id", mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
				r.answer(c)
				if err := mw.commit(c, r.tx); !errors.Is(err, r.want) {
					t.Errorf("got %v, want %v", err, r.want)
				}
			})
			got := s.pay(strings.ReplaceAll(name, " ", "-"), "/5", "{}")
			if name == "a stream" {
				return // a stream is sent before Commit fails
			}
			if p := got.problem(t, http.StatusInternalServerError); !strings.HasSuffix(p["type"].(string), "#idempotency-failed") {
				t.Errorf("got %v", p)
			}
		})
	}
	t.Run("no Idempotent", func(t *testing.T) {
		s := mw.newSite(t)
		s.POST("/:id", func(c *gin.Context) {
			if err := mw.commit(c, in.Begin()); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("got %v, want %v", err, core.ErrInvalid)
			}
			ok(c)
		})
		if got := s.pay("none", "/5", "{}"); got.status != http.StatusOK {
			t.Errorf("got %d %q, want the answer", got.status, got.body)
		}
	})
}

// leading is the writer of an inner middleware, for example a compressing middleware.
type leading struct{ gin.ResponseWriter }

func (l leading) Unwrap() http.ResponseWriter { return l.ResponseWriter }
