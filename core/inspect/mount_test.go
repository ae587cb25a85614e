package inspect_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/memstore"
)

// mounts returns ways to serve the page, each with the path at which a browser opens it.
func mounts(page http.Handler) map[string]struct {
	root http.Handler
	path string
} {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Group("/admin").Any("/locks", gin.WrapH(page))
	engine.Any("/deep/*path", gin.WrapH(page))
	stripped := http.NewServeMux()
	stripped.Handle("/locks/", http.StripPrefix("/locks", page))
	exact := http.NewServeMux()
	exact.Handle("/ops/locks", page)
	behind := func(backend http.Handler, prefix, to string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server := httptest.NewServer(backend)
			defer server.Close()
			target, _ := url.Parse(server.URL)
			proxy := &httputil.ReverseProxy{Transport: &http.Transport{DisableKeepAlives: true}, Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.Out.Host = p.In.Host
				p.Out.URL.Path = to + strings.TrimPrefix(p.In.URL.Path, prefix)
			}}
			proxy.ServeHTTP(w, r)
		})
	}
	type mount = struct {
		root http.Handler
		path string
	}
	return map[string]mount{
		"the root":                      {page, "/"},
		"a path of a mux":               {exact, "/ops/locks"},
		"StripPrefix with the slash":    {stripped, "/locks/"},
		"StripPrefix without the slash": {stripped, "/locks"},
		"a gin group":                   {engine, "/admin/locks"},
		"a wildcard of gin":             {engine, "/deep/a/b"},
		"a proxy with a prefix":         {behind(exact, "/team/x", ""), "/team/x/ops/locks"},
		"a proxy that strips a part":    {behind(page, "/team/locks", ""), "/team/locks/"},
		"a proxy that adds a part":      {behind(engine, "/l", "/admin/locks"), "/l"},
	}
}

// click follows a form or a link of a page as a browser does.
func click(t *testing.T, client *http.Client, at *url.URL, method, link string, form url.Values) (body string, to *url.URL) {
	t.Helper()
	to, err := at.Parse(html.UnescapeString(link))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, to.String(), strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", at.Scheme+"://"+at.Host)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s %s: %d, %v: %s", method, to, resp.StatusCode, err, raw)
	}
	return string(raw), resp.Request.URL
}

func hidden(t *testing.T, page, action string) url.Values {
	t.Helper()
	_, form, ok := strings.Cut(page, `<form method="post" action="`+action+`"><input`)
	if !ok {
		t.Fatalf("no form %s: %s", action, page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	values := url.Values{}
	for _, f := range regexp.MustCompile(`name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
		values.Set(f[1], html.UnescapeString(f[2]))
	}
	return values
}

func TestMounts(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	for name, m := range mounts(inspect.Handler(newInspector(t, store), all("ann"))) {
		t.Run(name, func(t *testing.T) {
			key := core.Key("order", name)
			lease := acquire(t, newLocker(t, store), key)
			server := httptest.NewServer(m.root)
			defer server.Close()
			client := server.Client()
			defer client.CloseIdleConnections()
			at, _ := url.Parse(server.URL)
			body, at := click(t, client, at, "GET", m.path, nil)
			style, _ := click(t, client, at, "GET", regexp.MustCompile(`stylesheet" href="([^"]*)"`).FindStringSubmatch(body)[1], nil)
			if !strings.Contains(style, "color-scheme") {
				t.Errorf("the style is %s", style)
			}
			list := regexp.MustCompile(`href="([^"]*)"[^>]*>List`).FindStringSubmatch(body)
			body, at = click(t, client, at, "GET", list[1], nil)
			if !strings.Contains(body, html.EscapeString(key)) {
				t.Errorf("the list is %s", body)
			}
			body, at = click(t, client, at, "POST", "?view=lock", url.Values{"key": {key}})
			// This click shows the lock again.
			body, at = click(t, client, at, "POST", "?view=lock", hidden(t, body, "?view=lock"))
			body, at = click(t, client, at, "POST", "?view=release", hidden(t, body, "?view=release"))
			body, _ = click(t, client, at, "POST", "?view=release", hidden(t, body, "?view=release"))
			if !strings.Contains(body, "No process holds this lock") || lease.Release(t.Context()) == nil {
				t.Errorf("after the release the page is %s", body)
			}
		})
	}
}
