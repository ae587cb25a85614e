package httpretry

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// call is one request with all its tries.
type call struct {
	*transport
	req *http.Request
	key string

	tries int
	open  bool           // one of the tries, or of base's repetitions, may have been carried out
	last  *http.Response // the response of the last try, or nil
}

func (c *call) run() (*http.Response, error) {
	ctx := c.req.Context()
	_, err := retry.Do(ctx, c.policy, c.try)
	switch {
	case c.tries == 0:
		closeBody(c.req)
		return nil, fmt.Errorf("httpretry: not sent: %w", err)
	case c.last != nil && (err == nil || ctx.Err() == nil):
		return c.finish(c.last)
	case c.open:
		c.drop()
		return nil, &UnknownError{Key: c.key, Tries: c.tries, Err: err}
	}
	c.drop()
	return nil, fmt.Errorf("httpretry: not carried out: %w", err)
}

// finish returns the last response, unless that response would hide an earlier try that
// may have been carried out. For example, a 401 does not show the outcome of the
// earlier try. finish returns a 5xx, because callers do not treat a 5xx as a final
// result.
func (c *call) finish(resp *http.Response) (*http.Response, error) {
	settled := resp.StatusCode/100 == 2 || resp.Header.Get("Idempotent-Replayed") == "true"
	if c.open && !settled && resp.StatusCode < http.StatusInternalServerError {
		err := &UnknownError{Key: c.key, Tries: c.tries, Status: resp.StatusCode, Err: statusError(resp.StatusCode)}
		c.drop()
		return nil, err
	}
	return resp, nil
}

func (c *call) drop() {
	if c.last != nil {
		_ = c.last.Body.Close()
		c.last = nil
	}
}

// try sends the request once. If it returns an error, retry.Do makes another try,
// unless retry.Stop has marked the error.
func (c *call) try(ctx context.Context) (struct{}, error) {
	c.drop()
	var nothing struct{}
	req, err := c.next(ctx)
	if err != nil {
		return nothing, retry.Stop(err)
	}
	c.tries++
	var again bool
	var pause time.Duration
	if c.last, again, err = c.send(req); err != nil {
		c.open = true
	} else if again {
		pause, err = retryAfter(c.last.Header), statusError(c.last.StatusCode)
	}
	if err != nil && !c.repeatable() {
		return nothing, retry.Stop(err)
	}
	return nothing, retry.After(pause, err)
}

// repeatable reports whether the body can be sent a second time.
func (c *call) repeatable() bool {
	return c.req.Body == nil || c.req.Body == http.NoBody || c.req.GetBody != nil
}

func (c *call) next(ctx context.Context) (*http.Request, error) {
	req := c.req.Clone(ctx)
	req.Trailer = c.req.Trailer // the body can set its values
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	for name := range req.Header {
		if strings.EqualFold(name, keyHeader) {
			delete(req.Header, name)
		}
	}
	req.Header[keyHeader] = []string{c.key}
	if c.tries > 0 && c.req.GetBody != nil {
		body, err := c.req.GetBody()
		if err != nil {
			return nil, fmt.Errorf("httpretry: GetBody: %w", err)
		}
		req.Body = body
	}
	return req, nil
}

// send makes one try. again reports whether another try has to follow.
func (c *call) send(req *http.Request) (resp *http.Response, again bool, err error) {
	ctx, cancel := context.WithCancel(req.Context())
	inTime := func() bool { return true }
	if c.timeout > 0 {
		inTime = time.AfterFunc(c.timeout, cancel).Stop
	}
	var sent atomic.Int64 // how often base has sent the request
	resp, err = c.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, keyHeader) {
				sent.Add(1)
			}
		},
	})))
	if err != nil {
		if !inTime() {
			// The format hides context.Canceled.
			err = fmt.Errorf("no response within %v s: %v", c.timeout.Seconds(), err)
		}
		cancel()
		return nil, false, err
	}
	if resp.Body == nil { // as http.Client tolerates it
		resp.Body = http.NoBody
	}
	resp.Request = req // not a copy of base, which redirected would not recognize
	resp.Body = &body{ReadCloser: resp.Body, call: c, try: c.tries, status: resp.StatusCode, cancel: cancel}
	again, open := judge(resp)
	c.open = c.open || open || sent.Load() > 1
	if !inTime() && !again {
		_ = resp.Body.Close() // unreadable, because its context is canceled
		return nil, false, fmt.Errorf("no response within %v s", c.timeout.Seconds())
	}
	return resp, again, nil
}

// statusError is the error of a try whose response had this status.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("the response was %d %s", int(s), http.StatusText(int(s)))
}
