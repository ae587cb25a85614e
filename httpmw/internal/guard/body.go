package guard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// DefaultLimit is the length of the longest body that is read unless BodyLimit says
// otherwise, in bytes.
const DefaultLimit = 1 << 20

// body is a request's body that was read whole, and can be read once more.
type body struct {
	io.Reader
	io.Closer
	data []byte
}

// readBody returns the whole body and leaves it to be read again, with the framework
// too. It fails with a MaxBytesError, or with a keys.Error that matches the error of
// reading too, because the client's side broke.
func readBody(c Carrier, limit int64) ([]byte, error) {
	data, err := buffer(c, limit)
	if err == nil {
		c.Cache(data)
	}
	return data, err
}

// buffer reads the body although nothing uses it now: a server notices that a client
// has gone when there is nothing more to read. It leaves no copy with the framework,
// because that would hide a body that an inner handler puts in its place.
func buffer(c Carrier, limit int64) ([]byte, error) {
	r := c.Request()
	data, err := peek(c, limit)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		// An outer handler may have read it, and left it with the framework.
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

// peek reads the body. If that fails, the body is left as if it had not been touched:
// the part that was read can be read again, and then comes the rest or the error.
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

// closer implements Close with that of the request's own body.
func closer(c io.Closer) io.Closer {
	if b, ok := c.(*body); ok {
		return b.Closer
	}
	return c
}

// failing is a reader that only fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
