package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// executionKey is the context key of the execution of the innermost Idempotent.
type executionKey struct{}

// The reasons for not committing a response.
var (
	errNoRun        = errors.New("commit: there is no Idempotent around the handler")
	errOtherWriter  = errors.New("commit: the writer is not that of Idempotent: mount a middleware that replaces it outside")
	errNoAnswer     = errors.New("commit: the handler has not responded yet")
	errNotCommitted = errors.New("commit: the response is not one that is stored")
)

// Commit stores the response written so far, in a transaction of the caller. leads
// reports whether the handler's writer writes to the Recorder. After Commit, the
// handler's writes are ignored, even if Commit has failed.
func (p Package) Commit(ctx context.Context, tx once.Saver, leads func(*Recorder) bool) error {
	e, ok := ctx.Value(executionKey{}).(*execution)
	if !ok {
		return fmt.Errorf("%w: %w", p.wrap(errNoRun), core.ErrInvalid)
	}
	// From now on, the timer of a flush does not send the response.
	e.writer.seal()
	// KeepIf may panic.
	e.uncommitted = fmt.Errorf("%w: %w", p.wrap(errNotCommitted), core.ErrInvalid)
	value, err := e.value()
	if !leads(e.writer) {
		err = errOtherWriter
	}
	if err != nil {
		e.uncommitted = fmt.Errorf("%w: %w", p.wrap(err), core.ErrInvalid)
	} else {
		e.uncommitted = once.Commit(ctx, tx, once.Answer{Value: value})
	}
	return e.uncommitted
}

// value returns the encoding of the response written so far.
func (e *execution) value() ([]byte, error) {
	w := e.writer
	w.mu.Lock()
	silent, passing := !w.log.begun && !w.chosen, w.passing
	w.mu.Unlock()
	switch {
	case silent:
		return nil, errNoAnswer
	case passing || !e.keeps():
		return nil, errNotCommitted
	}
	value, ok := w.value(e.headers)
	if !ok {
		return nil, errNotCommitted
	}
	return value, nil
}

// seal makes the Recorder ignore later writes, because Commit has decided the response.
func (w *Recorder) seal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.log.begun {
		w.look() // later headers do not belong to this response
	}
	w.sealed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *Recorder) isSealed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sealed
}

// commitProblem returns the problem for a handler's response that is not known to be
// committed.
func commitProblem(err error) Problem {
	if errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrUnsupported) {
		return Problem{
			Type: "idempotency-failed", Title: "Internal error", Status: http.StatusInternalServerError,
			Detail: "The answer could not be committed.", Err: err,
		}
	}
	return Problem{
		Type: "idempotency-uncommitted", Title: "Answer not committed", Status: http.StatusServiceUnavailable,
		Detail:     "The answer was not committed, as far as is known. Ask again with the same key.",
		RetryAfter: defaultPause, Err: err,
	}
}
