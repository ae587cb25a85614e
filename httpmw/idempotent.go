package httpmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Idempotent is a middleware that gives requests with the same Idempotency-Key
// one answer: that of the first, whose status, body and headers are kept by o
// and given again, with the header Idempotent-Replayed: true, instead of running
// what comes after it. Trailers are sent, and not kept. The package documentation
// says how else such a request is answered, and what is kept.
//
// scope says who asks: a key counts within its scope only, so that nobody can
// get another caller's answer by guessing or repeating a key. Take it from what
// authentication found, which has to be mounted before; a KeyFunc of yours can
// read it from c. AnyCaller is for services that have no callers to tell apart.
//
// POST and PATCH are covered, see Methods; others pass by. A request is the same
// if method, path, query, media type and body are; see Fingerprint. The path is what
// gin gets of it: behind an http.StripPrefix, the prefix is not told apart. The body is
// read whole, at most BodyLimit, and can be read again by the handler.
//
// What the handler writes is held back until it is saved, and sent then, also
// if it could not be saved, which can take about 3 seconds to find out. It is sent
// by the calls that the handler made, so that a middleware outside that replaces
// the writer sees the same as without Idempotent. What
// cannot be kept is sent as it is written: events, an answer that goes on for more
// than a second after its first flush, what is longer than
// AnswerLimit, and what gin's Engine.HandleContext answers, without the headers
// that were set before it. Handlers below see the context of the run in c.Request, derived
// from that of the request: it ends when the client goes away, see Detached, or
// the run's lease is lost. once.AttemptFromContext tells there whether an earlier
// run was begun and did not come to an answer. If the handler panics, so does
// the middleware, and nothing is kept.
//
// Options of Lock alone, Acquire and Also, are not for Idempotent; once.Acquire
// is, given to once.New: with core.Wait, a request waits for the answer of the
// one that is being worked on.
//
// It panics if o or scope is nil, an option is nil or not for Idempotent. The
// returned handler is safe for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) gin.HandlerFunc {
	switch {
	case o == nil:
		panic("httpmw: Idempotent: the Once is nil")
	case scope == nil:
		panic("httpmw: Idempotent: the scope is nil, see AnyCaller")
	}
	l, _ := o.Terms()
	if l == nil {
		panic("httpmw: Idempotent: the Once was not made by once.New")
	}
	m := &idempotent{config: configure("Idempotent", opts), once: o, scope: scope, locker: l}
	if len(m.forLock) > 0 {
		panic(fmt.Sprintf("httpmw: Idempotent: %s is an option of Lock", m.forLock[0]))
	}
	m.once = o.WithLabel(m.callName)
	return m.serve
}

// AnyCaller is a scope for services whose callers are one, or cannot be told
// apart: whoever knows a key gets its answer.
func AnyCaller() KeyFunc {
	return func(*gin.Context) (string, error) { return "any", nil }
}

// operation is the Name of each call. Method, path and CallName are no part of it,
// so that a key that is used again elsewhere is noticed.
const operation = "http"

type idempotent struct {
	config
	once  *once.Once
	scope KeyFunc

	locker *core.Locker
	misuse misuse
}

func (m *idempotent) serve(c *gin.Context) {
	if !slices.Contains(m.methods, c.Request.Method) || m.skip != nil && m.skip(c) {
		return
	}
	call, err := m.call(c)
	if err != nil {
		if c.FullPath() == "" {
			inside(c, refused)
			c.Abort() // it matches no route: gin answers 404 or 405
			return
		}
		m.misuse.tell(c, m.locker, cmp.Or(m.callName, operation), err)
		m.fail(c, m.callName, callProblem(err))
		return
	}
	e := execution{idempotent: m, c: c}
	ctx := c.Request.Context()
	if m.detached {
		var end func()
		ctx, end = e.detach(ctx)
		defer end()
	}
	out, err := m.once.Do(ctx, call, e.run)
	if e.writer != nil {
		e.writer.pass() // whatever err is: saved or not, the answer stands
		return
	}
	var kept answer
	if err == nil {
		kept, err = decodeAnswer(out.Value)
	}
	if err != nil {
		m.fail(c, m.callName, runProblem(c.Request.Context(), err))
		return
	}
	kept.replay(c)
}

// call names what the request asks for.
func (m *idempotent) call(c *gin.Context) (call once.Call, err error) {
	c.Set(limitKey{}, m.limit)
	call.Name = operation
	if call.Key, err = idempotencyKey(c.Request.Header); err != nil {
		return call, err
	}
	if call.Scope, err = m.scopeOf(c); err != nil {
		return call, err
	}
	if call.Fingerprint, err = fingerprintOf(c, m.fingerprint, m.limit); err != nil {
		return call, err
	}
	if m.fingerprint != nil {
		_, _ = buffer(c, m.limit) // what goes wrong with it is for the handler to find
	}
	return call, nil
}

// maxScope is the length of the longest scope that a Once takes, in bytes.
const maxScope = 512

// scopeOf is the scope as one text without control characters, different for
// different parts.
func (m *idempotent) scopeOf(c *gin.Context) (string, error) {
	value, err := m.scope(c)
	if err != nil {
		return "", err
	}
	parts, err := split(value, source{"scope"})
	if err != nil {
		return "", err
	}
	scope := core.Key("", parts...)[1:]
	if len(scope) > maxScope {
		return "", source{"scope"}.bad(fmt.Sprintf("is too long, with escapes %d bytes are allowed", maxScope))
	}
	return scope, nil
}

