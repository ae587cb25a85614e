package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
)

// operation is the Name of each once.Call. It is the same for all methods, paths and
// CallNames, so the reuse of a key on another route is noticed.
const operation = "http"

// Idempotent gives requests with the same Idempotency-Key one response.
type Idempotent struct {
	Config
	once  *once.Once
	scope KeyFunc

	locker *core.Locker
	misuse misuse
}

// NewIdempotent returns an Idempotent. It panics as httpmw.Idempotent does.
func NewIdempotent[O ~func(*Config)](p Package, o *once.Once, scope KeyFunc, opts []O) *Idempotent {
	switch {
	case o == nil:
		p.panic("Idempotent: the Once is nil")
	case scope == nil:
		p.panic("Idempotent: the scope is nil, see AnyCaller")
	}
	l, _ := adapter.Terms(o)
	if l == nil {
		p.panic("Idempotent: the Once was not made by once.New")
	}
	m := &Idempotent{Config: configure(p, "Idempotent", opts), once: o, scope: scope, locker: l}
	if len(m.forLock) > 0 {
		p.panic("Idempotent: %s is an option of Lock", m.forLock[0])
	}
	m.once = adapter.WithLabel(o, m.callName)
	return m
}

// Serve runs the middleware for one request.
func (m *Idempotent) Serve(x Exchange) {
	if !slices.Contains(m.methods, x.Request().Method) || m.skip != nil && m.skip(x) {
		x.Next()
		return
	}
	call, err := m.call(x)
	if err != nil {
		if x.Missed() {
			refused(x, false, x.Abort) // the framework responds with 404 or 405
			return
		}
		m.misuse.notify(x.Request().Context(), m.locker, cmp.Or(m.callName, operation), err)
		m.fail(x, m.callName, callProblem(err))
		return
	}
	if call.Key == "" {
		x.Next()
		return
	}
	e := execution{Idempotent: m, x: x}
	ctx := x.Request().Context()
	if m.detached {
		var end func()
		ctx, end = e.detach(ctx)
		defer end()
	}
	out, err := m.once.Do(ctx, call, e.run)
	switch {
	case e.writer == nil:
	case err != nil && e.writer.isSealed():
		p := commitProblem(err)
		if m.report != nil {
			m.report(x, p.Err)
		}
		refused(x, true, func() { m.refuse(x, m.callName, p) })
		return
	default:
		e.writer.pass() // the response is sent even if it could not be stored
		return
	}
	var kept answer
	if err == nil {
		kept, err = decodeAnswer(out.Value)
		err = m.pkg.wrap(err)
	}
	if err != nil {
		m.fail(x, m.callName, runProblem(x.Request().Context(), err))
		return
	}
	x.Abort()
	kept.replay(x.Writer())
}

// call returns the once.Call of a request. The Key of the call is empty if the request
// has no key and needs none.
func (m *Idempotent) call(x Exchange) (call once.Call, err error) {
	x.SetLimit(m.limit)
	call.Name = operation
	if call.Key, err = m.keyOf(x); call.Key == "" {
		return call, err
	}
	if call.Scope, err = m.scopeOf(x); err != nil {
		return call, err
	}
	if call.Fingerprint, err = fingerprintOf(x, m.fingerprint, m.limit); err != nil {
		return call, err
	}
	if m.fingerprint != nil {
		_, _ = buffer(x, m.limit) // the handler gets the errors of reading
	}
	return call, nil
}

// maxField is the maximum length of a scope and of a key for a Once, in bytes.
const maxField = 512

// scopeOf returns the scope of a request as one text without control characters. Scopes
// with different parts have different texts.
func (m *Idempotent) scopeOf(x Exchange) (string, error) {
	value, err := m.scope(x)
	if err != nil {
		return "", err
	}
	source := m.pkg.sourceOf("scope")
	parts, err := source.Parts(value)
	if err != nil {
		return "", err
	}
	scope := core.Key("", parts...)[1:]
	if len(scope) > maxField {
		return "", source.Bad(fmt.Sprintf("is too long, with escapes %d bytes are allowed", maxField))
	}
	return scope, nil
}

// The reasons for not storing a run.
var (
	errNotReached     = once.Withdraw(errors.New("an inner middleware refused the request, or it matches no route"))
	errNotKept        = errors.New("the response is not one that is stored, is not final, or is left to an outer middleware")
	errUnknownOutcome = fmt.Errorf("the handler reported an unknown outcome: %w", once.ErrIndeterminate)
	errGaveUp         = fmt.Errorf("the handler's context is done, and it did not respond: %w", once.ErrIndeterminate)
)

