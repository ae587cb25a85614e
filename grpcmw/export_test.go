package grpcmw

import (
	"context"

	"google.golang.org/protobuf/proto"
)

// FingerprintOf is what Idempotent keeps of a request.
func FingerprintOf(fullMethod string, m proto.Message) []byte {
	sum, err := fingerprintOf(context.Background(), &call{method: &method{name: fullMethod}, req: m}, nil)
	if err != nil {
		panic(err)
	}
	return sum
}
