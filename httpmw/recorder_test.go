package httpmw_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
)

// handlers has handlers, by name. They write storable responses in different ways.
var handlers = map[string]gin.HandlerFunc{
	"JSON":        func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"receipt": "r-1"}) },
	"a string":    func(c *gin.Context) { c.String(http.StatusOK, "paid %d", 5) },
	"binary data": func(c *gin.Context) { c.Data(http.StatusOK, "application/pdf", []byte("%PDF\x00\xff")) },
	"a redirect":  func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/5") },
	"no response": func(*gin.Context) {},
	"a status":    func(c *gin.Context) { c.Status(http.StatusAccepted) },
	"a status at once": func(c *gin.Context) {
		c.Status(http.StatusAccepted)
		c.Writer.WriteHeaderNow()
	},
	"an abort":                func(c *gin.Context) { c.AbortWithStatus(http.StatusNotFound) },
	"no content":              func(c *gin.Context) { c.Status(http.StatusNoContent) },
	"no content with headers": func(c *gin.Context) { c.Header("Location", "/5"); c.Status(http.StatusNoContent) },
	"a deterministic refusal": func(c *gin.Context) { c.JSON(http.StatusUnprocessableEntity, gin.H{"error": "no such card"}) },
	"an error with an answer": func(c *gin.Context) {
		_ = c.Error(errors.New("no"))
		c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"error": "no"})
	},
	"an error beside a success": func(c *gin.Context) {
		_ = c.Error(errors.New("the receipt was not mailed"))
		c.Status(http.StatusNoContent)
	},
	"an empty body":            func(c *gin.Context) { c.String(http.StatusOK, "") },
	"a body without a type":    func(c *gin.Context) { _, _ = c.Writer.WriteString("<html>sniffed") },
	"a body in pieces":         func(c *gin.Context) { inPieces(c.Writer) },
	"a body by Copy":           func(c *gin.Context) { _, _ = io.Copy(c.Writer, strings.NewReader(strings.Repeat("x", 100<<10))) },
	"a body by fmt":            func(c *gin.Context) { fmt.Fprintf(c.Writer, "%s-%d", "r", 1) },
	"a body of announced size": func(c *gin.Context) { c.DataFromReader(200, 3, "text/plain", strings.NewReader("abc"), nil) },
	"a body longer than announced": func(c *gin.Context) {
		// net/http closes the connection, and the client must not send the next request
		// on it.
		c.Header("Connection", "close")
		c.Header("Content-Length", "3")
		_, _ = c.Writer.WriteString("abc")
		if n, err := c.Writer.WriteString("de"); n != 0 || !errors.Is(err, http.ErrContentLength) {
			panic(fmt.Sprint(n, err))
		}
	},
	"a body without type guessing": func(c *gin.Context) {
		c.Writer.Header()["Content-Type"] = nil
		_, _ = c.Writer.WriteString("<html>")
	},
	"a body that is read": func(c *gin.Context) { c.DataFromReader(200, -1, "text/plain", strings.NewReader("abc"), nil) },
	"a file":              func(c *gin.Context) { c.File("doc.go") },
	"a body where none may be": func(c *gin.Context) {
		c.Writer.WriteHeader(http.StatusNoContent)
		if n, err := c.Writer.Write([]byte("lost")); n != 0 || !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(fmt.Sprint(n, err))
		}
	},
	"last status before the first write": func(c *gin.Context) {
		c.Writer.WriteHeader(http.StatusBadRequest)
		c.Writer.WriteHeader(http.StatusCreated)
		c.Writer.WriteHeader(-1)
		c.Writer.WriteHeader(0)
		_, _ = c.Writer.WriteString("x")
		c.Writer.WriteHeader(http.StatusTeapot)
		c.Writer.WriteHeaderNow()
	},
	"headers after the first write": func(c *gin.Context) {
		c.Header("Etag", `"1"`)
		c.Header("Location", "/1")
		c.String(http.StatusOK, "x")
		c.Header("Etag", `"2"`)
		c.Header("Location", "")
		c.Header("Content-Language", "de")
		c.Header("Content-Length", "7")
	},
	"many values of a header": func(c *gin.Context) {
		for _, link := range []string{"</1>; rel=a, </2>; rel=b", "", "</3>; rel=c"} {
			c.Writer.Header().Add("Link", link)
		}
		c.Writer.Header()["Content-Language"] = []string{"de", "en"}
		c.Status(http.StatusOK)
	},
	"a wrapper of the writer": func(c *gin.Context) {
		before := c.Writer
		c.Writer = &upper{before}
		c.String(http.StatusOK, "upper")
		c.Writer = before
	},
}

func inPieces(w gin.ResponseWriter) {
	for i := range 100 {
		if i%2 == 0 {
			_, _ = w.Write([]byte("ab"))
		} else {
			_, _ = w.WriteString("cde")
		}
	}
}

