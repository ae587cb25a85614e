package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// watched serves h. It fails the test if a URL, a header or a link contains the secret,
// or if a form is sent with GET.
func watched(t *testing.T, h http.Handler, secret string) *httptest.Server {
	t.Helper()
	attributes := regexp.MustCompile(`(?i)\b(?:href|action|formaction|src|cite|data|poster|background|ping)\s*=\s*("[^"]*"|'[^']*'|[^\s>]*)`)
	plain := regexp.MustCompile(`^"\?(?:view=(?:style|list|lock|revoke|release))?"$`)
	var errorLog bytes.Buffer
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		for _, at := range []string{r.RequestURI, r.Referer()} {
			if whole, err := url.QueryUnescape(at); err != nil || strings.Contains(at+whole, secret) {
				t.Errorf("a URL is %q", at)
			}
		}
		for name, values := range rec.Header() {
			if slices.Contains([]string{"Location", "Content-Location", "Refresh", "Link", "Set-Cookie"}, name) || strings.Contains(fmt.Sprint(values), secret) {
				t.Errorf("%s: %q", name, values)
			}
		}
		body := rec.Body.String()
		if strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html") {
			for _, a := range attributes.FindAllStringSubmatch(body, -1) {
				if !plain.MatchString(a[1]) {
					t.Errorf("there is the link %s", a[1])
				}
			}
			if forms := strings.Count(body, "<form"); forms == 0 || forms != len(regexp.MustCompile(`<form[^>]* method="post"`).FindAllString(body, -1)) {
				t.Errorf("of %d forms some are not posted: %s", forms, body)
			}
			if strings.Contains(body, "http-equiv") {
				t.Errorf("the page sends its reader elsewhere: %s", body)
			}
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
	}))
	server.Config.ErrorLog = log.New(&errorLog, "", 0)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if strings.Contains(errorLog.String(), secret) {
			t.Errorf("logged is %s", errorLog.String())
		}
	})
	return server
}

func TestURLs_WithoutKeys(t *testing.T) {
	t.Parallel()
	const secret = "person-4711"
	onStores(t, func(t *testing.T, s core.Store) {
		fill(t, s, 400)
		first, second := claim("order:"+secret), claim("order:second "+secret)
		take(t, s, first)
		take(t, s, second)
		card := core.Card{Process: "P1", Entries: []store.CardEntry{{Name: "order", Hold: store.HoldID(first.Lease), Key: first.Key, For: time.Minute}}}
		if err := s.(store.Cards).Put(t.Context(), card, time.Minute); err != nil {
			t.Fatal(err)
		}
		server := watched(t, inspect.Handler(newInspector(t, s), all("ann")), secret)
		client := server.Client()
		at, err := url.Parse(server.URL + "/locks")
		if err != nil {
			t.Fatal(err)
		}
		shows := func(body string, parts ...string) {
			t.Helper()
			for _, p := range parts {
				if !strings.Contains(body, p) {
					t.Fatalf("there is no %q: %s", p, body)
				}
			}
		}
		body, at := click(t, client, at, "GET", "?", nil)
		body, at = click(t, client, at, "POST", "?view=lock", hidden(t, body, "?view=lock"))
		shows(body, first.Key, store.HoldID(first.Lease))
		body, at = click(t, client, at, "POST", "?view=release", hidden(t, body, "?view=release"))
		shows(body, first.Key, "There can be two holders")
		body, at = click(t, client, at, "POST", "?view=lock", hidden(t, body, "?view=lock"))
		body, at = click(t, client, at, "POST", "?view=revoke", hidden(t, body, "?view=revoke"))
		shows(body, first.Key, "Revoked.")
		body, at = click(t, client, at, "GET", "?view=list", nil)
		body, at = click(t, client, at, "POST", "?view=list", hidden(t, body, "?view=list"))
		shows(body, "stays:")
		body, at = click(t, client, at, "POST", "?view=lock", url.Values{"key": {second.Key}})
		body, at = click(t, client, at, "POST", "?view=release", hidden(t, body, "?view=release"))
		body, at = click(t, client, at, "POST", "?view=release", hidden(t, body, "?view=release"))
		shows(body, second.Key, "Released.")
		click(t, client, at, "POST", "?view=lock&format=json", url.Values{"key": {second.Key}})
	})
}

