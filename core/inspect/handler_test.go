package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// everyView requests each page, with valid and with invalid requests.
func everyView(h http.Handler, key, hold string) map[string]answer {
	form := url.Values{"key": {key}, "hold": {hold}}
	return map[string]answer{
		"now": get(h, ""), "list": get(h, "view=list"), "style": get(h, "view=style"), "lock": post(h, "view=lock", form),
		"confirm": post(h, "view=release", form), "no page": get(h, "view=nothing"), "no form": get(h, "view=revoke"),
		"no key": post(h, "view=lock", nil), "bad page": post(h, "view=list", url.Values{"after": {"x"}}),
		"json": post(h, "view=lock&format=json", form), "json now": get(h, "format=json"), "json list": get(h, "view=list&format=json"),
		"bad key": post(h, "view=lock", url.Values{"key": {"\xff"}}),
		"head":    get(h, "", func(r *http.Request) { r.Method = "HEAD" }),
		"put":     get(h, "", func(r *http.Request) { r.Method = "PUT" }),
		"foreign": post(h, "view=lock", form, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }),
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	c := claim("order:1")
	take(t, s, c)
	for _, opts := range [][]inspect.HandlerOption{nil, {all("ann")}, {inspect.Allow(nobody)}} {
		for name, a := range everyView(inspect.Handler(newInspector(t, s), opts...), "order:1", store.HoldID(c.Lease)) {
			for header, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
				"Cache-Control":           "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
				"Referrer-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := a.Header().Values(header); len(got) != 1 || got[0] != want {
					t.Errorf("%s: %s is %q", name, header, got)
				}
			}
			for _, bad := range []string{"<script", "javascript:", " style=", "://", " on"} {
				if bad == " on" {
					if regexp.MustCompile(`<[^>]* on[a-z]+=`).MatchString(a.body) {
						t.Errorf("%s has a handler of script", name)
					}
				} else if strings.Contains(a.body, bad) {
					t.Errorf("%s has %s", name, bad)
				}
			}
		}
	}
}

func nobody(*http.Request, inspect.Action) (string, error) {
	return "", errors.New("order:1 is secret")
}

func TestKeys_WithoutTheRight(t *testing.T) {
	t.Parallel()
	const secret = "person-4711"
	const n = 500 // a page can have more than 300 rows, because the steps of a SCAN grow
	onStores(t, func(t *testing.T, s core.Store) {
		var first string
		for i := range n {
			c := claim(fmt.Sprintf("order:%s-%d", secret, i))
			take(t, s, c)
			if i == 0 {
				first = store.HoldID(c.Lease)
			}
		}
		card := core.Card{Process: "P1", Host: "host", Entries: []store.CardEntry{{Name: "order", Hold: first, Key: "order:" + secret + "-0", For: time.Minute}}}
		if err := s.(store.Cards).Put(t.Context(), card, time.Minute); err != nil {
			t.Fatal(err)
		}
		in := newInspector(t, s)
		noKeys := inspect.Allow(func(_ *http.Request, a inspect.Action) (string, error) {
			if a == inspect.ShowKeys {
				return "", errors.New("no")
			}
			return "ann", nil
		})
		for name, h := range map[string]http.Handler{
			"stranger": inspect.Handler(in), "nobody": inspect.Handler(in, inspect.Allow(nobody)), "no keys": inspect.Handler(in, noKeys),
		} {
			for view, a := range everyView(h, "order:"+secret+"-0", first) {
				if strings.Contains(a.body, secret) || strings.Contains(fmt.Sprint(a.Header()), secret) {
					t.Errorf("%s: %s shows a key: %s", name, view, a.body)
				}
				if name == "nobody" && (a.Code != http.StatusForbidden || strings.Contains(a.body, first)) {
					t.Errorf("nobody gets %s: %d, %s", view, a.Code, a.body)
				}
			}
		}
		// A visitor without the right ShowKeys can open a lock.
		stranger := inspect.Handler(in)
		row := get(stranger, "format=json").json(t).Held[0]
		if row.Key != "" || row.Digest != in.Digest("order:"+secret+"-0") {
			t.Errorf("the row is %+v", row)
		}
		opened := post(stranger, "view=lock&format=json", url.Values{"lock": {row.Sealed}}).want(t, 200)
		if l := opened.json(t).Lock; l == nil || len(l.Holds) != 1 || l.Holds[0].ID != first || l.Holds[0].Process.Host != "host" {
			t.Errorf("opened is %s", opened.body)
		}
		list := get(stranger, "view=list&format=json").want(t, 200).json(t)
		if list.Next == "" || len(list.Locks) == 0 {
			t.Fatalf("the first page has %d of %d locks, next is %q", len(list.Locks), n, list.Next)
		}
		if post(stranger, "view=lock", url.Values{"lock": {list.Next}}).Code != http.StatusBadRequest {
			t.Error("a place of a list is taken for a key")
		}
		if post(inspect.Handler(newInspector(t, s)), "view=list", url.Values{"after": {list.Next}}).Code != http.StatusBadRequest {
			t.Error("what another process has sealed is taken")
		}
	})
}

