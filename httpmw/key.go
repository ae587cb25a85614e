package httpmw

import (
	"github.com/gin-gonic/gin"

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
// or read c.Request.Body and put back what was read.
type KeyFunc func(c *gin.Context) (string, error)

// inner is f for what httpmw shares.
func (f KeyFunc) inner() guard.KeyFunc {
	if f == nil {
		return nil
	}
	return func(x guard.Exchange) (string, error) { return f(x.(exchange).Context) }
}

// found is the KeyFunc that asks s.
func found(s guard.Source) KeyFunc {
	return func(c *gin.Context) (string, error) { return s(exchange{c}) }
}

// Param takes the key from a path parameter, "id" of "/orders/:id/pay". On a
// route without such a parameter every request is answered with 500, and the
// first of them tells core.Misused; see Check. It panics if name is empty.
func Param(name string) KeyFunc {
	s := pkg.Path(name, func(c guard.Carrier) (value, route string, ok bool) {
		x := c.(exchange)
		value, ok = x.Params.Get(name)
		return value, x.FullPath(), ok
	})
	asked.add(name)
	return found(s)
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
// again by the handler, with every binder of gin. It panics if path is not names
// with dots between them: "$.id" and "items[0].id" are of other languages.
func JSON(path string) KeyFunc { return found(pkg.JSON(path)) }

// Join makes one key of several, whose parts cannot run into each other:
// Join(Param("a"), Param("b")) under the name "x" locks core.Key("x", a, b). It
// fails as the first of parts that fails. It panics if there are none, or one is
// nil.
func Join(parts ...KeyFunc) KeyFunc { return guard.Join(pkg, parts) }

// AnyCaller is a scope for services whose callers are one, or cannot be told
// apart: a key is all it takes to get its answer. It is the same scope for all services
// of a store: where one passes its client's key on to another, have each name itself in
// its scope, as the documentation of httpmw shows.
func AnyCaller() KeyFunc {
	return func(*gin.Context) (string, error) { return "any", nil }
}
