package guard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/lockkit/lockkit/core/keys"
)

// idempotencyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey returns the key in the header of a request.
func (p Package) IdempotencyKey(h http.Header) (string, error) {
	s := p.sourceOf(idempotencyHeader + " header")
	value, err := s.Only(h[idempotencyHeader])
	if err != nil {
		return "", err
	}
	return s.IdempotencyKey(strings.Trim(value, " \t"))
}

// between separates the parts of a key. It is a visible character, because once refuses
// control characters.
const between = "\u241f" // SYMBOL FOR UNIT SEPARATOR

// keyOf returns the idempotency key of a request, or "" if the request has no key and
// needs none.
func (m *Idempotent) keyOf(x Exchange) (key string, err error) {
	if m.key == nil {
		key, err = m.pkg.IdempotencyKey(x.Request().Header)
	} else {
		key, err = m.keyBy(x)
	}
	if err == nil || !m.optional {
		return key, err
	}
	var own *keys.Error
	if errors.As(err, &own) && own.IsMissing() {
		return "", nil
	}
	return key, err
}

// keyBy returns the key that the function of the option Key finds. A key of one part is
// used unchanged, as in the header.
func (m *Idempotent) keyBy(x Exchange) (string, error) {
	s := m.pkg.sourceOf("idempotency key")
	value, err := m.key(x)
	switch {
	case err != nil:
		return "", err
	case value == "":
		_, err := s.Only(nil)
		return "", err
	case strings.Contains(value, between):
		return "", s.Bad("contains U+241F")
	}
	parts, err := s.Parts(value)
	if err != nil {
		return "", err
	}
	if value = strings.Join(parts, between); len(value) > maxField {
		return "", s.Bad(fmt.Sprintf("is too long, %d bytes are allowed", maxField))
	}
	return value, nil
}
