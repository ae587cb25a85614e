package httpmw_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func TestCallName(t *testing.T) { onEachKey(t, testCallName) }

func testCallName(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("names in events and problems", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		events := make(map[string]int)
		s := mw.newSite(t, core.WithObserver(observer(func(e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			events[e.Name]++
		})))
		problems := make(chan httpmw.Problem, 1)
		render := mw.Render(func(_ *gin.Context, p httpmw.Problem) { problems <- p })
		o := s.runs(once.AtMostOnce())
		clear(events) // only the events of the requests below count
		handler := func(c *gin.Context) {
			_ = c.Error(once.ErrIndeterminate)
			c.Status(http.StatusInternalServerError)
		}
		for path, name := range map[string]string{"/checkout": "checkout", "/refund": "refund", "/other": ""} {
			opts, want := []option{render}, "http"
			if name != "" {
				opts, want = append(opts, mw.CallName(name)), name
			}
			s.POST(path, mw.Idempotent(o, mw.AnyCaller(), opts...), handler)
			s.pay(path, path, "")
			s.pay(path, path, "") // refused, because the outcome of the first run is unknown
			p := within(t, "it is refused", problems)
			if p.Lock != name || !strings.Contains(p.Err.Error(), "once: do "+strconv.Quote(want)+": ") {
				t.Errorf("%s: the problem is of %q: %v", path, p.Lock, p.Err)
			}
			mu.Lock()
			if events[want] == 0 {
				t.Errorf("%s: no event has the name %s: %v", path, want, events)
			}
			delete(events, want)
			if len(events) != 0 {
				t.Errorf("%s: there are events of %v", path, events)
			}
			mu.Unlock()
		}
	})

	t.Run("responses under a new name", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		o, now := s.runs(), mw.Idempotent(s.runs(), mw.AnyCaller())
		deployed := func(c *gin.Context) { now(c) }
		s.POST("/checkout", deployed, ok)
		s.POST("/refund", mw.Idempotent(o, mw.AnyCaller(), mw.CallName("refund")), mustNotRun(t))
		if r := s.pay("k", "/checkout", ""); r.status != http.StatusOK || r.isReplay() {
			t.Errorf("got %d %q", r.status, r.body)
		}
		now = mw.Idempotent(o, mw.AnyCaller(), mw.CallName("checkout"))
		if r := s.pay("k", "/checkout", ""); r.status != http.StatusOK || !r.isReplay() {
			t.Errorf("under a new name: got %d %q, a replay is %v", r.status, r.body, r.isReplay())
		}
		if p := s.pay("k", "/refund", "").problem(t, http.StatusUnprocessableEntity); p["lock"] != "refund" {
			t.Errorf("got %v", p)
		}
	})

	t.Run("bad name or Lock panics", func(t *testing.T) {
		t.Parallel()
		for what, f := range map[string]func(){
			"empty": func() { mw.CallName("") }, "with a colon": func() { mw.CallName("a:b") },
			"too long": func() { mw.CallName(strings.Repeat("n", 65)) },
			"of a Lock": func() {
				mw.Lock(mw.newSite(t).locker, "order", mw.Param("id"), mw.CallName("checkout"))
			},
		} {
			mw.wantPanic(t, what, "CallName", f)
		}
		mw.CallName(strings.Repeat("n", 64))
	})
}

// wantPanic checks that f panics with a text that begins with the package and contains
// words.
func (mw framework) wantPanic(t *testing.T, what, words string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, _ := recover().(string); !strings.HasPrefix(text, mw.pkg+": ") || !strings.Contains(text, words) {
			t.Errorf("%s: panicked with %q, want %q", what, text, words)
		}
	}()
	f()
}
