package grpcmw

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
)

// keyMetadata is where clients send the key of a call.
const keyMetadata = "idempotency-key"

// gatewayMetadata is where grpc-gateway puts the Idempotency-Key header of an
// HTTP request, if its matcher for incoming headers lets that one pass.
const gatewayMetadata = "grpcgateway-idempotency-key"

// maxIdempotencyKey is the length of the longest key, in bytes.
const maxIdempotencyKey = 255

// idempotencyKey is the key that a call names in its metadata. If it is there
// by both names, both have to say the same key, quoted or not.
func idempotencyKey(ctx context.Context, _ string, _ any) (string, error) {
	s := source{"metadata", keyMetadata}
	if _, ok := ctx.(*probe); ok {
		return "0", nil
	}
	values := metadata.ValueFromIncomingContext(ctx, keyMetadata)
	outside := metadata.ValueFromIncomingContext(ctx, gatewayMetadata)
	if len(values) == 0 || len(outside) == 0 {
		return s.idempotencyKey(append(values, outside...))
	}
	key, err := s.idempotencyKey(values)
	if err != nil {
		return "", err
	}
	other, err := s.idempotencyKey(outside)
	if err == nil && other != key {
		err = s.bad("is there more than once")
	}
	return key, err
}

// idempotencyKey is the key in the one of values.
func (s source) idempotencyKey(values []string) (string, error) {
	value, err := s.only(values)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(value, `"`) {
		inner, ok := unquote(value)
		if !ok {
			return "", s.bad("is not one quoted string without parameters")
		}
		value = inner
	} else if strings.ContainsAny(value, `",;`) {
		return "", s.bad("is not one key: quote it")
	}
	return s.visible(value)
}

// visible refuses what is not 1 to 255 visible ASCII characters.
func (s source) visible(value string) (string, error) {
	switch {
	case value == "":
		return "", s.bad("is empty")
	case len(value) > maxIdempotencyKey:
		return "", s.bad("is too long")
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return "", s.bad("contains something other than visible ASCII")
		}
	}
	return value, nil
}

// unquote reads a Structured Field string (RFC 9651, section 3.3.3) that is all
// of s, which begins with a quote.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}