// Why a run is not kept.
var (
	errNotReached = once.Withdraw(errors.New("httpmw: the request was refused inside, or matches no route"))
	errNotKept    = errors.New("httpmw: an answer of this status is not kept, or left to what is outside")
	errCannotTell = fmt.Errorf("httpmw: the handler says so in c.Errors: %w", once.ErrIndeterminate)
	errGaveUp     = fmt.Errorf("httpmw: the handler's context ended, and it gave no answer: %w", once.ErrIndeterminate)
)

// execution is a request that runs, or does not.
type execution struct {
	*idempotent
	c       *gin.Context
	writer  *recorder   // nil until the handler runs
	decided atomic.Bool // by what came first, the handler or the end of a client that it is detached from
}

// run runs what comes after the middleware, and returns its answer.
func (e *execution) run(ctx context.Context) (once.Answer, error) {
	if !e.decided.CompareAndSwap(false, true) {
		<-ctx.Done()
		return once.Answer{}, once.Withdraw(fmt.Errorf("httpmw: %w: it was over before it began: %w", core.ErrBusy, context.Cause(ctx)))
	}
	c, r, returned := e.c, e.c.Request, false
	w := newRecorder(c.Writer, e.answerLimit)
	e.writer = w
	defer func() {
		w.end()
		takeForm(r, c.Request)
		c.Request, c.Writer = r, w.ResponseWriter
		if !returned {
			w.discard()
		}
	}()
	c.Request, c.Writer = r.WithContext(ctx), w
	told := len(c.Errors)
	c.Next()
	w.end()
	w.yield()
	returned = true

	if err := e.flaw(ctx, told); err != nil {
		return once.Answer{}, err
	}
	if w.passing {
		return once.Answer{Unreplayable: true}, nil
	}
	a, whole := w.answer(e.headers)
	value := a.encode()
	if !whole || len(value)-len(a.body) > maxKeptHeaders {
		return once.Answer{Unreplayable: true}, nil
	}
	return once.Answer{Value: value}, nil
}

// flaw is why the answer is not kept, after told errors of what is outside.
func (e *execution) flaw(ctx context.Context, told int) error {
	w, errs, within := e.writer, e.c.Errors, e.c.GetInt(insideKey{})
	failed := len(errs) > told
	silent := !w.Written() && (!w.chosen || failed && w.status == http.StatusOK && slices.ContainsFunc(errs[told:], ofContext))
	// A middleware outside writes the body, or chooses the status too.
	unanswered := failed && w.Size() <= 0 && (w.Status() >= http.StatusBadRequest || !w.Written() && !w.chosen)
	unclear := slices.ContainsFunc(errs, func(err *gin.Error) bool { return errors.Is(err.Err, once.ErrIndeterminate) })
	certain := !unclear && !w.passing && !once.AttemptAsked(ctx)
	switch {
	case w.hijacked:
		return nil
	case within == refused && certain:
		return errNotReached
	case silent && (within == gaveUp || over(ctx, e.c)):
		inside(e.c, gaveUp)
		return errGaveUp
	case silent && !failed && e.c.FullPath() == "" && certain:
		return errNotReached // the answer is gin's
	case !unanswered && within != refused && e.keep(final(w.Status())):
		return nil
	case unclear:
		return errCannotTell
	}
	return errNotKept
}

// insideKey is where a middleware leaves what it knows of what is inside of it, for
// an Idempotent outside.
type insideKey struct{}

const (
	gaveUp  = 1 + iota // a context ended: if there is no answer, that is why
	refused            // one of them refused the request, and ran nothing
)

// inside notes what. A refusal is the answer, whatever ends after it.
func inside(c *gin.Context, what int) {
	if c.GetInt(insideKey{}) < what {
		c.Set(insideKey{}, what)
	}
}

// over tells whether what ran under ctx was told to stop, or would have been by
// the context that a time-out has left in the request.
func over(ctx context.Context, c *gin.Context) bool {
	return ctx.Err() != nil || errors.Is(c.Request.Context().Err(), context.DeadlineExceeded)
}

// ofContext tells whether err is that of a context that has ended.
func ofContext(err *gin.Error) bool {
	for _, end := range [...]error{context.Canceled, context.DeadlineExceeded, core.ErrLost, core.ErrClosed} {
		if errors.Is(err.Err, end) {
			return true
		}
	}
	return false
}

// final is the status that the client takes for the answer's: what comes before
// the answer, such as 103, is followed by 200.
func final(status int) int {
	if status < http.StatusOK {
		return http.StatusOK
	}
	return status
}

// detach returns a context that ends with ctx until the handler runs, and then
// only with a lease around it that is lost.
func (e *execution) detach(ctx context.Context) (context.Context, func()) {
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if e.decided.CompareAndSwap(false, true) || errors.Is(cause, core.ErrLost) || errors.Is(cause, core.ErrClosed) {
			cancel(cause)
		}
	})
	return detached, func() {
		stop()
		cancel(nil)
	}
}
