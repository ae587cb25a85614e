package httpmw

import (
	"net/http"
	"net/url"
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

// FingerprintOf is the fingerprint of a request without a body.
func FingerprintOf(method, target string) []byte {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return digest(&http.Request{Method: method, URL: u}, "whole", "", nil)
}
