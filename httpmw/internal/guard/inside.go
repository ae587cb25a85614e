package guard

import (
	"context"
	"errors"
	"net/http"
	"reflect"
)

// Note is what inner middlewares of this package leave for an outer Idempotent.
type Note struct {
	GaveUp  bool    // a context is done, which explains a missing response
	Refusal Refusal // the last one
}

// Refusal describes how an inner middleware has refused a request.
type Refusal struct {
	Status int
	Ran    bool // the handler ran before
	Bare   bool // nothing was written, so another handler can replace the status
	// To is the header of the writer that got the refusal. The map identifies the
	// Recorder behind the writer, because wrappers without Unwrap return it too.
	To http.Header
}

// Refuse sets the last refusal. If the writer has got a refusal before, and the handler
// ran before that, Ran stays set.
func (n *Note) Refuse(r Refusal) {
	r.Ran = r.Ran || n.Refusal.Ran && oneMap(n.Refusal.To, r.To)
	n.Refusal = r
}

// oneMap reports whether a and b are the same map.
func oneMap(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// got reports whether the Recorder got the refusal r. Once the Recorder passes all
// calls, the outer writer gets refusals for it.
func (w *Recorder) got(r Refusal) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.Status > 0 && (oneMap(r.To, w.header) || w.passing && oneMap(r.To, w.Writer.Header()))
}

// refused calls respond, which refuses the request. It notes the refusal for an outer
// Idempotent, unless a handler has begun another response before. ran reports whether
// the handler has run.
func refused(x Exchange, ran bool, respond func()) {
	w := x.Writer()
	began := begun(x.Request().Context(), w)
	respond()
	if !began {
		x.Refuse(Refusal{Status: w.Status(), Ran: ran, Bare: !w.Written(), To: w.Header()})
	}
}

// begun reports whether a handler has begun the response that w writes. The writer of an
// inner middleware of stdmw does not know what was written before, but the Recorder of
// the Idempotent around it does.
func begun(ctx context.Context, w Writer) bool {
	e, ok := ctx.Value(executionKey{}).(*execution)
	return w.Written() || ok && oneMap(w.Header(), e.writer.Header()) && e.writer.Written()
}

// over reports whether ctx, the context of the handlers, is done. If a time-out
// middleware has left another context in the request, over also returns true after that
// context's deadline.
func over(ctx context.Context, x Exchange) bool {
	return ctx.Err() != nil || errors.Is(x.Request().Context().Err(), context.DeadlineExceeded)
}
