package grpcmw

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core/keys"
)

// keyMetadata is the name of the metadata in which clients send the key of a call.
const keyMetadata = "idempotency-key"

// gatewayMetadata is grpc-gateway's name for the Idempotency-Key header of an HTTP
// request. The gateway's matcher for incoming headers has to let that header pass.
const gatewayMetadata = "grpcgateway-idempotency-key"

// idempotencyKey returns the key in the metadata of a call. If the metadata has a key
// under each of the two names, the keys have to be the same, quoted or not.
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

// idempotencyKeyIn returns the key in the single element of values. It ignores blanks
// around the value, because gRPC allows every proxy to strip them.
func idempotencyKeyIn(s keys.Source, values []string) (string, error) {
	value, err := s.Only(values)
	if err != nil {
		return "", err
	}
	return s.IdempotencyKey(strings.Trim(value, " \t"))
}