func ids(t testing.TB, in *inspect.Inspector, key string) (all []string) {
	t.Helper()
	l, err := in.Look(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range l.Holds {
		all = append(all, h.ID)
	}
	return all
}

func TestChanges_WithoutTheRight(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	c := claim("order:1")
	take(t, s, c)
	id := store.HoldID(c.Lease)
	in := newInspector(t, s)
	only := func(actions ...inspect.Action) inspect.HandlerOption {
		return inspect.Allow(func(_ *http.Request, a inspect.Action) (string, error) {
			if !slices.Contains(actions, a) {
				return "", errors.New("no")
			}
			return "ann", nil
		})
	}
	form := url.Values{"key": {"order:1"}, "hold": {id}, "confirm": {id}}
	for name, c := range map[string]struct {
		opts []inspect.HandlerOption
		view string
	}{
		"a stranger revokes":                {nil, "revoke"},
		"a stranger releases":               {nil, "release"},
		"release, with the right to revoke": {[]inspect.HandlerOption{only(inspect.View, inspect.RevokeHold)}, "release"},
		"revoke, with the right to release": {[]inspect.HandlerOption{only(inspect.View, inspect.ReleaseNow)}, "revoke"},
		"revoke without the right to see":   {[]inspect.HandlerOption{only(inspect.RevokeHold)}, "revoke"},
		"a veto":                            {[]inspect.HandlerOption{all("ann"), inspect.Audit(func(context.Context, inspect.Entry) error { return errors.New("secret") })}, "revoke"},
		"a veto of a release":               {[]inspect.HandlerOption{all("ann"), inspect.Audit(func(context.Context, inspect.Entry) error { return errors.New("secret") })}, "release"},
	} {
		h := inspect.Handler(in, c.opts...)
		if a := post(h, "view="+c.view, form); a.Code != http.StatusForbidden || strings.Contains(a.body, "secret") {
			t.Errorf("%s: %d, %s", name, a.Code, a.body)
		}
		if got := ids(t, in, "order:1"); !slices.Equal(got, []string{id}) {
			t.Fatalf("%s: the holds are %q", name, got)
		}
	}
	// The page has buttons only for the allowed actions.
	page := post(inspect.Handler(in, only(inspect.View, inspect.RevokeHold)), "view=lock", form).want(t, 200).body
	if !strings.Contains(page, "?view=revoke") || strings.Contains(page, "?view=release") {
		t.Errorf("the page for one who may revoke is %s", page)
	}
	if page := post(inspect.Handler(in), "view=lock", form).want(t, 200).body; strings.Contains(page, "?view=revoke") || strings.Contains(page, "?view=release") {
		t.Errorf("the page of a stranger is %s", page)
	}
}

func TestReleaseNow_AsksAgain(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s core.Store) {
		c := claim("order:1")
		take(t, s, c)
		id := store.HoldID(c.Lease)
		in := newInspector(t, s)
		var entries []inspect.Entry
		h := inspect.Handler(in, all("ann"), inspect.Audit(func(_ context.Context, e inspect.Entry) error {
			entries = append(entries, e)
			return nil
		}))
		for _, confirm := range []string{"", "yes", "x" + id} {
			a := post(h, "view=release", url.Values{"key": {"order:1"}, "hold": {id}, "confirm": {confirm}}).want(t, 200)
			if !strings.Contains(a.body, "There can be two holders") || !slices.Equal(ids(t, in, "order:1"), []string{id}) || len(entries) != 0 {
				t.Fatalf("confirmed by %q: holds %q, %v", confirm, ids(t, in, "order:1"), entries)
			}
		}
		post(h, "view=release", url.Values{"key": {"order:1"}, "hold": {"another"}}).want(t, http.StatusConflict)
		for _, bad := range []url.Values{
			{"key": {"order:1"}}, {"key": {"order:1"}, "hold": {strings.Repeat("h", 65)}}, {"key": {"order:1\n"}, "hold": {id}, "confirm": {id}},
			{"key": {strings.Repeat("k", 513)}, "hold": {id}, "confirm": {id}}, {"key": {"\xff"}, "hold": {id}, "confirm": {id}},
		} {
			post(h, "view=release", bad).want(t, http.StatusBadRequest)
			post(h, "view=revoke", bad).want(t, http.StatusBadRequest)
		}
		post(h, "view=release", url.Values{"key": {"order:1"}, "hold": {id}, "confirm": {id}}).want(t, 200)
		if got := ids(t, in, "order:1"); len(got) != 0 {
			t.Errorf("after a release there is %q", got)
		}
		want := inspect.Entry{Action: inspect.ReleaseNow, Who: "ann", Name: "order", Key: "order:1", Hold: id}
		if len(entries) != 1 || entries[0] != want {
			t.Errorf("the audit has %+v", entries)
		}
	})
}