type upper struct{ gin.ResponseWriter }

func (u *upper) Write(data []byte) (int, error) {
	return u.ResponseWriter.WriteString(strings.ToUpper(string(data)))
}

// TestAnswers_Unchanged checks that the first response is the same as without the
// middleware. The replay has the same status, the same body and the same stored
// headers.
func TestAnswers_Unchanged(t *testing.T) { onEachKey(t, testAnswers_Unchanged) }

func testAnswers_Unchanged(t *testing.T, mw framework) {
	t.Parallel()
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs, above := mw.newSite(t), atomic.Int32{}, make(chan string, 3)
			s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			see := func(c *gin.Context) {
				c.Next()
				said := fmt.Sprint(c.Writer.Status(), c.Writer.Written(), c.Writer.Size())
				if mw.pkg != onGin.pkg {
					// net/http has sent the status, which gin's writer holds back.
					said = fmt.Sprint(c.Writer.Status())
				}
				above <- said
			}
			inner := func(c *gin.Context) {
				runs.Add(1)
				handler(c)
				c.Writer.Header().Add("X-Inner", fmt.Sprint(c.Writer.Status(), c.Writer.Written(), c.Writer.Size()))
			}
			s.POST("/plain", see, inner)
			s.POST("/once", see, mw.Idempotent(s.runs(), mw.AnyCaller()), inner)
			plain := s.send("POST", "/plain", "")
			first, again := s.pay("k", "/once", ""), s.pay("k", "/once", "")
			if runs.Load() != 2 || first.isReplay() || !again.isReplay() {
				t.Fatalf("%d ran, replays are marked %v and %v", runs.Load(), first.isReplay(), again.isReplay())
			}
			for _, r := range []reply{first, again} {
				if r.status != plain.status || r.body != plain.body {
					t.Errorf("got %d %q, want %d %q", r.status, r.body, plain.status, plain.body)
				}
			}
			plain.header.Del("Date")
			first.header.Del("Date")
			if !maps.EqualFunc(first.header, plain.header, slices.Equal) {
				t.Errorf("the first headers are %v, want %v", first.header, plain.header)
			}
			for _, kept := range []string{"Content-Type", "Location", "Link", "Content-Language", "Etag", "Last-Modified", "Content-Disposition"} {
				if !slices.Equal(again.header[kept], plain.header[kept]) {
					t.Errorf("%s is replayed as %q, want %q", kept, again.header[kept], plain.header[kept])
				}
			}
			if want, got := <-above, <-above; got != want {
				t.Errorf("above, the writer said %s, want %s", got, want)
			}
		})
	}
}

func TestWriterInside(t *testing.T) { onEachKey(t, testWriterInside) }

func testWriterInside(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("writer leads to its original", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		above := func(c *gin.Context) {
			before := c.Writer
			c.Next()
			if c.Writer != before {
				t.Errorf("above, the writer is %T", c.Writer)
			}
		}
		s.POST("/", above, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			inner, ok := c.Writer.(interface{ Unwrap() http.ResponseWriter })
			if !ok {
				t.Fatalf("%T has no Unwrap", c.Writer)
			}
			if _, ok := inner.Unwrap().(gin.ResponseWriter); !ok {
				t.Errorf("it leads to %T", inner.Unwrap())
			}
			if c.Writer.Written() || c.Writer.Size() != -1 || c.Writer.Status() != http.StatusOK {
				t.Error("something was written")
			}
			c.Writer.WriteHeaderNow()
			if !c.Writer.Written() || c.Writer.Size() != 0 {
				t.Error("nothing was written")
			}
			_, _ = c.Writer.WriteString("abc")
			if c.Writer.Size() != 3 {
				t.Errorf("size is %d", c.Writer.Size())
			}
		})
		s.pay("k", "/", "")
	})

	t.Run("form parsed inside", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		above := func(c *gin.Context) {
			c.Next()
			if c.Request.MultipartForm == nil || c.Request.PostForm.Get("note") != "hi" {
				t.Error("the parsed form is missing, so its files would not be removed")
			}
		}
		s.POST("/", above, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) { c.String(http.StatusOK, c.PostForm("note")) })
		contentType, form := multipartForm(t, "note", "hi")
		if r := s.pay("k", "/", form, "Content-Type", contentType); r.body != "hi" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("response begun outside", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		begin := func(c *gin.Context) { c.String(http.StatusOK, "begun, ") }
		s.POST("/", begin, mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		for _, want := range []string{"begun, run 1", "begun, "} {
			if r := s.pay("k", "/", ""); r.status != http.StatusOK || r.body != want {
				t.Errorf("got %d %q, want %q", r.status, r.body, want)
			}
		}
	})
}
