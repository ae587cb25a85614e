package guard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// DefaultLimit is the default of BodyLimit: the maximum length of a body that is read,
// in bytes.
const DefaultLimit = 1 << 20

// body is a request's body that the middleware has read to its end. The handler can
// read it again.
type body struct {
	io.Reader
	io.Closer
	data []byte
}

// readBody returns the whole body. The handler can read the body again, even by the
// functions of its framework. readBody fails with a MaxBytesError if the body is longer
// than limit. After a failed read, for example on a broken connection, the error is a
// keys.Error that also matches the error of the read.
func readBody(c Carrier, limit int64) ([]byte, error) {
	data, err := buffer(c, limit)
	if err == nil {
		c.Cache(data)
	}
	return data, err
}

// buffer reads the body and returns it. A server notices a disconnected client only
// after the body was read. Some callers read the body for this reason alone. buffer
// stores no copy in the framework. An inner handler may replace the body, and a copy
// would hide the new body.
func buffer(c Carrier, limit int64) ([]byte, error) {
	r := c.Request()
	data, err := peek(c, limit)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		// An outer handler may have read the body, and stored it in the framework.
		if cached := c.Cached(); cached != nil {
			data = cached
		}
	}
	if int64(len(data)) > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{Reader: bytes.NewReader(data), Closer: closer(r.Body), data: data}
	}
	return data, nil
}

// peek reads and returns the body. If peek fails, the handler can still read the body
// from its beginning. The handler first gets the data that peek has read, and then the
// rest or the error.
func peek(c Carrier, limit int64) ([]byte, error) {
	r := c.Request()
	if b, ok := r.Body.(*body); ok {
		return b.data, nil
	}
	if r.Body == nil || r.Body == http.NoBody {
		return []byte{}, nil
	}
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	rest := io.Reader(r.Body)
	switch {
	case err != nil:
		rest = failing{err}
		err = fmt.Errorf("%w: %w", c.Package().sourceOf("body").Bad("could not be read"), err)
	case int64(len(data)) > limit:
		err = &http.MaxBytesError{Limit: limit}
	default:
		return data, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), r.Body}
	return nil, err
}

// closer returns the Closer of the request's original body.
func closer(c io.Closer) io.Closer {
	if b, ok := c.(*body); ok {
		return b.Closer
	}
	return c
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