func TestRevoke_TwoOperators(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s core.Store) {
		h := inspect.Handler(newInspector(t, s), all("ann"))
		for i := range 50 {
			key := fmt.Sprintf("order:%d", i)
			c := claim(key)
			take(t, s, c)
			var wg sync.WaitGroup
			var codes [2]int
			for j := range codes {
				wg.Go(func() {
					codes[j] = post(h, "view=revoke", url.Values{"key": {key}, "hold": {store.HoldID(c.Lease)}}).Code
				})
			}
			wg.Wait()
			if slices.Sort(codes[:]); codes != [2]int{200, http.StatusConflict} {
				t.Fatalf("the two get %v", codes)
			}
			if _, err := s.Acquire(t.Context(), claim(key)); !errors.Is(err, core.ErrBusy) {
				t.Fatalf("the key is not kept: %v", err)
			}
		}
	})
}

func TestRevoke_GoneHold(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st core.Store) {
		old, successor := claim("order:1"), claim("order:1")
		take(t, st, old)
		if err := st.Release(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		take(t, st, successor)
		h := inspect.Handler(newInspector(t, st), all("ann"))
		for _, view := range []string{"revoke", "release"} {
			a := post(h, "view="+view+"&format=json", url.Values{
				"key": {"order:1"}, "hold": {store.HoldID(old.Lease)}, "confirm": {store.HoldID(old.Lease)},
			}).want(t, http.StatusConflict)
			if s := a.json(t); !strings.Contains(s.Error, "Nothing has changed") || s.Lock == nil || s.Lock.Holds[0].ID != store.HoldID(successor.Lease) {
				t.Errorf("shown is %s", a.body)
			}
		}
		if err := st.Release(t.Context(), successor); err != nil {
			t.Errorf("the successor's release: %v", err)
		}
	})
}

