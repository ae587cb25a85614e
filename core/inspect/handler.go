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

// Action is what a request to a Handler wants to do, and has to be allowed.
type Action int

// The actions.
const (
	View       Action = iota + 1 // see names, digests, holds and waiters
	ShowKeys                     // see keys, which can be customers' data
	RevokeHold                   // Inspector.Revoke
	ReleaseNow                   // Inspector.ReleaseNow
)

var actions = [...]string{View: "view", ShowKeys: "show keys", RevokeHold: "revoke", ReleaseNow: "release now"}

// String is the action in words.
func (a Action) String() string {
	if a <= 0 || int(a) >= len(actions) {
		return "unknown"
	}
	return actions[a]
}

// Entry is a change that is about to be made.
type Entry struct {
	Action Action // RevokeHold or ReleaseNow
	Who    string // as Allow has said
	Name   string // of the lock
	Key    string // it can be a customer's data: mind that where Entry is kept
	Hold   string // ID of the hold
}

// HandlerOption is a setting of Handler.
type HandlerOption func(*handler)

// Allow has f decide on each action of each request: an error refuses it, and the
// operator's name is for Audit. f is asked for View first, and for the other actions also to know
// which buttons to show, so it should be quick; it may be called by several goroutines.
// The text of its error is not shown. f decides by what the request carries: Handler
// itself knows no users, and looks at no Host.
//
// Without Allow every caller has View and nothing else, so mount a Handler behind a login.
func Allow(f func(r *http.Request, a Action) (who string, err error)) HandlerOption {
	return func(h *handler) { h.allow = f }
}

// Audit has f called before each change, after Allow. An error vetoes the change; its
// text is not shown. Whether the hold was still there is not known yet: Observer of New
// is told of what has been done.
func Audit(f func(ctx context.Context, e Entry) error) HandlerOption {
	return func(h *handler) { h.audit = f }
}

// Handler is the Inspector as a page. It uses no script, and answers the same as JSON
// where the query has format=json, with the same rights.
//
// It can be mounted anywhere, at a path with or without a slash at its end, stripped or
// not, and behind a proxy that adds a prefix: it looks at the query only, and its links
// have nothing else. Keys are never in a URL: they are asked for by forms, which are
// refused if they come from another origin (http.CrossOriginProtection).
//
// A list walks over the store, so there is one at a time for each Handler; a second one
// waits some seconds for it, and is refused with 429 then.
//
// It panics if an option is nil.
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
	lists  chan struct{} // full while one is made
	origin http.CrossOriginProtection
}

//go:embed style.css
var style []byte

const (
	maxForm   = 16 << 10 // bytes; a key has 512, which three bytes of a form each can stand for
	mostRows  = 100      // of a page
	callTime  = 15 * time.Second
	listWait  = 3 * time.Second // for another request's list
	listWalk  = 2 * time.Second // over what is no lock, before the page says so
	retryNext = 2               // seconds
)

// policy forbids scripts, frames, and whatever is not of the page's own origin.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Under "no-referrer" a browser sends forms with "Origin: null", which is refused
	// where there is no HTTPS, and so no Sec-Fetch-Site. URLs have no keys.
	head.Set("Referrer-Policy", "same-origin")

	view := r.URL.Query().Get("view")
	if _, ok := h.may(r, View); !ok {
		h.write(w, r, &page{View: view, code: http.StatusForbidden, Error: "You may not see this page."})
		return
	}
	if view == "style" {
		head.Set("Content-Type", "text/css; charset=utf-8")
		w.Write(style)
		return
	}
	do, ok := views[view]
	if !ok {
		h.write(w, r, &page{View: view, code: http.StatusNotFound, Error: "There is no such page."})
		return
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !(reads && do.get || r.Method == http.MethodPost && do.post) {
		head.Set("Allow", do.methods())
		h.write(w, r, &page{View: view, code: http.StatusMethodNotAllowed, Error: "This page is reached by its form only."})
		return
	}
	p := &page{View: view, code: http.StatusOK}
	_, p.Keys = h.may(r, ShowKeys)
	if r.Method == http.MethodPost {
		if err := h.origin.Check(r); err != nil {
			h.write(w, r, &page{View: view, code: http.StatusForbidden, Error: "A form of another site is not taken."})
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

// view is a page, by the methods that it takes.
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

// may tells whether the request may do this, and whose it is.
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
		p.Notice = "This store keeps no cards of its processes. Look up a key, or list all locks."
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
		p.code, p.Error = http.StatusTooManyRequests, "Another list is being made. Try again in a moment."
		return
	case <-ctx.Done():
		p.code, p.Error = http.StatusServiceUnavailable, "The request has ended."
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

// change takes a hold away, or asks to confirm that.
func (h *handler) change(ctx context.Context, r *http.Request, p *page, a Action) {
	who, ok := h.may(r, a)
	if !ok {
		p.code, p.Error = http.StatusForbidden, "You may not do this. Nothing has changed."
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
	if err != nil { // the audit does not hear of what no store has
		p.fail(err)
		return
	}
	if a == ReleaseNow && r.PostForm.Get("confirm") != hold {
		h.confirm(ctx, r, p, key, hold)
		return
	}
	if h.audit != nil {
		if err := h.audit(ctx, Entry{Action: a, Who: who, Name: Name(key), Key: key, Hold: hold}); err != nil {
			p.code, p.Error = http.StatusForbidden, "The audit has refused this. Nothing has changed."
			return
		}
	}
	// Closing the page does not take the decision back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	end, done := h.in.Revoke, "Revoked. The key stays taken for what was left of the hold, so that its holder learns of the loss first."
	if a == ReleaseNow {
		end, done = h.in.ReleaseNow, "Released. The key is free; the old holder may not know of it yet."
	}
	if err := end(ctx, key, hold); err != nil {
		p.fail(err)
		if errors.Is(err, core.ErrLost) {
			p.Error = "There is no such hold any more. Nothing has changed."
			h.look(ctx, r, p, key)
		} else if !unchanged(err) {
			p.Error = "It is not known whether the hold has ended. Look at the lock, and try again. " + p.Error
		}
		return
	}
	p.Notice = done
	h.look(ctx, r, p, key)
}

// look shows the lock after a change, if it can.
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

// confirm shows what a release would do, if the hold is still there.
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
	p.code, p.Error = http.StatusConflict, "There is no such hold any more. Nothing has changed."
	h.one(r, p, lock)
}

const staleForm = "This form is not of this process, or is too old. Begin again."

// key is the key that a form is about: as it was typed, or as a page has sealed it.
func (h *handler) key(r *http.Request, p *page) (key string, ok bool) {
	sealed := r.PostForm.Get("lock")
	if sealed == "" {
		if key = r.PostForm.Get("key"); key == "" {
			p.refuse("A key is needed.")
		}
		return key, key != ""
	}
	if key, ok = h.seal.open("lock", sealed); !ok {
		p.refuse(staleForm)
	}
	return key, ok
}

// fail makes p the page of an error.
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

// write answers with the page.
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
		out.WriteString("The page could not be made.\n")
	}
	if p.code == http.StatusTooManyRequests || p.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryNext))
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(p.code)
	w.Write(out.Bytes())
}
