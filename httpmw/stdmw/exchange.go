package stdmw

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

const pkg = guard.Package("stdmw")

// exchange is a request of net/http.
type exchange struct {
	r     *http.Request
	next  http.Handler
	limit int64
	out   outside
	w     guard.Writer // the handler's writer: out, or a guard.Recorder that writes to out
	in    inside       // adapts the guard.Recorder to net/http for the handler
	holds bool         // w is a guard.Recorder
	notes *notes       // the notes of an outer middleware, or &own
	own   notes
}

var _ guard.Exchange = (*exchange)(nil)

// serve runs the middleware serve for a request. next is the wrapped handler.
func serve(serve func(guard.Exchange), next http.Handler, w http.ResponseWriter, r *http.Request) {
	x := &exchange{r: r, next: next, limit: guard.DefaultLimit, out: outside{ResponseWriter: w, status: http.StatusOK, size: -1}}
	x.w = &x.out
	x.notes, _ = r.Context().Value(notesKey{}).(*notes)
	serve(x)
	x.out.end()
}

func (x *exchange) Request() *http.Request     { return x.r }
func (x *exchange) SetRequest(r *http.Request) { x.r = r }
func (x *exchange) Writer() guard.Writer       { return x.w }
func (x *exchange) Limit() int64               { return x.limit }
func (x *exchange) SetLimit(n int64)           { x.limit = n }
func (x *exchange) Cached() []byte             { return nil }
func (x *exchange) Cache([]byte)               {}
func (x *exchange) Abort()                     {}
func (x *exchange) Package() guard.Package     { return pkg }
func (x *exchange) Missed() bool               { return false }

// Under sets the context of the request. It adds notes to ctx, if the middleware is an
// Idempotent and no outer middleware has added them.
func (x *exchange) Under(ctx context.Context) {
	if x.notes == nil && x.holds {
		x.notes = &x.own
		ctx = context.WithValue(ctx, notesKey{}, x.notes)
	}
	x.r = x.r.WithContext(ctx)
}

// SetWriter sets the handler's writer. If w is a Recorder, Next passes it to the
// handler as a writer of net/http.
func (x *exchange) SetWriter(w guard.Writer) {
	x.w = w
	rec, holds := w.(*guard.Recorder)
	if x.holds = holds; holds {
		x.in.rec = rec
	}
}

// Next passes to the handler the writer that the middleware got, unless a Recorder
// records the response.
func (x *exchange) Next() {
	if !x.holds {
		x.next.ServeHTTP(x.out.ResponseWriter, x.r)
		return
	}
	x.next.ServeHTTP(&x.in, x.r)
}

func (x *exchange) Errors() []error    { return x.notes.errors() }
func (x *exchange) Inside() guard.Note { return x.notes.inside() }
func (x *exchange) GiveUp()            { x.notes.giveUp() }

func (x *exchange) Refuse(r guard.Refusal) { x.notes.refuse(r) }

// key returns the key that f finds. If f replaces the body, the request gets the new
// body.
func (x *exchange) key(f KeyFunc) (string, error) {
	if x.limit == guard.DefaultLimit {
		return f(x.r)
	}
	r := x.r.WithContext(context.WithValue(x.r.Context(), limitKey{}, x.limit))
	value, err := f(r)
	x.r.Body = r.Body
	guard.TakeForm(x.r, r)
	return value, err
}

// limitKey is the context key of a middleware's body limit, for its KeyFuncs.
type limitKey struct{}

func limitOf(ctx context.Context) int64 {
	if n, ok := ctx.Value(limitKey{}).(int64); ok {
		return n
	}
	return guard.DefaultLimit
}

// carrier is the request that a KeyFunc gets.
type carrier struct{ r *http.Request }

func (c carrier) Request() *http.Request { return c.r }
func (c carrier) Package() guard.Package { return pkg }
func (c carrier) Limit() int64           { return limitOf(c.r.Context()) }
func (c carrier) Cached() []byte         { return nil }
func (c carrier) Cache([]byte)           {}

// notes has the errors of handlers and the note of inner middlewares, for outer
// Idempotents. A nil *notes stores nothing.
type notes struct {
	mu   sync.Mutex
	errs []error
	left guard.Note
}

type notesKey struct{}

func (n *notes) add(err error) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

func (n *notes) errors() []error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.errs)
}

func (n *notes) inside() guard.Note {
	if n == nil {
		return guard.Note{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.left
}

func (n *notes) giveUp() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left.GaveUp = true
}

func (n *notes) refuse(r guard.Refusal) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left.Refuse(r)
}