func TestForms_OtherSites(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	h := inspect.Handler(newInspector(t, s), all("ann"))
	set := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Origin")
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	for _, c := range []struct {
		name  string
		edit  func(*http.Request)
		taken bool
	}{
		{"a browser over HTTPS", set("Sec-Fetch-Site", "same-origin", "Origin", "https://locks.internal"), true},
		{"a browser over HTTP", set("Origin", "http://locks.internal"), true},
		{"curl", set(), true},
		{"another site", set("Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"), false},
		{"a sister site", set("Sec-Fetch-Site", "same-site", "Origin", "https://other.internal"), false},
		{"another site over HTTP", set("Origin", "http://evil.example"), false},
		{"another port", set("Origin", "http://locks.internal:81"), false},
		{"a sandboxed frame", set("Origin", "null"), false},
	} {
		for _, view := range []string{"lock", "list", "revoke", "release"} {
			claimed := claim("order:" + c.name + view)
			take(t, s, claimed)
			id := store.HoldID(claimed.Lease)
			a := post(h, "view="+view, url.Values{"key": {claimed.Key}, "hold": {id}, "confirm": {id}}, c.edit)
			if want := map[bool]int{true: 200, false: http.StatusForbidden}[c.taken]; a.Code != want {
				t.Errorf("%s of %s: status %d, want %d", view, c.name, a.Code, want)
			}
			if held := s.Release(t.Context(), claimed) == nil; !c.taken && !held {
				t.Errorf("%s of %s has removed a hold", view, c.name)
			}
		}
	}
}

func TestHostileHost(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	c := claim("order:1")
	take(t, store, c)
	h := inspect.Handler(newInspector(t, store), all("ann"))
	hostile := func(r *http.Request) {
		r.Host = "evil.example"
		r.Header.Set("X-Forwarded-Host", "evil.example")
		r.Header.Set("X-Forwarded-Prefix", "//evil.example")
		r.URL.Path = "//evil.example/x\"><script>"
		r.Header.Set("Origin", "http://evil.example")
	}
	for name, a := range map[string]answer{
		"now": get(h, "", hostile), "list": get(h, "view=list", hostile), "nothing": get(h, "view=%22%3E%3Cscript%3E", hostile),
		"lock": post(h, "view=lock", url.Values{"key": {"order:1"}}, hostile), "json": get(h, "view=%3Cscript%3E&format=json", hostile),
	} {
		if strings.Contains(a.body, "evil") || strings.Contains(fmt.Sprint(a.Header()), "evil") || strings.Contains(a.body, "<script") {
			t.Errorf("%s repeats what the request says: %v %s", name, a.Header(), a.body)
		}
		for _, link := range regexp.MustCompile(`(?:href|action|src)="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
			if !strings.HasPrefix(link[1], "?") {
				t.Errorf("%s has the link %q", name, link[1])
			}
		}
	}
	// If strangers can point a host name to the service, the function of Allow must
	// check the host name.
	careful := inspect.Handler(newInspector(t, store), inspect.Allow(func(r *http.Request, _ inspect.Action) (string, error) {
		if r.Host != "locks.internal" {
			return "", errors.New("not here")
		}
		return "ann", nil
	}))
	get(careful, "").want(t, 200)
	get(careful, "", hostile).want(t, http.StatusForbidden)
}

// hostileKeys returns keys that a page could interpret as something else. The parameter
// random is the number of random ones.
func hostileKeys(random int) []string {
	keys := []string{
		`x:<script>alert(1)</script>`, `x:"><img src=x onerror=alert(1)>`, `x:' onmouseover='alert(1)`, `x:</code></td></table><form action=//evil>`,
		`x:<!--`, `x:{{.Secret}}`, `x:javascript:alert(1)`, `x:&lt;b&gt;&amp;`, "x:\u202egnp.exe", "x:\u200b\u2066\u2069", `x:\u{202e}`,
		`x:` + strings.Repeat("<", 510), `x:` + strings.Repeat("𝕏", 127), `x:</style><style>@import "//evil"`, `x:%00%0d%0aSet-Cookie:a`,
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range random {
		var b strings.Builder
		b.WriteString("x:")
		for b.Len() < 508 {
			if r := rune(rng.IntN(0x11000)); rng.IntN(3) == 0 {
				b.WriteByte(`<>"'&=/;:%`[rng.IntN(10)])
			} else if r >= 0xa0 && (r < 0xd800 || r > 0xdfff) {
				b.WriteRune(r)
			}
		}
		keys = append(keys, b.String())
	}
	return keys
}

func TestPage_KeysAreText(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, store core.Store) {
		h := inspect.Handler(newInspector(t, store), all("ann"))
		tags := regexp.MustCompile(`<[^>]*>`)
		sealed := regexp.MustCompile(`value="[^"<>]*"`)
		tagsOf := func(body string) []string { return tags.FindAllString(sealed.ReplaceAllString(body, ""), -1) }
		plain := tagsOf(post(h, "view=lock", url.Values{"key": {"x:1"}}).body)
		for _, key := range hostileKeys(tally.AllTrials(200)) {
			if strings.ContainsAny(key, "{}") {
				key = core.Key("x", key)
			}
			c := claim(key)
			if _, err := store.Acquire(t.Context(), c); err != nil {
				t.Fatalf("%q: %v", key, err)
			}
			asked := post(h, "view=lock&format=json", url.Values{"key": {key}}).want(t, 200)
			if strings.ContainsFunc(asked.body, invisible) {
				t.Errorf("the JSON of %q has invisible characters", key)
			}
			lock := asked.json(t).Lock
			if lock.Key != key || len(lock.Holds) != 1 {
				t.Fatalf("JSON has %+v of %q", lock, key)
			}
			byRef := post(h, "view=lock&format=json", url.Values{"lock": {lock.Sealed}}).want(t, 200).json(t).Lock
			if byRef.Key != key {
				t.Errorf("opened is %q, want %q", byRef.Key, key)
			}
			if err := store.Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			// The page of a free lock has the same tags for every key, except for the
			// sealed text.
			body := post(h, "view=lock", url.Values{"key": {key}}).want(t, 200).body
			got := tagsOf(body)
			for i := range got {
				if i >= len(plain) || got[i] != plain[i] {
					t.Fatalf("the page of %q has another tag: %s", key, got[i])
				}
			}
			if shown := html.UnescapeString(body); strings.ContainsFunc(shown, invisible) {
				t.Errorf("the page of %q has invisible characters", key)
			}
		}
	})
}

