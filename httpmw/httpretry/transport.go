package httpretry

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// keyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const keyHeader = "Idempotency-Key"

// transport is the RoundTripper that New returns.
type transport struct {
	config
	base http.RoundTripper
}

// New returns a RoundTripper that sends each request through base, under one
// Idempotency-Key for all its tries. A nil base is http.DefaultTransport. The
// RoundTripper covers the requests of POST and PATCH, or of Methods, to the named
// Hosts. It sends other requests unchanged.
//
// The key comes from the request's own header, else from WithKey, else from Key.
// Otherwise it is random. A request with an empty or blank key from its header or
// WithKey fails, and nothing is sent. A blank key from Key, and several keys in the
// header, have the same effect.
//
// A request is tried again after an error of base, after 408, 425, 429, 502, 503 and
// 504, and after 409 if its problem type ends in "idempotency-in-progress" or
// "lock-busy". A request whose body has no GetBody is tried once. If a pause would
// reach the deadline of the request's context, RoundTrip returns the outcome so far
// instead of pausing.
//
// For a covered request with a key, the error matches *UnknownError if the request may
// have been carried out. Any other error means that the request was not carried out.
// The same is true for the requests that follow a redirect of a covered request.
// New panics without Hosts, or for a nil option.
func New(base http.RoundTripper, opts ...Option) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{base: base, config: config{
		policy:  defaultRetry,
		methods: []string{http.MethodPost, http.MethodPatch},
		key:     func(*http.Request) string { return rand.Text() },
	}}
	for _, o := range opts {
		if o == nil {
			panic("httpretry: New: an option is nil")
		}
		o(&t.config)
	}
	if len(t.hosts) == 0 {
		panic("httpretry: New: no Hosts are named")
	}
	return t
}

// CloseIdleConnections closes the idle connections of base, for
// http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	from, covered := t.redirected(req), t.covers(req)
	switch {
	case from != nil && from.Method != req.Method:
		return t.follow(req, from.Header.Get(keyHeader))
	case from != nil && !covered:
		closeBody(req)
		return nil, errRedirect
	case !covered:
		return t.base.RoundTrip(req)
	}
	key, err := t.keyOf(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if key == "" {
		return t.base.RoundTrip(req)
	}
	c := call{transport: t, req: req, key: key}
	return c.run()
}

// errRedirect is the error of a redirect that would carry a covered request out of the
// reach of its key.
var errRedirect = errors.New("httpretry: a redirect repeats the request at a host that Hosts does not name; nothing was sent there")

// follow sends the request with which http.Client follows a redirect of the covered
// request with this key, by another method. The covered request may have been carried
// out, and only a 2xx or a 5xx is returned. Another redirect is returned too, because
// http.Client follows it.
func (t *transport) follow(req *http.Request, key string) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, &UnknownError{Key: key, Tries: 1, Err: err}
	}
	resp.Request = req
	if resp.StatusCode/100 == 4 {
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, &UnknownError{Key: key, Tries: 1, Status: resp.StatusCode, Err: statusError(resp.StatusCode)}
	}
	if resp.Body != nil {
		resp.Body = &body{ReadCloser: resp.Body, call: &call{key: key}, try: 1, status: resp.StatusCode, cancel: func() {}}
	}
	return resp, nil
}

// redirected returns the last covered request whose redirects lead to req, if possible
// one of another method than req. It returns nil if there is none.
func (t *transport) redirected(req *http.Request) (last *http.Request) {
	for from := req.Response; from != nil && from.Request != nil; from = from.Request.Response {
		r := from.Request
		if r.Header.Get(keyHeader) == "" || !t.covers(r) {
			continue
		}
		if r.Method != req.Method {
			return r
		}
		if last == nil {
			last = r
		}
	}
	return last
}

// covers reports whether the method of req is covered, and Hosts names both the
// destination of req and the host in its header.
func (t *transport) covers(req *http.Request) bool {
	named := func(host string) bool {
		host = strings.ToLower(host)
		port := map[string]string{"http": ":80", "https": ":443"}[req.URL.Scheme]
		return slices.ContainsFunc(t.hosts, func(h string) bool { return h == host || h+port == host || h == host+port })
	}
	return slices.Contains(t.methods, req.Method) && named(req.URL.Host) && (req.Host == "" || named(req.Host))
}

var errKey = errors.New("httpretry: the request's " + keyHeader + " is empty, or there are several; nothing was sent")

// keyOf returns the key of a covered request, or "" if the request gets no key.
func (t *transport) keyOf(req *http.Request) (string, error) {
	var own []string
	for name, values := range req.Header {
		if strings.EqualFold(name, keyHeader) {
			own = append(own, values...)
		}
	}
	if key, ok := req.Context().Value(contextKey{}).(string); ok && len(own) == 0 {
		own = []string{key}
	}
	if len(own) == 0 {
		if key := t.key(req); key != "" {
			own = []string{key}
		}
	}
	switch {
	case len(own) == 0:
		return "", nil
	case len(own) > 1 || strings.Trim(own[0], " \t") == "":
		return "", errKey
	}
	return own[0], nil
}

type contextKey struct{}

// WithKey returns a context with an Idempotency-Key for a request that has no such
// header. Derive the key from the request's order, and store it with the order before
// the request is sent. The request can then be repeated after a crash. A key is for one
// request. Do not use the context for another request, because the server would refuse
// it.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
