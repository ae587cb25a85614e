package httpretry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/retry"
)

// TestNotCovered checks that requests that are not covered are sent once and unchanged,
// even if they have a key. A host that ignores the key treats a second request as a
// second payment.
func TestNotCovered(t *testing.T) {
	t.Parallel()
	orders := httpretry.Key(func(r *http.Request) string { return r.Header.Get("X-Order") })
	for name, c := range map[string]struct {
		change  func(*http.Request)
		opts    []httpretry.Option
		covered bool
	}{
		"another host":             {change: func(r *http.Request) { r.URL.Host = "shop.example" }},
		"another host with a key":  {change: func(r *http.Request) { r.URL.Host = "shop.example"; r.Header.Set("Idempotency-Key", "mine") }},
		"another host in the name": {change: func(r *http.Request) { r.URL.Host = "a." + host }},
		"another host at its end":  {change: func(r *http.Request) { r.URL.Host = host + ".example" }},
		"another port":             {change: func(r *http.Request) { r.URL.Host = host + ":8443" }},
		"port of another scheme":   {change: func(r *http.Request) { r.URL.Host = host + ":80" }},
		"another Host header":      {change: func(r *http.Request) { r.Host = "shop.example" }},
		"GET":                      {change: func(r *http.Request) { r.Method = http.MethodGet }},
		"an empty method":          {change: func(r *http.Request) { r.Method = "" }},
		"PUT":                      {change: func(r *http.Request) { r.Method = http.MethodPut }},
		"DELETE":                   {change: func(r *http.Request) { r.Method = http.MethodDelete }},
		"POST without Methods":     {opts: []httpretry.Option{httpretry.Methods("PUT")}},
		"a Key that returns none":  {opts: []httpretry.Option{orders}},
		"PATCH":                    {change: func(r *http.Request) { r.Method = http.MethodPatch }, covered: true},
		"port of the scheme":       {change: func(r *http.Request) { r.URL.Host = host + ":443" }, covered: true},
		"the host in capitals":     {change: func(r *http.Request) { r.URL.Host = strings.ToUpper(host) }, covered: true},
		"http":                     {change: func(r *http.Request) { r.URL.Scheme = "http" }, covered: true},
		"no Host header":           {change: func(r *http.Request) { r.Host = "" }, covered: true},
		"no headers":               {change: func(r *http.Request) { r.Header = nil }, covered: true},
		"a second Hosts":           {change: func(r *http.Request) { r.URL.Host, r.Host = "shop.example", "" }, opts: []httpretry.Option{httpretry.Hosts("Shop.example:443")}, covered: true},
		"PUT of Methods":           {change: func(r *http.Request) { r.Method = http.MethodPut }, opts: []httpretry.Option{httpretry.Methods("POST", "PUT")}, covered: true},
		"a Key that returns one":   {change: func(r *http.Request) { r.Header.Set("X-Order", "5") }, opts: []httpretry.Option{orders}, covered: true},
		"own key and Key":          {change: func(r *http.Request) { r.Header.Set("Idempotency-Key", "mine") }, opts: []httpretry.Option{orders}, covered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := post(t.Context(), t, strings.NewReader("5 euros"))
			if c.change != nil {
				c.change(r)
			}
			before := r.Header.Clone()
			p := peer{answers: []answer{lost}}
			_, err := newTransport(&p, c.opts...).RoundTrip(r)
			tries := 1
			if c.covered {
				tries = 4
			}
			if !errors.Is(err, errNet) || len(p.times) != tries || len(p.keys[0]) > 0 != (c.covered || before.Get("Idempotency-Key") != "") {
				t.Errorf("got %v after %d tries with %q, want %d", err, len(p.times), p.keys[0], tries)
			}
			if !c.covered && err != errNet {
				t.Errorf("the error became %v", err)
			}
			if fmt.Sprint(r.Header) != fmt.Sprint(before) {
				t.Errorf("the request's header became %v", r.Header)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	ours := httpretry.Key(func(*http.Request) string { return "ours" })
	for name, c := range map[string]struct {
		context []string
		header  http.Header
		opts    []httpretry.Option
		want    string // "" means that an error is returned and nothing is sent
	}{
		"header first":             {[]string{"context"}, http.Header{"Idempotency-Key": {"header"}}, []httpretry.Option{ours}, "header"},
		"header in lower case":     {nil, http.Header{"idempotency-key": {`"quoted"`}}, nil, `"quoted"`},
		"context second":           {[]string{"context"}, nil, []httpretry.Option{ours}, "context"},
		"inner context":            {[]string{"outer", "inner"}, nil, nil, "inner"},
		"Key third":                {nil, nil, []httpretry.Option{ours}, "ours"},
		"empty header":             {nil, http.Header{"Idempotency-Key": {""}}, []httpretry.Option{ours}, ""},
		"blank header":             {nil, http.Header{"Idempotency-Key": {" \t"}}, []httpretry.Option{ours}, ""},
		"two headers":              {nil, http.Header{"Idempotency-Key": {"a", "b"}}, nil, ""},
		"two headers in two cases": {nil, http.Header{"Idempotency-Key": {"a"}, "idempotency-key": {"a"}}, nil, ""},
		"empty key in the context": {[]string{""}, nil, []httpretry.Option{ours}, ""},
		"blank key of Key":         {nil, nil, []httpretry.Option{httpretry.Key(func(*http.Request) string { return " \t" })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			for _, key := range c.context {
				ctx = httpretry.WithKey(ctx, key)
			}
			var open atomic.Int64
			open.Add(1)
			r := post(ctx, t, &counted{Reader: strings.NewReader("5 euros"), open: &open})
			for k, v := range c.header {
				r.Header[k] = v
			}
			p := peer{answers: []answer{paid}}
			resp, err := newTransport(&p, c.opts...).RoundTrip(r)
			if open.Load() != 0 {
				t.Error("the request's body is not closed")
			}
			if c.want == "" {
				unknown := new(httpretry.UnknownError)
				if err == nil || errors.As(err, &unknown) || len(p.times) != 0 {
					t.Errorf("got %v after %d tries", err, len(p.times))
				}
				return
			}
			if err != nil || len(p.keys) != 1 || !slices.Equal(p.keys[0], []string{c.want}) || len(resp.Request.Header.Values("Idempotency-Key")) != 1 {
				t.Fatalf("got %v and %q", err, p.keys)
			}
			_ = resp.Body.Close()
		})
	}

	t.Run("random keys differ and are long", func(t *testing.T) {
		t.Parallel()
		p := peer{answers: []answer{paid}}
		transport := newTransport(&p)
		for range 2 {
			resp, err := transport.RoundTrip(post(t.Context(), t, nil))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if a, b := p.keys[0][0], p.keys[1][0]; a == b || len(a) < 22 {
			t.Errorf("got %q and %q", a, b)
		}
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	stream := func() io.Reader { return struct{ io.Reader }{strings.NewReader("5 euros")} }

	for name, c := range map[string]struct {
		body   io.Reader
		rewind func() (io.ReadCloser, error)
		answer answer
		tries  int
		status int
	}{
		"none is repeated":              {answer: lost, tries: 4},
		"NoBody is repeated":            {body: http.NoBody, answer: lost, tries: 4},
		"one without GetBody is not":    {body: stream(), answer: lost, tries: 1},
		"one without GetBody after 503": {body: stream(), answer: problem(503, ""), tries: 1, status: 503},
		"GetBody that fails ends it": {body: stream(), answer: lost, tries: 1, rewind: func() (io.ReadCloser, error) {
			return nil, io.ErrClosedPipe
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := post(t.Context(), t, c.body)
			if c.rewind != nil {
				r.GetBody = c.rewind
			}
			p, status := peer{answers: []answer{c.answer}}, 0
			resp, err := newTransport(&p).RoundTrip(r)
			if err == nil {
				status = resp.StatusCode
				_ = resp.Body.Close()
			}
			unknown := new(httpretry.UnknownError)
			if len(p.times) != c.tries || status != c.status || errors.As(err, &unknown) == (c.status > 0) || len(p.keys[0]) != 1 {
				t.Errorf("got %d, %v after %d tries, want %d", status, err, len(p.times), c.tries)
			}
		})
	}

	t.Run("response body ends early", func(t *testing.T) {
		t.Parallel()
		p := peer{answers: []answer{lost, {status: 201, body: "receipt", cut: true}}}
		resp, err := newTransport(&p).RoundTrip(post(t.Context(), t, nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		unknown := new(httpretry.UnknownError)
		if string(got) != "rec" || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &unknown) || unknown.Status != 201 || unknown.Tries != 2 || unknown.Key != p.keys[1][0] {
			t.Errorf("got %q, %v", got, err)
		}
	})

	t.Run("no body in the response", func(t *testing.T) {
		t.Parallel()
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 201, Header: http.Header{}}, nil
		})
		resp, err := newTransport(base).RoundTrip(post(t.Context(), t, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); len(got) > 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		_ = resp.Body.Close()
	})

	t.Run("trailer that the body sets", func(t *testing.T) {
		t.Parallel()
		r := post(t.Context(), t, stream())
		r.Trailer = http.Header{"Digest": nil}
		base := roundTrip(func(sent *http.Request) (*http.Response, error) {
			r.Trailer.Set("Digest", "5")
			if got := sent.Trailer.Get("Digest"); got != "5" {
				t.Errorf("got the trailer %q, want 5", got)
			}
			return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody}, nil
		})
		resp, err := newTransport(base).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	})

	t.Run("long body before another try", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("x", 200<<10)
		p := peer{answers: []answer{{status: 503, body: long}}}
		resp, err := newTransport(&p).RoundTrip(post(t.Context(), t, nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != long || p.open.Load() != 0 {
			t.Errorf("got %d bytes, %v, %d open", len(got), err, p.open.Load())
		}
	})
}

type idle struct {
	peer
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestNew(t *testing.T) {
	t.Parallel()
	panics := func(want string, f func()) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
				t.Errorf("got panic %q, want %q", got, want)
			}
		}()
		f()
	}
	panics("no Hosts", func() { httpretry.New(nil) })
	panics("an option is nil", func() { httpretry.New(nil, httpretry.Hosts(host), nil) })
	panics("there are none", func() { httpretry.Hosts() })
	for _, bad := range []string{"", "https://" + host, host + "/pay", "user@" + host, "*." + host, ":443", host + ":port", "a b"} {
		panics("not of the form", func() { httpretry.Hosts(host, bad) })
	}
	panics("Methods", func() { httpretry.Methods() })
	panics("Methods", func() { httpretry.Methods("POST", "put") })
	panics("Methods", func() { httpretry.Methods("") })
	panics("Retry", func() { httpretry.Retry(retry.Policy{Jitter: 2}) })
	panics("TryTimeout", func() { httpretry.TryTimeout(0) })
	panics("Key", func() { httpretry.Key(nil) })
	httpretry.New(nil, httpretry.Hosts("[::1]:8080", "localhost", "127.0.0.1:80"))

	var i idle
	client := http.Client{Transport: newTransport(&i)}
	client.CloseIdleConnections()
	if i.closed != 1 {
		t.Errorf("idle connections were closed %d times", i.closed)
	}
	client.Transport = newTransport(&i.peer)
	client.CloseIdleConnections()
}
