package httpmw_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
	"github.com/lockkit/lockkit/retry"
)

func TestOptions(t *testing.T) { onEach(t, testOptions) }

func testOptions(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("Render", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		render := func(c *gin.Context, p httpmw.Problem) {
			if !c.IsAborted() || c.Writer.Status() != http.StatusConflict {
				t.Errorf("aborted %v, status %d", c.IsAborted(), c.Writer.Status())
			}
			if !errors.Is(p.Err, core.ErrBusy) || p.Status != http.StatusConflict || p.Lock != "order" || p.RetryAfter <= 0 {
				t.Errorf("got %+v", p)
			}
			c.JSON(http.StatusLocked, gin.H{"busy": p.Lock})
		}
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.Render(render)), mustNotRun(t))
		s.hold("order:5")
		r := s.send("GET", "/5", "")
		if r.status != http.StatusLocked || r.body != `{"busy":"order"}` || r.header.Get("Retry-After") == "" {
			t.Errorf("got %d %q %v", r.status, r.body, r.header)
		}
	})

	t.Run("Render that writes nothing", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.Render(func(*gin.Context, httpmw.Problem) {})), mustNotRun(t))
		s.hold("order:5")
		if r := s.send("GET", "/5", ""); r.status != http.StatusConflict || r.body != "" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("Problem as JSON", func(t *testing.T) {
		t.Parallel()
		got, err := json.Marshal(httpmw.Problem{
			Type: "t", Title: "T", Status: 409, Lock: "order", RetryAfter: 1500 * time.Microsecond, Err: errors.New("secret"),
		})
		want := `{"type":"t","title":"T","status":409,"lock":"order","retry_after_ms":2}`
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	})

	t.Run("ProblemBase moves the types", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.ProblemBase("https://pay.example/problems/")), mustNotRun(t))
		s.hold("order:5")
		if p := s.send("GET", "/5", "").problem(t, http.StatusConflict); p["type"] != "https://pay.example/problems/lock-busy" {
			t.Errorf("type is %v", p["type"])
		}
	})

	t.Run("Skip", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		dry := func(c *gin.Context) bool { return c.Query("dry") != "" }
		s.GET("/", mw.Lock(s.locker, "order", mw.Query("id"), mw.Skip(dry)), ok)
		s.hold("order:5")
		if r := s.send("GET", "/?dry=1&id=5", ""); r.status != http.StatusOK || r.body != "no lease" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if r := s.send("GET", "/?dry=1", ""); r.status != http.StatusOK {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if r := s.send("GET", "/?id=5", ""); r.status != http.StatusConflict {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("two instances", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		shared := []option{mw.Acquire(core.TTL(time.Minute)), mw.Also(mw.JSON("other"))}
		small := mw.Lock(s.locker, "small", mw.JSON("id"), append(shared, mw.BodyLimit(20), mw.ProblemBase("small:"))...)
		large := mw.Lock(s.locker, "large", mw.JSON("id"), append(shared, mw.ProblemBase("large:"))...)
		s.POST("/small", small, ok)
		s.POST("/large", large, ok)
		s.POST("/both", large, small, ok)
		s.POST("/both-ways", small, large, ok)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				path := []string{"/small", "/large", "/both", "/both-ways"}[i%4]
				r := s.send("POST", path, `{"id":"`+string(rune('A'+i))+`","other":1,"more":2}`)
				if path == "/large" {
					// Both share the other key.
					if r.status != http.StatusOK && r.status != http.StatusConflict {
						t.Errorf("%s: got %d %q", path, r.status, r.body)
					}
					return
				}
				if r.status != http.StatusRequestEntityTooLarge && r.status != http.StatusConflict {
					t.Errorf("%s: got %d %q", path, r.status, r.body)
				}
			})
		}
		wg.Wait()
		if p := s.send("POST", "/both", `{"id":"A","other":1,"more":2}`).problem(t, 413); p["type"] != "small:body-too-large" || p["lock"] != "small" {
			t.Errorf("got %v", p)
		}
		s.hold("large:A")
		if p := s.send("POST", "/large", `{"id":"A","other":1}`).problem(t, 409); p["type"] != "large:lock-busy" || p["lock"] != "large" {
			t.Errorf("got %v", p)
		}
	})

	t.Run("name in events", func(t *testing.T) {
		t.Parallel()
		names := make(chan string, 10)
		s := mw.newSite(t, core.WithDefaults(core.Name("default")), core.WithObserver(observer(func(e core.Event) { names <- e.Name })))
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), ok)
		s.send("GET", "/5", "")
		if name := within(t, "an event", names); name != "order" {
			t.Errorf("the event's name is %q", name)
		}
	})
}

func TestBadArguments(t *testing.T) { onEach(t, testBadArguments) }

