package stdmw

import (
	"time"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Problem is the answer to a request that may not run, after RFC 9457. The
// documentation of httpmw lists the kinds.
type Problem struct {
	Type   string // identifies the kind of problem, a URI
	Title  string // says the same to people
	Status int    // the HTTP status
	Detail string // what is wrong with this request, for people
	Lock   string // the name given to Lock, or by CallName; else empty
	// RetryAfter is how long the client should wait before it asks again, 0 if
	// that is no use.
	RetryAfter time.Duration
	// Err is the reason. It is not part of the answer: a KeyFunc's own error can
	// say anything.
	Err error
}

// MarshalJSON makes the problem details object, without Err, and with RetryAfter
// as "retry_after_ms".
func (p Problem) MarshalJSON() ([]byte, error) { return guard.Problem(p).MarshalJSON() }
