package inspect

import (
	"bytes"
	"context"
	_ "embed" // the page and its style
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/internal/visible"
)

// Action is an action that a request to a Handler needs permission for.
type Action int

// The actions.
const (
	View       Action = iota + 1 // see names, digests, holds, waiters and processes
	ShowKeys                     // see keys, which can be customers' data
	RevokeHold                   // Inspector.Revoke
	ReleaseNow                   // Inspector.ReleaseNow
)

var actions = [...]string{View: "view", ShowKeys: "show keys", RevokeHold: "revoke", ReleaseNow: "release now"}

// String returns the action in words.
func (a Action) String() string {
	if a <= 0 || int(a) >= len(actions) {
		return "unknown"
	}
	return actions[a]
}

// Entry describes a change before it is made.
type Entry struct {
	Action Action // RevokeHold or ReleaseNow
	Who    string // name that Allow returned
	Name   string // name of the lock
	Key    string // can be a customer's data: consider that where Entry is stored
	Hold   string // ID of the hold
}

// HandlerOption is a setting of Handler.
type HandlerOption func(*handler)

// Allow makes f decide on each action of each request. If f returns an error, the action
// is refused. The returned operator's name is passed to Audit. By default every caller
// is allowed View and no other action, so mount a Handler behind a login.
//
// A request calls f for View first. It also calls f for the other actions, to choose
// the buttons of the page. So f should be quick. f must be safe for concurrent use. The
// text of f's error is not shown. f must find the user in the request, because Handler
// knows no users. Handler does not check the Host header either.
func Allow(f func(r *http.Request, a Action) (who string, err error)) HandlerOption {
	return func(h *handler) { h.allow = f }
}

// Audit calls f before each change, after Allow. If f returns an error, the change is
// not made; the error's text is not shown. When Audit calls f, the hold may no longer
// exist. Use Observer of New to be notified of changes that were made.
func Audit(f func(ctx context.Context, e Entry) error) HandlerOption {
	return func(h *handler) { h.audit = f }
}

// Handler returns an http.Handler that shows the data of the Inspector as a web page.
// The page uses no script. If the query has format=json, the response has the same data
// as JSON, with the same rights.
//
// The http.Handler uses only the query of a request's URL, and its links contain only
// queries. So it can be mounted at any path, with or without a trailing slash, under
// http.StripPrefix, and behind a proxy that adds a prefix. Keys are never in a URL.
// They are sent in forms. A form from another origin is refused
// (http.CrossOriginProtection).
//
// A list walks over the store, so each Handler makes only one list at a time. A second
// request for a list waits up to 3 seconds for the first list. If the first list is not
// complete by then, the second request is refused with 429.
//
// Handler panics if an option is nil.
func Handler(in *Inspector, opts ...HandlerOption) http.Handler {
	h := &handler{in: in, seal: newSeal(in), lists: make(chan struct{}, 1)}
	for _, o := range opts {
		if o == nil {
			panic("inspect: Handler: an option is nil")
		}
		o(h)
	}
	return h
}

type handler struct {
	in     *Inspector
	allow  func(r *http.Request, a Action) (who string, err error)
	audit  func(ctx context.Context, e Entry) error
	seal   seal
	lists  chan struct{} // full while a list is made
	origin http.CrossOriginProtection
}

//go:embed style.css
var style []byte

const (
	maxForm   = 16 << 10 // bytes; a key has at most 512, and a byte takes up to three in a form
	mostRows  = 100      // maximum rows of a page
	callTime  = 15 * time.Second
	listWait  = 3 * time.Second // time to wait for another request's list
	listWalk  = 2 * time.Second // time of a request to walk over pages without locks
	retryNext = 2               // seconds
)