func TestPage_CardsAreText(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	const bad = `<script>alert("1")</script>`
	card := core.Card{Process: "P1", Service: bad, Version: bad, Host: bad, Entries: []store.CardEntry{
		{Name: bad, Hold: bad, Key: bad, Trace: bad, For: time.Minute}, {Name: bad, Hold: bad, Waiting: true},
	}}
	if err := s.Put(t.Context(), card, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]inspect.HandlerOption{nil, {all("ann")}} {
		a := get(inspect.Handler(newInspector(t, s), opts...), "").want(t, 200)
		if strings.Contains(a.body, "<script") || !strings.Contains(a.body, "&lt;script&gt;") {
			t.Errorf("the page is %s", a.body)
		}
	}
}

// fill acquires the given number of locks: "stays:0", "stays:1" and so on.
func fill(t *testing.T, store core.Store, locks int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for i := w; i < locks; i += 50 {
				c := lasting(fmt.Sprintf("stays:%d", i))
				_, err := store.Acquire(t.Context(), c)
				for n := 0; err != nil && n < 10; n++ { // on a busy machine
					_, err = store.Acquire(t.Context(), c)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestList_KeysComeAndGo lists many locks while other keys are locked and released.
func TestList_KeysComeAndGo(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, store core.Store) {
		locks := tally.AllTrials(10_000)
		fill(t, store, locks)
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		var churned atomic.Int64
		for w := range 2 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					c := claim(fmt.Sprintf("goes:%d-%d", w, i%500))
					if _, err := store.Acquire(ctx, c); err == nil {
						store.Release(context.WithoutCancel(ctx), c)
						churned.Add(1)
					}
				}
			})
		}
		testserver.Eventually(t, time.Minute, "keys come and go", func() bool { return churned.Load() > 0 })
		h := inspect.Handler(newInspector(t, store), all("ann"))
		seen := make(map[string]bool)
		pages := 0
		for page := get(h, "view=list&format=json").want(t, 200).json(t); ; {
			pages++
			for _, l := range page.Locks {
				if strings.HasPrefix(l.Key, "stays:") {
					seen[l.Key] = true
				} else if !strings.HasPrefix(l.Key, "goes:") {
					t.Fatalf("a lock of nobody: %+v", l)
				}
			}
			if page.Next == "" {
				break
			}
			page = post(h, "view=list&format=json", url.Values{"after": {page.Next}}).want(t, 200).json(t)
		}
		stop()
		wg.Wait()
		if len(seen) != locks || pages < 2 || churned.Load() == 0 {
			t.Errorf("%d of %d locks on %d pages, while %d came and went", len(seen), locks, pages, churned.Load())
		}
	})
}

