package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// screens is the environment variable with the directory for the screenshots.
const screens = "LOCKKIT_SCREENSHOTS"

// site is the page in a real browser. The page's host name is not localhost, and the
// page has no HTTPS. To such a site, a browser sends no Sec-Fetch-Site.
type site struct {
	*testserver.Browser
	t   *testing.T
	url string
}

func openSite(t *testing.T, b *testserver.Browser, page http.Handler) *site {
	t.Helper()
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Group("/admin").Any("/locks", gin.WrapH(page))
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{b, t, "http://locks.test:" + at.Port() + "/admin/locks"}
	s.Open(s.url)
	return s
}

// calm checks the conditions that apply to every page. If the variable screens is set,
// calm writes screenshots with this name.
func (s *site) calm(name string) {
	s.t.Helper()
	if said := s.Complaints(); len(said) > 0 {
		s.t.Errorf("%s: the browser complains: %q", name, said)
	}
	at := s.URL()
	if page, ours := strings.CutPrefix(at, s.url); !ours || strings.Contains(page, "order") || strings.Contains(page, "4711") {
		s.t.Errorf("%s: the browser is at %s", name, at)
	}
	if s.Run("return document.styleSheets.length") != 1.0 || s.Run("return getComputedStyle(document.querySelector('header')).display") != "flex" {
		s.t.Errorf("%s: there is no style", name)
	}
	for _, v := range []struct {
		name          string
		width, height int
		phone, dark   bool
	}{{"desktop", 1280, 640, false, false}, {"phone", 390, 844, true, false}, {"phone-dark", 390, 844, true, true}, {"desktop-dark", 1280, 640, false, true}} {
		s.Screen(v.width, v.height, v.phone, v.dark)
		if wide := s.Run("return document.documentElement.scrollWidth").(float64); int(wide) > v.width {
			s.t.Errorf("%s on a %s of %d is %v wide", name, v.name, v.width, wide)
		}
		if dir := os.Getenv(screens); dir != "" {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+"-"+v.name+".png")
			if err := os.WriteFile(file, s.Screenshot(), 0o600); err != nil {
				s.t.Error(err)
			}
		}
	}
	s.Screen(1280, 900, false, false)
}

func (s *site) wantText(what string, parts ...string) {
	s.t.Helper()
	text := s.Text("main")
	for _, p := range parts {
		if !strings.Contains(text, p) {
			s.t.Fatalf("%s has no %q: %s", what, p, text)
		}
	}
}

// words is the file with the text of the page in now-light.png and now-dark.png.
const words = "now.txt"

