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

func TestOptions(t *testing.T) {
	t.Parallel()

	t.Run("Render replaces the answer, with status and Retry-After prepared", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		render := func(c *gin.Context, p httpmw.Problem) {
			if !c.IsAborted() || c.Writer.Status() != http.StatusConflict {
				t.Errorf("aborted %v, status %d", c.IsAborted(), c.Writer.Status())
			}
			if !errors.Is(p.Err, core.ErrBusy) || p.Status != http.StatusConflict || p.Lock != "order" || p.RetryAfter <= 0 {
				t.Errorf("got %+v", p)
			}
			c.JSON(http.StatusLocked, gin.H{"busy": p.Lock})
		}
		s.GET("/:id", httpmw.Lock(s.locker, "order", httpmw.Param("id"), httpmw.Render(render)), mustNotRun(t))
		s.hold("order:5")
		r := s.send("GET", "/5", "")
		if r.status != http.StatusLocked || r.body != `{"busy":"order"}` || r.header.Get("Retry-After") == "" {
			t.Errorf("got %d %q %v", r.status, r.body, r.header)
		}
	})

	t.Run("a renderer that writes nothing leaves the status", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.GET("/:id", httpmw.Lock(s.locker, "order", httpmw.Param("id"), httpmw.Render(func(*gin.Context, httpmw.Problem) {})), mustNotRun(t))
		s.hold("order:5")
		if r := s.send("GET", "/5", ""); r.status != http.StatusConflict || r.body != "" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("a Problem is a problem details object in any renderer", func(t *testing.T) {
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
		s := newSite(t)
		s.GET("/:id", httpmw.Lock(s.locker, "order", httpmw.Param("id"), httpmw.ProblemBase("https://pay.example/problems/")), mustNotRun(t))
		s.hold("order:5")
		if p := s.send("GET", "/5", "").problem(t, http.StatusConflict); p["type"] != "https://pay.example/problems/lock-busy" {
			t.Errorf("type is %v", p["type"])
		}
	})

	t.Run("Skip lets requests run without the lock, and without a key", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		dry := func(c *gin.Context) bool { return c.Query("dry") != "" }
		s.GET("/", httpmw.Lock(s.locker, "order", httpmw.Query("id"), httpmw.Skip(dry)), ok)
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

	t.Run("two instances do not influence each other", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		shared := []httpmw.Option{httpmw.Acquire(core.TTL(time.Minute)), httpmw.Also(httpmw.JSON("other"))}
		small := httpmw.Lock(s.locker, "small", httpmw.JSON("id"), append(shared, httpmw.BodyLimit(20), httpmw.ProblemBase("small:"))...)
		large := httpmw.Lock(s.locker, "large", httpmw.JSON("id"), append(shared, httpmw.ProblemBase("large:"))...)
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
					if r.status != http.StatusOK && r.status != http.StatusConflict { // they share the other key
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

	t.Run("the lock's name labels events, and no acquire option of the locker's defaults does", func(t *testing.T) {
		t.Parallel()
		names := make(chan string, 10)
		s := newSite(t, core.WithDefaults(core.Name("default")), core.WithObserver(observer(func(e core.Event) { names <- e.Name })))
		s.GET("/:id", httpmw.Lock(s.locker, "order", httpmw.Param("id")), ok)
		s.send("GET", "/5", "")
		if name := within(t, "an event", names); name != "order" {
			t.Errorf("the event's name is %q", name)
		}
	})
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	sharing, err := core.New(memstore.New(), core.WithDefaults(core.Shared()))
	if err != nil {
		t.Fatal(err)
	}
	key := httpmw.Param("id")
	long := make([]byte, 512)
	for i := range long {
		long[i] = 'a'
	}
	for name, build := range map[string]func(){
		"no locker":               func() { httpmw.Lock(nil, "order", key) },
		"an empty name":           func() { httpmw.Lock(l, "", key) },
		"a name with a colon":     func() { httpmw.Lock(l, "a:b", key) },
		"a name with a space":     func() { httpmw.Lock(l, "pay order", key) },
		"a name that is no ASCII": func() { httpmw.Lock(l, "bestellung-ä", key) },
		"a name that is too long": func() { httpmw.Lock(l, string(long), key) },
		"no key":                  func() { httpmw.Lock(l, "order", nil) },
		"a nil option":            func() { httpmw.Lock(l, "order", key, nil) },
		"a nil acquire option":    func() { httpmw.Acquire(core.Wait(0), nil) },
		"a TTL that is too short": func() { httpmw.Lock(l, "order", key, httpmw.Acquire(core.TTL(time.Millisecond))) },
		"a negative wait":         func() { httpmw.Lock(l, "order", key, httpmw.Acquire(core.Wait(-1))) },
		"more permits than there are": func() {
			httpmw.Lock(l, "order", key, httpmw.Acquire(core.Permits(3, 2)))
		},
		"options that exclude each other": func() {
			httpmw.Lock(l, "order", key, httpmw.Acquire(core.Shared()), httpmw.Acquire(core.Fenced()))
		},
		"options that do not fit the locker's defaults": func() {
			httpmw.Lock(sharing, "order", key, httpmw.Acquire(core.Permits(1, 2)))
		},
		"a pace that is not allowed": func() {
			httpmw.Lock(l, "order", key, httpmw.Acquire(core.Retry(retry.Policy{Initial: -1})))
		},
		"an option of Idempotent":   func() { httpmw.Lock(l, "order", key, httpmw.Detached()) },
		"a nil further key":         func() { httpmw.Also(key, nil) },
		"no renderer":               func() { httpmw.Render(nil) },
		"no skipper":                func() { httpmw.Skip(nil) },
		"a body limit of nothing":   func() { httpmw.BodyLimit(0) },
		"a negative body limit":     func() { httpmw.BodyLimit(-1) },
		"an empty base":             func() { httpmw.ProblemBase("") },
		"a base that is no URI":     func() { httpmw.ProblemBase("http://[::1") },
		"a parameter without name":  func() { httpmw.Param("") },
		"a query without name":      func() { httpmw.Query("") },
		"a header without name":     func() { httpmw.Header("") },
		"a form field without name": func() { httpmw.Form("") },
		"a JSON path of nothing":    func() { httpmw.JSON("") },
		"a JSON path with a gap":    func() { httpmw.JSON("a..b") },
		"a join of nothing":         func() { httpmw.Join() },
		"a join with a nil":         func() { httpmw.Join(key, nil) },
	} {
		t.Run(name+" panics at construction", func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			build()
		})
	}

	t.Run("a panic says what was wrong, and what is allowed", func(t *testing.T) {
		t.Parallel()
		for want, build := range map[string]func(){
			"Lock: an option is nil":                   func() { httpmw.Lock(l, "order", key, nil) },
			"or has more than 64 bytes":                func() { httpmw.Lock(l, string(long), key) },
			"TTL is 1ms, 100ms to":                     func() { httpmw.Lock(l, "order", key, httpmw.Acquire(core.TTL(time.Millisecond))) },
			`ProblemBase is "http://[::1"`:             func() { httpmw.ProblemBase("http://[::1") },
			`"post" is empty, safe or not in upper`:    func() { httpmw.Methods("post") },
			`header "set-cookie" is none, or of the`:   func() { httpmw.KeepHeaders("set-cookie") },
			"the scope is nil, see AnyCaller":          func() { httpmw.Idempotent(&once.Once{}, nil) },
			"Lock: Detached is an option of Idempoten": func() { httpmw.Lock(l, "order", key, httpmw.Detached()) },
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

	t.Run("options that are allowed do not panic, and nothing is sent", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, core.WithObserver(observer(func(e core.Event) { t.Errorf("event %v", e.Kind) })))
		httpmw.Lock(s.locker, "a.B-c_9", key, httpmw.Acquire(core.Fair(), core.Wait(time.Hour), core.TTL(time.Second), core.Also("x")))
		httpmw.Lock(s.locker, "order", key, httpmw.Acquire(core.Retry(retry.None), core.Wait(time.Hour)))
		httpmw.Lock(s.locker, "order", key, httpmw.Acquire(), httpmw.Also())
		httpmw.Lock(s.locker, "order", key, httpmw.Acquire(core.Permits(1, 3), core.NoRenew(), core.MaxHold(time.Second)))
		if n := s.store.attempts.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
