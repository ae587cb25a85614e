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

// defaultPause is the usual time until a client repeats a request. The hint of a busy
// lock can only shorten this pause. The hint is the time until the lock expires, but a
// live holder releases the lock earlier, or extends it.
const defaultPause = time.Second

// timeout and runTimeout are the types of problems that report contention with a status
// of 500 or above.
const (
	timeout    = "lock-timeout"
	runTimeout = "idempotency-timeout"
)

// statusClientGone is the status in access logs for a client that disconnected before
// its response. nginx uses the same number, 499.
const statusClientGone = 499

// Problem is the response to a refused request, in the format of RFC 9457.
type Problem struct {
	Type   string // a URI that identifies the kind of problem
	Title  string // the kind of problem, for people
	Status int    // the HTTP status
	Detail string // the problem with this request, for people
	Lock   string // the name given to Lock or by CallName, or empty
	// RetryAfter is the client's pause before it repeats the request, or 0 if a
	// repetition is useless.
	RetryAfter time.Duration
	// Err is the reason. It is not part of the response, because a KeyFunc's error can
	// contain anything.
	Err error
}

// MarshalJSON returns the problem details object, without Err, and with RetryAfter as
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

// render writes the response to a refused request, unless Render has replaced it. The
// headers are those in section 2.7 of draft-ietf-httpapi-idempotency-key-header.
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

// fail responds with p to a request that did not run. If the client has disconnected,
// fail only sets the status for the access log.
func (g *Config) fail(x Exchange, name string, p Problem) {
	ctx := x.Request().Context()
	if ctx.Err() != nil && context.Cause(ctx) == context.Canceled {
		x.Abort()
		refused(x, false, func() { x.Writer().WriteHeader(statusClientGone) })
		return
	}
	if p.Status >= http.StatusInternalServerError && p.Type != timeout && p.Type != runTimeout && g.report != nil {
		g.report(x, p.Err)
	}
	refused(x, false, func() { g.refuse(x, name, p) })
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
