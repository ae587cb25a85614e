package httpmw

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

const pkg = guard.Package("httpmw")

// exchange is a request of gin.
type exchange struct{ *gin.Context }

var _ guard.Exchange = exchange{}

// limitKey is the key in the gin context under which a middleware passes its body limit
// to its KeyFuncs. insideKey is the key of the note for an outer Idempotent. Both are
// strings, because gin before 1.11 has no other keys.
const (
	limitKey  = "github.com/lockkit/lockkit/httpmw.limit"
	insideKey = "github.com/lockkit/lockkit/httpmw.inside"
)

func (x exchange) Request() *http.Request     { return x.Context.Request }
func (x exchange) SetRequest(r *http.Request) { x.Context.Request = r }
func (x exchange) Writer() guard.Writer       { return x.Context.Writer }
func (x exchange) SetWriter(w guard.Writer)   { x.Context.Writer = w }
func (x exchange) Package() guard.Package     { return pkg }
func (x exchange) Missed() bool               { return x.FullPath() == "" }
func (x exchange) SetLimit(n int64)           { x.Set(limitKey, n) }
func (x exchange) Cache(body []byte)          { x.Set(gin.BodyBytesKey, body) }

func (x exchange) Under(ctx context.Context) {
	x.Context.Request = x.Context.Request.WithContext(ctx)
}

func (x exchange) Limit() int64 {
	if n, ok := x.Get(limitKey); ok {
		return n.(int64)
	}
	return guard.DefaultLimit
}

// Inside returns the note of the inner middlewares in the same gin context.
func (x exchange) Inside() guard.Note {
	left, _ := x.Get(insideKey)
	note, _ := left.(guard.Note)
	return note
}

func (x exchange) GiveUp() {
	note := x.Inside()
	note.GaveUp = true
	x.Set(insideKey, note)
}

func (x exchange) Refuse(r guard.Refusal) {
	note := x.Inside()
	note.Refuse(r)
	x.Set(insideKey, note)
}

// Cached returns the body that ShouldBindBodyWith has stored.
func (x exchange) Cached() []byte {
	cached, _ := x.Get(gin.BodyBytesKey)
	body, _ := cached.([]byte)
	return body
}

func (x exchange) Errors() []error {
	if len(x.Context.Errors) == 0 {
		return nil
	}
	errs := make([]error, len(x.Context.Errors))
	for i, err := range x.Context.Errors {
		errs[i] = err.Err
	}
	return errs
}
