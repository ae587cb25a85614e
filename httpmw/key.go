package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// KeyFunc finds a key in a request: the key to lock, an idempotency key, a scope or a
// fingerprint. After an error that matches core.ErrInvalid the response is 400, because
// the request is wrong. After an http.MaxBytesError the response is 413, and after any
// other error 500. The error's text is not part of the response.
//
// The result is one part of the key, without control characters. Or it has several
// parts with U+001F between them, as Join makes them. The parts "a" and "b" under the
// name "order" lock core.Key("order", "a", "b").
//
// A KeyFunc runs before the lock is acquired. To read the body in a KeyFunc, use JSON
// or Form, or read c.Request.Body and replace it by a body with the same data.
type KeyFunc func(c *gin.Context) (string, error)

// inner adapts f to package guard.
func (f KeyFunc) inner() guard.KeyFunc {
	if f == nil {
		return nil
	}
	return func(x guard.Exchange) (string, error) { return f(x.(exchange).Context) }
}

// found returns the KeyFunc that finds the value of s.
func found(s guard.Source) KeyFunc {
	return func(c *gin.Context) (string, error) { return s(exchange{c}) }
}

// Param takes the key from a path parameter, such as "id" of "/orders/:id/pay". On a
// route without that parameter every request gets 500. The first such request notifies
// the observer of core.Misused; see Check. Param panics if name is empty.
func Param(name string) KeyFunc {
	s := pkg.Path(name, func(c guard.Carrier) (value, route string, ok bool) {
		x := c.(exchange)
		value, ok = x.Params.Get(name)
		return value, x.FullPath(), ok
	})
	asked.add(name)
	return found(s)
}

// Query takes the key from a parameter of the URL's query. The parameter has to be
// present exactly once, and the query has to be well-formed. Query panics if name is
// empty.
func Query(name string) KeyFunc { return found(pkg.Query(name)) }

// Header takes the key from a header, which has to be present exactly once. Header
// panics if name is empty.
func Header(name string) KeyFunc { return found(pkg.Header(name)) }

// Form takes the key from a field of a form in the body, urlencoded or multipart. The
// field has to be present exactly once. Files are not fields, and the URL's query is
// not a form.
//
// The whole body is read with its files, up to the middleware's BodyLimit, and the
// handler can read it again. Form panics if name is empty.
func Form(name string) KeyFunc { return found(pkg.Form(name)) }

// JSON takes the key from a field of the body, a JSON object. Dots in path lead to
// nested objects: "order.id". path cannot name a field with a dot or a bracket in its
// name, a field named "$" or "*", or an element of an array.
//
// The field has to be a string or an integer. The integer 123 and the string "123" are
// the same key. Integers of any size stay distinct. Integers written as 1e2 or 1.0 are
// refused, as are null, true, false, arrays and objects. The body has to be one valid
// JSON text, sent as JSON or without a content type. Names have to match exactly. A
// name must not be present twice, even in another case. Decoders differ in the field
// that they take.
//
// The whole body is read, up to the middleware's BodyLimit, and the handler can read it
// again, with every binder of gin. JSON panics if path is not a list of names with dots
// between them. For example, "$.id" and "items[0].id" belong to other path languages.
func JSON(path string) KeyFunc { return found(pkg.JSON(path)) }

// Join combines several keys into one key with distinct parts. For example,
// Join(Param("a"), Param("b")) under the name "x" locks core.Key("x", a, b). The
// returned KeyFunc fails with the error of the first part that fails. Join panics if
// there are no parts, or if a part is nil.
func Join(parts ...KeyFunc) KeyFunc { return guard.Join(pkg, parts) }

// AnyCaller returns a scope for services that have one caller, or cannot distinguish
// their callers. Any client that has a key gets the key's response. All services of a
// store share this scope. If one service passes its client's key on to another, put the
// service's name into each scope; see the documentation of httpmw.
func AnyCaller() KeyFunc {
	return func(*gin.Context) (string, error) { return "any", nil }
}
