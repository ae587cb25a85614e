package stdmw

import (
	"net/http"
	"strings"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// KeyFunc finds in a request what is to be locked. An error that matches
// core.ErrInvalid is the client's and answered with 400, any other with 500;
// its text does not go into the answer.
//
// The result is one part of the key, without control characters, or several
// parts with U+001F between them, which is how Join puts them together: parts
// "a" and "b" under the name "order" lock core.Key("order", "a", "b").
//
// It runs before the lock is taken. To read the body in it, use JSON or Form,
// or read r.Body and put back what was read.
type KeyFunc func(r *http.Request) (string, error)

// inner is f for what stdmw shares.
func (f KeyFunc) inner() guard.KeyFunc {
	if f == nil {
		return nil
	}
	return func(x guard.Exchange) (string, error) { return x.(*exchange).key(f) }
}

// found is the KeyFunc that asks s.
func found(s guard.Source) KeyFunc {
	return func(r *http.Request) (string, error) { return s(carrier{r}) }
}

// Path takes the key from a path parameter, as http.Request.PathValue has it: "id"
// of "/orders/{id}/pay". A request whose r.Pattern has no such parameter is answered
// with 500, and the first of them tells core.Misused: it is a mistake of the
// program, as is a Lock outside of the mux. It panics if name is empty.
func Path(name string) KeyFunc {
	return found(pkg.Path(name, func(c guard.Carrier) (value, route string, ok bool) {
		r := c.Request()
		value = r.PathValue(name)
		return value, r.Pattern, value != "" || hasParameter(r.Pattern, name)
	}))
}

// hasParameter tells whether a pattern has {name}, {name...} or {name:expression}.
func hasParameter(pattern, name string) bool {
	for part := range strings.SplitSeq(pattern, "{") {
		if rest, ok := strings.CutPrefix(part, name); ok && rest != "" && strings.ContainsRune("}.:", rune(rest[0])) {
			return true
		}
	}
	return false
}

// Query takes the key from a parameter of the URL's query. It has to be there
// once, and the query has to be well-formed. It panics if name is empty.
func Query(name string) KeyFunc { return found(pkg.Query(name)) }

// Header takes the key from a header, which has to be there once. It panics if
// name is empty.
func Header(name string) KeyFunc { return found(pkg.Header(name)) }

// Form takes the key from a field of a form in the body, urlencoded or
// multipart, which has to be there once. Files are no fields, and the URL's
// query is no form.
//
// The body is read whole, at most the middleware's BodyLimit with its files, and
// can be read again by the handler. It panics if name is empty.
func Form(name string) KeyFunc { return found(pkg.Form(name)) }

// JSON takes the key from a field of the body, a JSON object; dots go into
// nested objects: "order.id". Fields with a dot or a bracket in their name, fields
// named "$" or "*", and elements of arrays cannot be named.
//
// The field has to be a string or an integer; the integer 123 and the string
// "123" are the same key. Integers of any size are kept apart, and those
// written as 1e2 or 1.0 are refused, as are null, true, false, arrays and
// objects. The body has to be one valid JSON text, sent as JSON or without a
// content type. Names have to match exactly, and may not be there more than
// once, not even in another case: decoders differ in which one they take.
//
// The body is read whole, at most the middleware's BodyLimit, and can be read
// again by the handler. It panics if path is not names with dots between them:
// "$.id" and "items[0].id" are of other languages.
func JSON(path string) KeyFunc { return found(pkg.JSON(path)) }

// Join makes one key of several, whose parts cannot run into each other:
// Join(Path("a"), Path("b")) under the name "x" locks core.Key("x", a, b). It
// fails as the first of parts that fails. It panics if there are none, or one is
// nil.
func Join(parts ...KeyFunc) KeyFunc { return guard.Join(pkg, parts) }

// AnyCaller is a scope for services whose callers are one, or cannot be told
// apart: a key is all it takes to get its answer. It is the same scope for all services
// of a store: where one passes its client's key on to another, have each name itself in
// its scope, as the documentation of httpmw shows.
func AnyCaller() KeyFunc {
	return func(*http.Request) (string, error) { return "any", nil }
}
