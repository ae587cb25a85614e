package httpretry

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRead limits the length of the part of a body that is read, in bytes. The part
// shows the problem type, and reading a short body to its end frees the connection for
// the next try.
const maxRead = 64 << 10

// judge reports whether another try has to follow resp, and whether the outcome of the
// try is open. The request may then have been carried out. judge reads the beginning of
// the body if necessary.
func judge(resp *http.Response) (again, open bool) {
	switch resp.StatusCode {
	case http.StatusTooEarly, http.StatusTooManyRequests:
		buffer(resp)
		return true, false
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		buffer(resp)
		return true, true
	case http.StatusConflict:
		var problem struct{ Type string }
		_ = json.Unmarshal(buffer(resp), &problem)
		if strings.HasSuffix(problem.Type, "idempotency-in-progress") {
			return true, true
		}
		return strings.HasSuffix(problem.Type, "lock-busy"), false
	}
	return false, resp.StatusCode >= http.StatusInternalServerError
}

// buffer reads and returns the beginning of the body. The caller can read resp.Body
// from its beginning again. A body that was read to its end is closed.
func buffer(resp *http.Response) []byte {
	whole := resp.Body
	start, err := io.ReadAll(io.LimitReader(whole, maxRead))
	rest := io.Reader(whole)
	if err == nil && len(start) < maxRead {
		_ = whole.Close()
		rest = http.NoBody
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), whole}
	return start
}

// retryAfter returns the pause that a response requests. If the response requests no
// pause, the result is 0 or negative. A date in Retry-After is compared with the Date
// of the response, or else with the client's clock.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	seconds, err := strconv.ParseUint(value, 10, 32)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return at.Sub(now)
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	call        *call
	try, status int
	cancel      func() // frees the context of the try
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &UnknownError{Key: b.call.key, Tries: b.try, Status: b.status, Err: err}
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
