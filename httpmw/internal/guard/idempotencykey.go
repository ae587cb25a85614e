package guard

import (
	"net/http"
	"strings"
)

// idempotencyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey is the key that a request names.
func (p Package) IdempotencyKey(h http.Header) (string, error) {
	s := p.sourceOf(idempotencyHeader + " header")
	value, err := s.Only(h[idempotencyHeader])
	if err != nil {
		return "", err
	}
	return s.IdempotencyKey(strings.Trim(value, " \t"))
}