// TestJSON_OtherSites checks that a page of another site can neither send a
// change nor read anything as JSON.
func TestJSON_OtherSites(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	held := claim("order:1")
	take(t, st, held)
	id := store.HoldID(held.Lease)
	in := newInspector(t, st)
	h := inspect.Handler(in, all("ann"))
	form := url.Values{"key": {held.Key}, "hold": {id}, "confirm": {id}}
	foreign := func(r *http.Request) {
		r.Header.Set("Origin", "https://evil.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	as := func(kind, body string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Content-Type", kind)
			r.Body, r.ContentLength = http.NoBody, 0
			if body != "" {
				fresh := httptest.NewRequest("POST", "/", strings.NewReader(body))
				r.Body, r.ContentLength = fresh.Body, fresh.ContentLength
			}
		}
	}
	text := fmt.Sprintf(`{"key":%q,"hold":%q,"confirm":%q}`, held.Key, id, id)
	for _, view := range []string{"lock", "list", "revoke", "release"} {
		for name, edit := range map[string][]func(*http.Request){
			"a form":               {foreign},
			"a form from a sister": {func(r *http.Request) { foreign(r); r.Header.Set("Sec-Fetch-Site", "same-site") }},
			"a form over HTTP":     {func(r *http.Request) { foreign(r); r.Header.Del("Sec-Fetch-Site") }},
			"JSON as text":         {as("text/plain", text), foreign},
			"JSON":                 {as("application/json", text), foreign},
			"nothing":              {as("application/x-www-form-urlencoded", ""), foreign},
		} {
			a := post(h, "view="+view+"&format=json", form, edit...)
			if a.Code != http.StatusForbidden || strings.Contains(a.body, id) || strings.Contains(a.body, held.Key) {
				t.Errorf("%s of %s: status %d, %s", view, name, a.Code, a.body)
			}
			if s := a.json(t); s.Error != "A form from another site was refused." {
				t.Errorf("%s of %s: %q", view, name, s.Error)
			}
		}
		// A body that is not a form names no key, whatever its origin.
		if view == "list" {
			continue
		}
		for _, kind := range []string{"application/json", "text/plain", "multipart/form-data; boundary=x", "", "application/x-www-form-urlencoded; charset"} {
			if a := post(h, "view="+view+"&format=json", nil, as(kind, text)); a.Code != http.StatusBadRequest {
				t.Errorf("%s of %q: status %d, %s", view, kind, a.Code, a.body)
			}
		}
	}
	// A browser first asks the server whether a foreign site may send JSON or use
	// another method. The browser lets that site read only the parts of a response that
	// the server allows.
	for _, a := range []answer{
		get(h, "view=revoke&format=json", foreign, func(r *http.Request) {
			r.Method = "OPTIONS"
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "content-type")
		}),
		get(h, "view=list&format=json", foreign), get(h, "format=json", foreign), get(h, "format=json&callback=f", foreign),
	} {
		for name := range a.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("it answers with %s", name)
			}
		}
		if a.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || a.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("another site may read it: %v", a.Header())
		}
		a.json(t)
	}
	if got := ids(t, in, held.Key); !slices.Equal(got, []string{id}) {
		t.Errorf("the holds are %q", got)
	}
	if x := st.Extend(t.Context(), []store.Claim{held}); x[0].Err != nil {
		t.Error(x[0].Err)
	}
}

// allowed reports whether a key can contain a byte. Control characters, braces, and
// bytes that never occur in UTF-8 are not allowed.
func allowed(b byte) bool {
	return b >= 0x20 && b != 0x7f && b != '{' && b != '}' && b != 0xc0 && b != 0xc1 && b < 0xf5
}

// wholeKeys returns keys that together contain every byte that a key can contain. Most
// of the keys have 512 bytes.
func wholeKeys(t *testing.T) (keys []string) {
	t.Helper()
	var runes []rune
	for r := rune(' '); r < 0x800; r++ {
		if !unicode.IsControl(r) && r != '{' && r != '}' {
			runes = append(runes, r)
		}
	}
	for lead := rune(0); lead < 16; lead++ {
		runes = append(runes, max(0x800, lead<<12+0x42)) // with three bytes
	}
	runes = append(runes, 0x10000, 0x50000, 0x90000, 0xd0000, 0x10ffff, '\ufffd', '\ufeff', '\u202e', '\u2028', '\u3000')
	var key strings.Builder
	cut := func() {
		key.WriteString(strings.Repeat("x", 512-key.Len()))
		keys = append(keys, key.String())
		key.Reset()
	}
	for _, r := range runes {
		if key.Len()+len(string(r)) > 512 {
			cut()
		}
		key.WriteRune(r)
	}
	cut()
	var every [256]byte
	for i := range every {
		every[i] = byte(i)
	}
	keys = append(keys, core.Key("x", string(every[:128])), core.Key("x", string(every[128:])))
	seen := strings.Join(keys, "")
	for b := range every {
		if allowed(byte(b)) && !strings.Contains(seen, string(every[b:b+1])) {
			t.Fatalf("no key has the byte %#x", b)
		}
	}
	return keys
}

// keysOf returns the keys that a page shows.
func keysOf(body string) (keys []string) {
	for _, k := range regexp.MustCompile(`<code class="key">(.*?)</code>`).FindAllStringSubmatch(body, -1) {
		keys = append(keys, html.UnescapeString(k[1]))
	}
	return keys
}