func testBadArguments(t *testing.T, mw framework) {
	t.Parallel()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	sharing, err := core.New(memstore.New(), core.WithDefaults(core.Shared()))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	key := mw.Param("id")
	long := make([]byte, 512)
	for i := range long {
		long[i] = 'a'
	}
	for name, build := range map[string]func(){
		"no locker":               func() { mw.Lock(nil, "order", key) },
		"an empty name":           func() { mw.Lock(l, "", key) },
		"a name with a colon":     func() { mw.Lock(l, "a:b", key) },
		"a name with a space":     func() { mw.Lock(l, "pay order", key) },
		"a name that is no ASCII": func() { mw.Lock(l, "bestellung-ä", key) },
		"a name that is too long": func() { mw.Lock(l, string(long), key) },
		"no key":                  func() { mw.Lock(l, "order", nil) },
		"a nil option":            func() { mw.Lock(l, "order", key, nil) },
		"a nil acquire option":    func() { mw.Acquire(core.Wait(0), nil) },
		"a TTL that is too short": func() { mw.Lock(l, "order", key, mw.Acquire(core.TTL(time.Millisecond))) },
		"a negative wait":         func() { mw.Lock(l, "order", key, mw.Acquire(core.Wait(-1))) },
		"more permits than there are": func() {
			mw.Lock(l, "order", key, mw.Acquire(core.Permits(3, 2)))
		},
		"options that exclude each other": func() {
			mw.Lock(l, "order", key, mw.Acquire(core.Shared()), mw.Acquire(core.Fenced()))
		},
		"options against the defaults": func() {
			mw.Lock(sharing, "order", key, mw.Acquire(core.Permits(1, 2)))
		},
		"a pace that is not allowed": func() {
			mw.Lock(l, "order", key, mw.Acquire(core.Retry(retry.Policy{Initial: -1})))
		},
		"an option of Idempotent":    func() { mw.Lock(l, "order", key, mw.Detached()) },
		"a nil further key":          func() { mw.Also(key, nil) },
		"no renderer":                func() { mw.Render(nil) },
		"no skipper":                 func() { mw.Skip(nil) },
		"a body limit of nothing":    func() { mw.BodyLimit(0) },
		"a negative body limit":      func() { mw.BodyLimit(-1) },
		"an empty base":              func() { mw.ProblemBase("") },
		"a base that is no URI":      func() { mw.ProblemBase("http://[::1") },
		"a parameter without name":   func() { mw.Param("") },
		"a query without name":       func() { mw.Query("") },
		"a header without name":      func() { mw.Header("") },
		"a form field without name":  func() { mw.Form("") },
		"a JSON path of nothing":     func() { mw.JSON("") },
		"a JSON path with a gap":     func() { mw.JSON("a..b") },
		"a path of another language": func() { mw.JSON("$.id") },
		"a join of nothing":          func() { mw.Join() },
		"a join with a nil":          func() { mw.Join(key, nil) },
	} {
		t.Run(name+" panics", func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			build()
		})
	}

	t.Run("texts of panics", func(t *testing.T) {
		t.Parallel()
		for want, build := range map[string]func(){
			"Lock: an option is nil":                    func() { mw.Lock(l, "order", key, nil) },
			"(at most 64 bytes)":                        func() { mw.Lock(l, string(long), key) },
			"TTL 1 ms is out of range (100 ms to":       func() { mw.Lock(l, "order", key, mw.Acquire(core.TTL(time.Millisecond))) },
			`ProblemBase: "http://[::1"`:                func() { mw.ProblemBase("http://[::1") },
			`"post" is empty, safe or not in upper`:     func() { mw.Methods("post") },
			`"set-cookie" is not a header name, or`:     func() { mw.KeepHeaders("set-cookie") },
			"the scope is nil, see AnyCaller":           func() { mw.Idempotent(&once.Once{}, nil) },
			"Lock: Detached is an option of Idempoten":  func() { mw.Lock(l, "order", key, mw.Detached()) },
			"Idempotent: FailOpen is an option of Lock": func() { mw.Idempotent(runs, key, mw.FailOpen()) },
		} {
			func() {
				defer func() {
					if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
						t.Errorf("it says %q, without %q", said, want)
					}
				}()
				build()
			}()
		}
	})

	t.Run("allowed options", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t, core.WithObserver(observer(func(e core.Event) { t.Errorf("event %v", e.Kind) })))
		mw.Lock(s.locker, "a.B-c_9", key, mw.Acquire(core.Fair(), core.Wait(time.Hour), core.TTL(time.Second), core.Also("x")))
		mw.Lock(s.locker, "order", key, mw.Acquire(core.Retry(retry.None), core.Wait(time.Hour)))
		mw.Lock(s.locker, "order", key, mw.Acquire(), mw.Also())
		mw.Lock(s.locker, "order", key, mw.Acquire(core.Permits(1, 3), core.NoRenew(), core.MaxHold(time.Second)))
		if n := s.store.attempts.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
