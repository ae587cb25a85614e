package stdmw

import (
	"net/http"
	"strings"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// KeyFunc finds in a request the key to lock. An error that matches core.ErrInvalid is
// the client's, and the response is 400; any other error makes it 500. The error's text
// is not part of the response.
//
// The result is one part of the key, without control characters, or several parts with
// U+001F between them, as Join makes them: parts "a" and "b" under the name "order"
// lock core.Key("order", "a", "b").
//
// A KeyFunc runs before the lock is acquired. To read the body in it, use JSON or Form,
// or read r.Body and put back what was read.
type KeyFunc func(r *http.Request) (string, error)

// inner adapts f to package guard.
func (f KeyFunc) inner() guard.KeyFunc {
	if f == nil {
		return nil
	}
	return func(x guard.Exchange) (string, error) { return x.(*exchange).key(f) }
}

// found returns the KeyFunc that asks s.
func found(s guard.Source) KeyFunc {
	return func(r *http.Request) (string, error) { return s(carrier{r}) }
}

// Path takes the key from a path parameter, as http.Request.PathValue has it: "id" of
// "/orders/{id}/pay". If r.Pattern has no such parameter every request gets 500, and
// the observer is notified of core.Misused at the first of them: it is a mistake of the
// program, as is a Lock outside of the mux. Path panics if name is empty.
func Path(name string) KeyFunc {
	return found(pkg.Path(name, func(c guard.Carrier) (value, route string, ok bool) {
		r := c.Request()
		value = r.PathValue(name)
		return value, r.Pattern, value != "" || hasParameter(r.Pattern, name)
	}))
}

// hasParameter reports whether a pattern has {name}, {name...} or {name:expression}.
func hasParameter(pattern, name string) bool {
	for part := range strings.SplitSeq(pattern, "{") {
		if rest, ok := strings.CutPrefix(part, name); ok && rest != "" && strings.ContainsRune("}.:", rune(rest[0])) {
			return true
		}
	}
	return false
}

// Query takes the key from a parameter of the URL's query. The parameter has to be
// there exactly once, and the query has to be well-formed. Query panics if name is
// empty.
func Query(name string) KeyFunc { return found(pkg.Query(name)) }

// Header takes the key from a header, which has to be there exactly once. It panics if
// name is empty.
func Header(name string) KeyFunc { return found(pkg.Header(name)) }

// Form takes the key from a field of a form in the body, urlencoded or multipart. The
// field has to be there exactly once. Files are no fields, and the URL's query is no
// form.
//
// The body is read whole with its files, at most the middleware's BodyLimit, and the
// handler can read it again. Form panics if name is empty.
func Form(name string) KeyFunc { return found(pkg.Form(name)) }

// JSON takes the key from a field of the body, a JSON object. Dots go into nested
// objects: "order.id". Fields with a dot or a bracket in their name, fields named "$"
// or "*", and elements of arrays cannot be named.
//
// The field has to be a string or an integer; the integer 123 and the string "123" are
// the same key. Integers of any size stay distinct. Integers written as 1e2 or 1.0 are
// refused, as are null, true, false, arrays and objects. The body has to be one valid
// JSON text, sent as JSON or without a content type. Names have to match exactly. A
// name may not be there more than once, not even in another case, because decoders
// differ in which one they take.
//
// The body is read whole, at most the middleware's BodyLimit, and the handler can read
// it again. JSON panics if path is not names with dots between them: "$.id" and
// "items[0].id" are of other languages.
func JSON(path string) KeyFunc { return found(pkg.JSON(path)) }

// Join makes one key of several, whose parts cannot run into each other:
// Join(Path("a"), Path("b")) under the name "x" locks core.Key("x", a, b). Its KeyFunc
// fails with the error of the first part that fails. Join panics if there are no parts,
// or one is nil.
func Join(parts ...KeyFunc) KeyFunc { return guard.Join(pkg, parts) }

// AnyCaller is a scope for services that have one caller, or cannot distinguish theirs:
// a client needs only the key to get its response. It is the same scope for all
// services of a store. Where one service passes its client's key on to another, have
// each name itself in its scope, as the documentation of httpmw shows.
func AnyCaller() KeyFunc {
	return func(*http.Request) (string, error) { return "any", nil }
}
