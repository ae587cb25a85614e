package grpcmw

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core/keys"
)

// keyMetadata is where clients send the key of a call.
const keyMetadata = "idempotency-key"

// gatewayMetadata is where grpc-gateway puts the Idempotency-Key header of an
// HTTP request, if its matcher for incoming headers lets that one pass.
const gatewayMetadata = "grpcgateway-idempotency-key"

// idempotencyKey is the key that a call names in its metadata. If it is there
// by both names, both have to say the same key, quoted or not.
func idempotencyKey(ctx context.Context, _ string, _ any) (string, error) {
	s := keys.NewSource("grpcmw", "metadata", keyMetadata)
	if _, ok := ctx.(*probe); ok {
		return "0", nil
	}
	values := metadata.ValueFromIncomingContext(ctx, keyMetadata)
	outside := metadata.ValueFromIncomingContext(ctx, gatewayMetadata)
	if len(values) == 0 || len(outside) == 0 {
		return idempotencyKeyIn(s, append(values, outside...))
	}
	key, err := idempotencyKeyIn(s, values)
	if err != nil {
		return "", err
	}
	other, err := idempotencyKeyIn(s, outside)
	if err == nil && other != key {
		err = s.Bad("is there more than once")
	}
	return key, err
}

// idempotencyKeyIn is the key in the one of values.
func idempotencyKeyIn(s keys.Source, values []string) (string, error) {
	value, err := s.Only(values)
	if err != nil {
		return "", err
	}
	return s.IdempotencyKey(value)
}
