package httpmw

import (
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"
)

// IdempotencyKey reads the key from these lines of the header.
func IdempotencyKey(lines ...string) (string, error) {
	return idempotencyKey(http.Header{idempotencyHeader: lines})
}

// RewriteAnswer decodes a stored answer and encodes it again.
func RewriteAnswer(data []byte) ([]byte, error) {
	a, err := decodeAnswer(data)
	if err != nil {
		return nil, err
	}
	return a.encode(), nil
}

// NotedAnswer is an answer of this body, encoded with this note of how it was
// written.
func NotedAnswer(status int, body, note string) []byte {
	a := answer{status: status, written: body != "", body: []byte(body), header: []field{
		{"Content-Type", []string{"text/plain"}}, {callsField, []string{note}}, {"Location", nil},
	}}
	return a.encode()
}

// ReplayAnswer gives a stored answer again, and returns it.
func ReplayAnswer(c *gin.Context, data []byte) (status int, body []byte, err error) {
	a, err := decodeAnswer(data)
	if err == nil {
		a.replay(c)
	}
	return a.status, a.body, err
}

// FingerprintOf is the fingerprint of a request without a body.
func FingerprintOf(method, target string) []byte {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return digest(&http.Request{Method: method, URL: u}, "whole", "", nil)
}