// slow is a Store whose lists wait until open is closed.
type slow struct {
	*memstore.Store
	begun chan struct{}
	open  chan struct{}
	most  *atomic.Int64
	now   *atomic.Int64
}

func (s slow) List(ctx context.Context, after string, most int) ([]store.State, string, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	s.begun <- struct{}{}
	<-s.open
	return s.Store.List(ctx, after, most)
}

func TestList_OneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := slow{memstore.New(), make(chan struct{}, 9), make(chan struct{}), new(atomic.Int64), new(atomic.Int64)}
		h := inspect.Handler(newInspector(t, store))
		first := make(chan answer, 1)
		go func() { first <- get(h, "view=list") }()
		<-store.begun
		a := get(h, "view=list").want(t, http.StatusTooManyRequests)
		if a.Header().Get("Retry-After") == "" {
			t.Error("it does not say when to come back")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		get(h, "view=list", func(r *http.Request) { *r = *r.WithContext(ended) }).want(t, http.StatusServiceUnavailable)
		close(store.open)
		(<-first).want(t, 200)
		get(h, "view=list").want(t, 200)
		if store.most.Load() != 1 {
			t.Errorf("%d lists at once", store.most.Load())
		}
	})
}

func TestKeys_NotFromURLs(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	c := claim("order:1")
	take(t, s, c)
	in := newInspector(t, s)
	h := inspect.Handler(in, all("ann"))
	query := "&key=order:1&hold=" + store.HoldID(c.Lease) + "&confirm=" + store.HoldID(c.Lease)
	for _, view := range []string{"lock", "revoke", "release"} {
		get(h, "view="+view+query).want(t, http.StatusMethodNotAllowed)
		post(h, "view="+view+query, nil).want(t, http.StatusBadRequest)
	}
	large := post(h, "view=lock", url.Values{"key": {"order:1"}, "x": {strings.Repeat("x", 20<<10)}})
	large.want(t, http.StatusBadRequest)
	post(h, "view=lock", url.Values{"key": {strings.Repeat("k", 513)}}).want(t, http.StatusBadRequest)
	if len(ids(t, in, "order:1")) != 1 {
		t.Error("the hold is gone")
	}
}

func TestReplicas_SharedSecret(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	fill(t, store, 250)
	secret := []byte(strings.Repeat("s", 32))
	one := inspect.Handler(newInspector(t, store, inspect.Secret(secret)))
	other := inspect.Handler(newInspector(t, store, inspect.Secret(secret)))
	first := get(one, "view=list&format=json").want(t, 200).json(t)
	second := post(other, "view=list&format=json", url.Values{"after": {first.Next}}).want(t, 200).json(t)
	if len(first.Locks) != 100 || len(second.Locks) != 100 || first.Locks[0].Digest == second.Locks[0].Digest {
		t.Errorf("the pages have %d and %d locks", len(first.Locks), len(second.Locks))
	}
	opened := post(other, "view=lock&format=json", url.Values{"lock": {first.Locks[0].Sealed}}).want(t, 200).json(t)
	if opened.Lock.Digest != first.Locks[0].Digest || len(opened.Lock.Holds) != 1 {
		t.Errorf("opened is %+v", opened.Lock)
	}
}
