package grpcmw

import (
	"context"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockkit/lockkit/core"
)

// FingerprintOf returns the fingerprint that Idempotent stores for a request.
func FingerprintOf(fullMethod string, m proto.Message) []byte {
	sum, err := fingerprintOf(context.Background(), &call{method: &method{name: fullMethod}, req: m}, nil)
	if err != nil {
		panic(err)
	}
	return sum
}

// DecodeAnswer decodes a stored response as Idempotent does, and EncodeReply encodes a
// reply.
func DecodeAnswer(data []byte) (proto.Message, error) {
	a, err := decodeAnswer(data)
	if a.failure != nil {
		err = a.failure.Err()
	}
	return a.reply, err
}

func EncodeReply(reply proto.Message) ([]byte, error) {
	return encodeReply(headOf(nil), reply, math.MaxInt)
}

// AnnotatedIn returns the rules of Annotated for the services in files.
func AnnotatedIn(files *protoregistry.Files, l *core.Locker, opts ...AnnotatedOption) (Rules, error) {
	return annotatedIn(files, l, opts)
}