var changing = regexp.MustCompile(`\b(\d+[dhms])+\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

// pictured compares the page's lines with the lines of the pictures in the repository.
// It ignores times, and the random parts that chance replaces. Processes are ordered by
// their random IDs, so pictured sorts the lines.
func (s *site) pictured(chance *strings.Replacer) {
	s.t.Helper()
	lines := strings.Split(changing.ReplaceAllString(chance.Replace(s.Text("body")), "TIME"), "\n")
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if dir := os.Getenv(screens); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, words), []byte(text), 0o600); err != nil {
			s.t.Error(err)
		}
	}
	old, err := os.ReadFile(words)
	if err != nil {
		s.t.Fatal(err)
	}
	if string(old) != text {
		s.t.Errorf("got the page %q, want %q of %s: copy %[3]s, now-desktop.png as now-light.png and now-desktop-dark.png as now-dark.png from $%[4]s",
			text, old, words, screens)
	}
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	testserver.RequireBrowser(t)
	browser := testserver.StartBrowser(t, "--host-resolver-rules=MAP *.test 127.0.0.1")
	st := newRedis(t)
	in := newInspector(t, st)

	l := newLocker(t, st)
	lease := acquire(t, l, "order:4711", core.TTL(9*time.Second))
	for i := range 3 {
		go newLocker(t, st).Acquire(t.Context(), fmt.Sprintf("stock:%d", i), core.Shared())
	}
	waited, stopWaiting := context.WithCancel(t.Context())
	defer stopWaiting()
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		newLocker(t, st).Acquire(waited, "order:4711")
	}()
	testserver.Eventually(t, time.Minute, "a waiter is seen", func() bool {
		l, err := in.Look(t.Context(), "order:4711")
		return err == nil && len(l.Waiters) == 1
	})
	look, err := in.Look(t.Context(), "order:4711")
	if err != nil {
		t.Fatal(err)
	}
	long := core.Key("order", "4711", "<script>document.title='x'</script>", strings.Repeat("long", 90))
	take(t, st, lasting(long))
	for i, c := range []core.Card{
		{Process: lease.Owner()[:8], Service: "payments", Version: "1.4.2", Host: "node-7.example.com", PID: 4711, Start: time.Now().Add(-3 * time.Hour), Entries: []store.CardEntry{
			{Name: "order", Hold: lease.ID(), Key: "order:4711", Mode: "exclusive", Trace: "4bf92f3577b34da6a3ce929d0e0e4736", For: 97 * time.Second},
			{Name: "ledger", Hold: "xW3jd8Kq0aE", For: 26 * time.Hour},
		}},
		{Process: look.Waiters[0].Process, Service: "payments", Version: "1.4.2", Host: "node-9.example.com", PID: 88, Entries: []store.CardEntry{
			{Name: "order", Hold: look.Waiters[0].ID, Key: "order:4711", Waiting: true, For: 61 * time.Second},
		}},
	} {
		if err := st.Put(t.Context(), c, time.Hour); err != nil {
			t.Fatal(i, err)
		}
	}

	stranger := openSite(t, browser, inspect.Handler(in))
	stranger.calm("stranger now")
	stranger.wantText("the stranger's page", "ledger", "1d2h", "exclusive", "payments 1.4.2 on node-7.example.com, PID 4711", in.Digest("order:4711"))
	stranger.Click("table button") // the oldest lock with a key
	stranger.wantText("the stranger's lock", lease.ID(), "exclusive", "Waiters")
	stranger.calm("stranger lock")
	if page := browser.Run("return document.documentElement.outerHTML").(string); strings.Contains(page, "order:4711") || browser.Count("form[action='?view=revoke'],form[action='?view=release']") != 0 {
		t.Errorf("the stranger gets %s", page)
	}

	var entries []inspect.Entry
	operator := openSite(t, browser, inspect.Handler(in, all("ann"), inspect.Audit(func(_ context.Context, e inspect.Entry) error {
		entries = append(entries, e)
		return nil
	})))
	operator.calm("now")
	operator.pictured(strings.NewReplacer(lease.ID(), "HOLD", lease.Owner()[:8], "PROCESS", look.Waiters[0].ID, "CLAIM", look.Waiters[0].Process, "PROCESS"))
	operator.Type("#key", long)
	operator.Click(".find button")
	operator.wantText("the lock with a long key", long)
	operator.calm("lock with a hostile key")
	if title := browser.Run("return document.title"); title != "Locks" {
		t.Errorf("the title is %v", title)
	}

	operator.Type("#key", "order:4711")
	operator.Click(".find button")
	operator.wantText("the lock", "order:4711", lease.ID(), "payments 1.4.2 on node-7")
	operator.calm("lock")

	// Another site can neither submit the form nor show the page in a frame.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method=post action="%[1]s?view=revoke"><input name=key value="order:4711"><input name=hold value="%[2]s"><button>Win</button></form>
			<iframe src="%[1]s"></iframe>`, operator.url, lease.ID())
	}))
	defer evil.Close()
	at, _ := url.Parse(evil.URL)
	browser.Open("http://evil.test:" + at.Port())
	if said := strings.Join(browser.Complaints(), "\n"); !strings.Contains(said, "frame-ancestors") {
		t.Errorf("a frame is refused with %q", said)
	}
	browser.Click("button")
	operator.wantText("the form of another site", "A form from another site was refused")
	browser.Complaints() // discards the message about the status
	if len(entries) != 0 || lease.Context().Err() != nil {
		t.Fatalf("another site has changed something: %v", entries)
	}

	operator.Open(operator.url)
	operator.Click("table button")
	operator.Click("form[action='?view=release'] button")
	operator.wantText("the confirming page", "There can be two holders", lease.ID())
	operator.calm("confirm")
	operator.Click(".buttons form[action='?view=lock'] button")
	operator.Click("form[action='?view=revoke'] button")
	operator.wantText("after the revoke", "Revoked.", "rest of a revoked hold")
	operator.calm("revoked")
	if len(entries) != 1 || entries[0].Action != inspect.RevokeHold || entries[0].Hold != lease.ID() {
		t.Errorf("the audit has %+v", entries)
	}
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, core.ErrLost) {
		t.Errorf("the holder got the cause %v", cause)
	}
	stopWaiting()
	<-waiting

	operator.Type("#key", long)
	operator.Click(".find button")
	operator.Click("form[action='?view=release'] button")
	operator.Click(".buttons form[action='?view=release'] button")
	operator.wantText("after the release", "Released.", "No process holds this lock")
	operator.calm("released")
	if len(entries) != 2 || entries[1].Action != inspect.ReleaseNow || entries[1].Key != long {
		t.Errorf("the audit has %+v", entries)
	}

	t.Run("a list in pages", func(t *testing.T) {
		locks := tally.AllTrials(10_000)
		many := newRedis(t)
		fill(t, many, locks)
		s := openSite(t, browser, inspect.Handler(newInspector(t, many), all("ann")))
		s.Click("nav a:last-child")
		s.calm("list")
		seen := make(map[string]bool)
		for pages := 1; ; pages++ {
			for _, key := range browser.Run("return [...document.querySelectorAll('code.key')].map(e => e.textContent)").([]any) {
				seen[key.(string)] = true
			}
			if browser.Count("input[name=after]") == 0 {
				if pages < locks/500 || len(seen) != locks {
					t.Errorf("%d locks on %d pages", len(seen), pages)
				}
				break
			}
			s.Click("main > section > form button")
		}
		s.wantText("the last page", "This is the last page")
		if said := s.Complaints(); len(said) > 0 {
			t.Errorf("the browser complains: %q", said)
		}
	})
}