// execution is a request that an Idempotent serves.
type execution struct {
	*Idempotent
	x      Exchange
	writer *Recorder // nil until the handler runs
	begun  bool      // the outer response began before the handler ran
	// decided is set by the first of two events: the handler begins, or the context of a
	// Detached request is done.
	decided atomic.Bool
	// uncommitted is the error of the last Commit. Only the goroutine of the handler
	// uses this field.
	uncommitted error
}

// run runs the inner handlers, and returns their response.
func (e *execution) run(ctx context.Context) (once.Answer, error) {
	if !e.decided.CompareAndSwap(false, true) {
		<-ctx.Done()
		return once.Answer{}, once.Withdraw(fmt.Errorf("%s: %w: the request was done before the handler began: %w", e.pkg, core.ErrBusy, context.Cause(ctx)))
	}
	x, r, returned := e.x, e.x.Request(), false
	w := newRecorder(x.Writer(), e.answerLimit, e.keepIf != nil)
	w.execution = e
	e.writer, e.begun = w, begun(r.Context(), w.Writer)
	defer func() {
		w.end()
		TakeForm(r, x.Request())
		x.SetRequest(r)
		x.SetWriter(w.Writer)
		if !returned {
			w.discard()
		}
	}()
	x.SetWriter(w)
	ctx = context.WithValue(ctx, executionKey{}, e)
	x.Under(ctx)
	before := len(x.Errors())
	x.Next()
	w.end()
	w.yield()
	returned = true
	if w.isSealed() {
		return once.Answer{}, e.uncommitted
	}
	if !adapter.IsFinal(ctx) {
		once.NotFinal(r.Context()) // for an outer Idempotent, which has the same response
	}

	if err := e.flaw(ctx, before); err != nil {
		return once.Answer{}, e.pkg.wrap(err)
	}
	value, ok := w.value(e.headers)
	return once.Answer{Value: value, Unreplayable: !ok}, nil
}

// errLate is the observer's error for a response that was written after an empty
// response was stored.
const errLate = "the response was written after the handler had returned without one, and an empty 200 was stored: mount the handler of errors inside of Idempotent"

func (e *execution) late() {
	e.misuse.notify(context.Background(), e.locker, cmp.Or(e.callName, operation), setupError(e.pkg.text(errLate)))
}

// flaw returns the reason for not storing the response, or nil. The parameter before is
// the number of errors that outer handlers reported first. flaw ignores them, except an
// error that matches once.ErrIndeterminate.
func (e *execution) flaw(ctx context.Context, before int) error {
	w, errs, within := e.writer, e.x.Errors(), e.x.Inside()
	inner := within.Refusal
	replaced := inner.Status != w.Status()
	refusal := w.got(inner) && (inner.Bare || !replaced)
	if refusal && !e.begun {
		inner.To = w.Writer.Header()
		e.x.Refuse(inner) // the next outer Idempotent gets it too
	}
	failed := len(errs) > before
	silent := !w.Written() && (!w.chosen || failed && w.status == http.StatusOK && slices.ContainsFunc(errs[before:], ofContext))
	// unanswered: the handler failed and wrote no body. An outer middleware then writes
	// the body, and may also choose the status.
	unanswered := failed && w.Size() <= 0 && (w.Status() >= http.StatusBadRequest || !w.Written() && !w.chosen)
	unclear := slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, once.ErrIndeterminate) })
	certain := !unclear && !w.passing && !adapter.AttemptAsked(ctx)
	final := adapter.IsFinal(ctx)
	for _, err := range errs[before:] {
		if _, ok := adapter.Withdrawn(err); ok && !unclear && statusOf(w.Status()) >= http.StatusBadRequest {
			return err
		}
	}
	switch {
	case w.hijacked && final:
		return nil
	case refusal && !replaced && !inner.Ran && certain:
		return errNotReached
	case silent && (within.GaveUp || over(ctx, e.x)):
		e.x.GiveUp()
		return errGaveUp
	case silent && !failed && e.x.Missed() && certain:
		return errNotReached // the response is the framework's
	case final && !unanswered && !refusal && e.keeps():
		return nil
	case unclear:
		return errUnknownOutcome
	}
	return errNotKept
}

// keeps reports whether the response is stored.
func (e *execution) keeps() bool {
	if e.keepIf == nil {
		return keeps(statusOf(e.writer.Status()))
	}
	return e.keepIf(e.writer.shown(e.headers))
}

// ofContext reports whether err is the error of a context that is done.
func ofContext(err error) bool {
	for _, end := range [...]error{context.Canceled, context.DeadlineExceeded, core.ErrLost, core.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// statusOf returns the final status of the response. An informational status, such as
// 103, is followed by 200.
func statusOf(status int) int {
	if status < http.StatusOK {
		return http.StatusOK
	}
	return status
}

// detach returns a context that is canceled with ctx until the handler runs. From then
// on it is canceled only if the first cause of ctx is the loss of an outer lease or the
// closing of that lease's Locker.
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