func invisible(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

func TestEveryByteOfAKey(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, s core.Store) {
		h := inspect.Handler(newInspector(t, s), all("ann"))
		held := make(map[string]store.Claim)
		for _, key := range wholeKeys(t) {
			held[key] = lasting(key)
			take(t, s, held[key])
		}
		// In ZooKeeper a hold that is not extended lasts for half of a session.
		ctx, stop := context.WithCancel(t.Context())
		var extending sync.WaitGroup
		defer extending.Wait()
		defer stop()
		claims := slices.Collect(maps.Values(held))
		extending.Go(func() {
			for tick := time.Tick(time.Second); ctx.Err() == nil; {
				s.Extend(ctx, claims)
				select {
				case <-tick:
				case <-ctx.Done():
				}
			}
		})
		for key, c := range held {
			asked := post(h, "view=lock&format=json", url.Values{"key": {key}}).want(t, 200)
			if l := asked.json(t).Lock; l.Key != key || len(l.Holds) != 1 || l.Holds[0].ID != store.HoldID(c.Lease) {
				t.Errorf("looked up is %+v, want %q", l, key)
			}
			body := post(h, "view=lock", url.Values{"key": {key}}).want(t, 200).body
			if shown := keysOf(body); len(shown) != 1 || !strings.ContainsFunc(key, invisible) && shown[0] != key {
				t.Errorf("shown is %q, want %q", shown, key)
			}
			if strings.ContainsFunc(html.UnescapeString(body), invisible) || strings.ContainsFunc(asked.body, invisible) {
				t.Errorf("%q is shown with what is invisible", key)
			}
		}
		listed := make(map[string]string)
		written := make(map[string]bool)
		list, page := get(h, "view=list&format=json").want(t, 200).json(t), get(h, "view=list").want(t, 200).body
		for {
			for _, l := range list.Locks {
				listed[l.Key] = l.Sealed
			}
			for _, key := range keysOf(page) {
				written[key] = true
			}
			if list.Next == "" {
				break
			}
			after := url.Values{"after": {list.Next}}
			list, page = post(h, "view=list&format=json", after).want(t, 200).json(t), post(h, "view=list", after).want(t, 200).body
		}
		if len(listed) != len(held) || len(written) != len(held) {
			t.Errorf("%d keys are listed, %d on the pages, want %d", len(listed), len(written), len(held))
		}
		for key, c := range held {
			sealed, ok := listed[key]
			if !ok {
				t.Errorf("%q is not listed", key)
				continue
			}
			id := store.HoldID(c.Lease)
			testserver.Eventually(t, time.Minute, fmt.Sprintf("the hold of %q is removed", key), func() bool {
				a := post(h, "view=release", url.Values{"lock": {sealed}, "hold": {id}, "confirm": {id}})
				if a.Code != http.StatusServiceUnavailable { // too late
					a.want(t, 200)
				}
				return errors.Is(s.Extend(t.Context(), []store.Claim{c})[0].Err, core.ErrLost)
			})
		}
		for b := range 256 {
			if b == '{' || b == '}' {
				continue // some stores allow these keys
			}
			key, code := "x:"+string([]byte{byte(b)}), http.StatusBadRequest
			if allowed(byte(b)) && b < 0x80 {
				code = 200
			}
			if a := post(h, "view=lock&format=json", url.Values{"key": {key}}); a.Code != code {
				t.Errorf("%q: status %d, want %d", key, a.Code, code)
			}
		}
	})
}

// TestTwoOperatorsOneReader checks two operators who remove the same reader, one by a
// revoke and one by a release. One operator must get the error that the hold is gone. A
// second reader must keep its hold.
func TestTwoOperatorsOneReader(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, st core.Store) {
		h := inspect.Handler(newInspector(t, st), all("ann"))
		for i := range tally.AllTrials(20) {
			key := fmt.Sprintf("order:%d", i)
			gone, stays := claim(key), claim(key)
			gone.Weight, stays.Weight = 1, 1
			take(t, st, gone)
			take(t, st, stays)
			id := store.HoldID(gone.Lease)
			var answers [2]answer
			var wg sync.WaitGroup
			for j, view := range []string{"revoke", "release"} {
				wg.Go(func() {
					answers[j] = post(h, "view="+view+"&format=json", url.Values{"key": {key}, "hold": {id}, "confirm": {id}})
				})
			}
			wg.Wait()
			did, late := answers[0], answers[1]
			kept := did.Code == 200
			if !kept {
				did, late = late, did
			}
			did.want(t, 200)
			if s := late.want(t, http.StatusConflict).json(t); s.Error != "This hold no longer exists. Nothing has changed." {
				t.Fatalf("the other one got %q", s.Error)
			}
			if x := st.Extend(t.Context(), []store.Claim{gone, stays}); !errors.Is(x[0].Err, core.ErrLost) || x[1].Err != nil {
				t.Fatalf("the hold that was taken: %v; the other one: %v", x[0].Err, x[1].Err)
			}
			want := []string{store.HoldID(stays.Lease)}
			if kept {
				want = append(want, "")
			}
			got := ids(t, newInspector(t, st), key)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("the holds are %q, want %q", got, want)
			}
		}
	})
}