// policy forbids scripts, frames, and content of other origins.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Under "no-referrer" a browser sends forms with "Origin: null". Without HTTPS there
	// is no Sec-Fetch-Site, and such forms are refused. The referrer reveals no key,
	// because URLs contain no keys.
	head.Set("Referrer-Policy", "same-origin")

	view := r.URL.Query().Get("view")
	if _, ok := h.may(r, View); !ok {
		h.write(w, r, &page{View: view, code: http.StatusForbidden, Error: "You are not allowed to see this page."})
		return
	}
	if view == "style" {
		head.Set("Content-Type", "text/css; charset=utf-8")
		w.Write(style)
		return
	}
	do, ok := views[view]
	if !ok {
		h.write(w, r, &page{View: view, code: http.StatusNotFound, Error: "This page does not exist."})
		return
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !(reads && do.get || r.Method == http.MethodPost && do.post) {
		head.Set("Allow", do.methods())
		h.write(w, r, &page{View: view, code: http.StatusMethodNotAllowed, Error: "This page can be opened only with its form."})
		return
	}
	p := &page{View: view, code: http.StatusOK}
	_, p.Keys = h.may(r, ShowKeys)
	if r.Method == http.MethodPost {
		if err := h.origin.Check(r); err != nil {
			h.write(w, r, &page{View: view, code: http.StatusForbidden, Error: "A form from another site was refused."})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			h.write(w, r, &page{View: view, code: http.StatusBadRequest, Error: "The form cannot be read."})
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	do.show(h, ctx, r, p)
	h.write(w, r, p)
}

// view is a page with the methods that it allows.
type view struct {
	get, post bool
	show      func(h *handler, ctx context.Context, r *http.Request, p *page)
}

func (v view) methods() string {
	switch {
	case !v.get:
		return "POST"
	case !v.post:
		return "GET, HEAD"
	}
	return "GET, HEAD, POST"
}

var views = map[string]view{
	"":        {get: true, show: (*handler).now},
	"list":    {get: true, post: true, show: (*handler).list},
	"lock":    {post: true, show: (*handler).lock},
	"revoke":  {post: true, show: (*handler).revoke},
	"release": {post: true, show: (*handler).release},
}

// may reports whether the request may perform an action, and returns the operator's
// name.
func (h *handler) may(r *http.Request, a Action) (who string, ok bool) {
	if h.allow == nil {
		return "", a == View
	}
	who, err := h.allow(r, a)
	return who, err == nil
}

func (h *handler) now(ctx context.Context, _ *http.Request, p *page) {
	o, err := h.in.Now(ctx)
	switch {
	case errors.Is(err, core.ErrUnsupported):
		p.Notice = "This store has no cards of processes. Look up a key, or list all locks."
		return
	case err != nil:
		p.fail(err)
		return
	}
	h.overview(p, o)
}

func (h *handler) list(ctx context.Context, r *http.Request, p *page) {
	after, ok := h.seal.open("page", r.PostForm.Get("after"))
	if !ok && r.PostForm.Get("after") != "" {
		p.refuse(staleForm)
		return
	}
	wait := time.NewTimer(listWait)
	defer wait.Stop()
	select {
	case h.lists <- struct{}{}:
		defer func() { <-h.lists }()
	case <-wait.C:
		p.code, p.Error = http.StatusTooManyRequests, "Another list is in progress. Try again in a few seconds."
		return
	case <-ctx.Done():
		p.code, p.Error = http.StatusServiceUnavailable, "The request was canceled."
		return
	}
	for start := time.Now(); ; {
		locks, next, err := h.in.List(ctx, after, mostRows)
		if err != nil {
			p.fail(err)
			return
		}
		if after = next; len(locks) > 0 || next == "" || time.Since(start) > listWalk {
			h.locks(p, locks, next)
			return
		}
	}
}

func (h *handler) lock(ctx context.Context, r *http.Request, p *page) {
	key, ok := h.key(r, p)
	if ok {
		h.show(ctx, r, p, key)
	}
}

func (h *handler) revoke(ctx context.Context, r *http.Request, p *page) {
	h.change(ctx, r, p, RevokeHold)
}

func (h *handler) release(ctx context.Context, r *http.Request, p *page) {
	h.change(ctx, r, p, ReleaseNow)
}

// change removes a hold, or shows the page to confirm a release.
func (h *handler) change(ctx context.Context, r *http.Request, p *page, a Action) {
	who, ok := h.may(r, a)
	if !ok {
		p.code, p.Error = http.StatusForbidden, "You are not allowed to do this. Nothing has changed."
		return
	}
	key, ok := h.key(r, p)
	if !ok {
		return
	}
	hold := r.PostForm.Get("hold")
	err := inspection.CheckRevoke("inspect", hold, 0)
	if err == nil {
		err = claims.CheckKey("inspect", key, true)
	}
	if err != nil { // Audit is not called for an invalid key or hold
		p.fail(err)
		return
	}
	if a == ReleaseNow && r.PostForm.Get("confirm") != hold {
		h.confirm(ctx, r, p, key, hold)
		return
	}
	if h.audit != nil {
		if err := h.audit(ctx, Entry{Action: a, Who: who, Name: Name(key), Key: key, Hold: hold}); err != nil {
			p.code, p.Error = http.StatusForbidden, "The audit refused this change. Nothing has changed."
			return
		}
	}
	// The change is not canceled when the operator closes the page.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	end, done := h.in.Revoke, "Revoked. The key stays taken for the rest of the hold, so its holder is notified of the loss first."
	if a == ReleaseNow {
		end, done = h.in.ReleaseNow, "Released. The key is free. The old holder may not be notified of the loss yet."
	}
	if err := end(ctx, key, hold); err != nil {
		p.fail(err)
		if errors.Is(err, core.ErrLost) {
			p.Error = "This hold no longer exists. Nothing has changed."
			h.look(ctx, r, p, key)
		} else if !unchanged(err) {
			p.Error = "It is unknown whether the hold was removed. Look up the lock, and try again. " + p.Error
		}
		return
	}
	p.Notice = done
	h.look(ctx, r, p, key)
}

// look adds the lock to the page after a change. If the lock cannot be read, the page
// shows no lock.
func (h *handler) look(ctx context.Context, r *http.Request, p *page, key string) {
	if lock, err := h.in.Look(ctx, key); err == nil {
		h.one(r, p, lock)
	}
}

func (h *handler) show(ctx context.Context, r *http.Request, p *page, key string) {
	lock, err := h.in.Look(ctx, key)
	if err != nil {
		p.fail(err)
		return
	}
	h.one(r, p, lock)
}

// confirm shows the effect of a release, if the hold still exists.
func (h *handler) confirm(ctx context.Context, r *http.Request, p *page, key, hold string) {
	lock, err := h.in.Look(ctx, key)
	if err != nil {
		p.fail(err)
		return
	}
	for _, x := range lock.Holds {
		if x.ID == hold {
			h.sure(p, lock, x)
			return
		}
	}
	p.code, p.Error = http.StatusConflict, "This hold no longer exists. Nothing has changed."
	h.one(r, p, lock)
}

const staleForm = "This form is from another process, or is too old. Start again."

// key returns the key of a form. The form contains the key as typed, or as sealed by an
// earlier page.
func (h *handler) key(r *http.Request, p *page) (key string, ok bool) {
	sealed := r.PostForm.Get("lock")
	if sealed == "" {
		if key = r.PostForm.Get("key"); key == "" {
			p.refuse("Enter a key.")
		}
		return key, key != ""
	}
	if key, ok = h.seal.open("lock", sealed); !ok {
		p.refuse(staleForm)
	}
	return key, ok
}

// fail makes p a page that shows an error.
func (p *page) fail(err error) {
	p.Error = brief.Error(err).Error()
	switch {
	case errors.Is(err, core.ErrInvalid):
		p.code = http.StatusBadRequest
	case errors.Is(err, core.ErrLost):
		p.code = http.StatusConflict
	case errors.Is(err, core.ErrUnsupported):
		p.code = http.StatusNotImplemented
	default:
		p.code = http.StatusServiceUnavailable
	}
}

func (p *page) refuse(why string) { p.code, p.Error = http.StatusBadRequest, why }

func (h *handler) write(w http.ResponseWriter, r *http.Request, p *page) {
	var out bytes.Buffer
	kind := "text/html; charset=utf-8"
	var err error
	if r.URL.Query().Get("format") == "json" {
		kind = "application/json"
		var text []byte
		text, err = json.Marshal(p)
		out.Write(append(visible.JSON(text), '\n'))
	} else {
		err = pages.Execute(&out, p)
	}
	if err != nil {
		out.Reset()
		kind, p.code = "text/plain; charset=utf-8", http.StatusInternalServerError
		out.WriteString("The page could not be created.\n")
	}
	if p.code == http.StatusTooManyRequests || p.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryNext))
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(p.code)
	w.Write(out.Bytes())
}
