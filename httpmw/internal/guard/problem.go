package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// defaultBase is the page that has a section for each problem.
const defaultBase = "https://github.com/lockkit/lockkit/blob/main/httpmw/PROBLEMS.md#"

// defaultPause is the usual time until a client asks again. A busy lock's own hint can
// only be shorter. That is when the lock is free if its holder died; a holder that
// lives is done long before that, or extends the lock.
const defaultPause = time.Second

// timeout and runTimeout are the types of problems of 500 and above that are
// contention.
const (
	timeout    = "lock-timeout"
	runTimeout = "idempotency-timeout"
)

// statusClientGone is the status in access logs for a client that left before its
// response; 499 is nginx's number for it.
const statusClientGone = 499

// Problem is the response to a request that may not run, after RFC 9457.
type Problem struct {
	Type   string // identifies the kind of problem, a URI
	Title  string // says the same to people
	Status int    // the HTTP status
	Detail string // what is wrong with this request, for people
	Lock   string // the name given to Lock, or by CallName; else empty
	// RetryAfter is how long the client should wait before it asks again, or 0 if
	// asking is of no use.
	RetryAfter time.Duration
	// Err is the reason. It is not part of the response: a KeyFunc's own error can say
	// anything.
	Err error
}

// MarshalJSON makes the problem details object, without Err, and with RetryAfter as
// "retry_after_ms".
func (p Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
		Lock   string `json:"lock,omitempty"`
		Millis int64  `json:"retry_after_ms,omitempty"`
	}{p.Type, p.Title, p.Status, p.Detail, p.Lock, ceil(p.RetryAfter, time.Millisecond)})
}

// ceil returns d in whole units, rounded up.
func ceil(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// render writes the response unless Render replaces it, with the headers that
// draft-ietf-httpapi-idempotency-key-header shows (section 2.7).
func render(x Exchange, p Problem) {
	answer, err := json.Marshal(p)
	if err != nil {
		return // cannot happen: strings and numbers only
	}
	w := x.Writer()
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	if strings.HasPrefix(p.Type, "https://") || strings.HasPrefix(p.Type, "http://") {
		h.Add("Link", "<"+p.Type+`>; rel="describedby"; type="text/html"`)
	}
	_, _ = w.Write(answer)
}

// refuse aborts the request and responds with p.
func (g *Config) refuse(x Exchange, name string, p Problem) {
	x.Abort()
	w := x.Writer()
	if w.Written() {
		return
	}
	p.Type, p.Lock = g.base+p.Type, name
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(ceil(p.RetryAfter, time.Second), 10))
	}
	w.WriteHeader(p.Status)
	g.render(x, p)
}

// fail responds to a request that did not run because of err.
func (g *Config) fail(x Exchange, name string, p Problem) {
	ctx := x.Request().Context()
	inside(x, refused)
	if ctx.Err() != nil && context.Cause(ctx) == context.Canceled {
		x.Abort()
		x.Writer().WriteHeader(statusClientGone)
		return
	}
	if p.Status >= http.StatusInternalServerError && p.Type != timeout && p.Type != runTimeout && g.report != nil {
		g.report(x, p.Err)
	}
	g.refuse(x, name, p)
}

// keyProblem returns the problem for the error of a KeyFunc.
func keyProblem(err error) Problem {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return Problem{
			Type: "body-too-large", Title: "Body too large", Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("Body is longer than %d bytes.", tooLarge.Limit), Err: err,
		}
	}
	if errors.Is(err, core.ErrInvalid) {
		p := Problem{
			Type: "key-invalid", Title: "Key missing or not allowed", Status: http.StatusBadRequest,
			Detail: "The request has no key to lock.", Err: err,
		}
		var own *keys.Error
		if errors.As(err, &own) {
			p.Detail = sentence(own)
		}
		return p
	}
	return failedProblem(err)
}

// acquireProblem returns the problem for a lock that was not acquired.
func acquireProblem(ctx context.Context, err error) Problem {
	var busy *core.BusyError
	isBusy := errors.As(err, &busy)
	switch {
	case isBusy:
		pause := defaultPause
		if busy.RetryAfter > 0 {
			pause = min(busy.RetryAfter, defaultPause)
		}
		return Problem{
			Type: "lock-busy", Title: "Busy", Status: http.StatusConflict,
			Detail: "Another request is in progress.", RetryAfter: pause, Err: err,
		}
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return failedProblem(err)
	case ctx.Err() != nil && !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrClosed):
		return Problem{
			Type: timeout, Title: "Out of time", Status: http.StatusServiceUnavailable,
			Detail: "The request timed out before it began.", RetryAfter: defaultPause, Err: err,
		}
	}
	return Problem{
		Type: "lock-unavailable", Title: "Lock not available", Status: http.StatusServiceUnavailable,
		Detail: "Locks are unavailable. The request was not run.", RetryAfter: defaultPause, Err: err,
	}
}

// misconfigured returns the detail for an error that only the server's log explains.
func misconfigured(what string, err error) string {
	if setup := setupError(""); errors.As(err, &setup) || errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrUnsupported) {
		return what + " misconfigured; see the server log."
	}
	return what + " failed; see the server log."
}

func failedProblem(err error) Problem {
	return Problem{
		Type: "lock-failed", Title: "Internal error", Status: http.StatusInternalServerError,
		Detail: misconfigured("Lock", err), Err: err,
	}
}
