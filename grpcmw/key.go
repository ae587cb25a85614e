package grpcmw

import (
	"context"
	"encoding/hex"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core/keys"
)

// KeyFunc finds in a call what is to be locked. An error that matches
// core.ErrInvalid is the client's and answered with INVALID_ARGUMENT; an error
// that is a gRPC status is the answer itself; any other is answered with
// INTERNAL, and its text does not go into the answer.
//
// The result is one part of the key, without control characters, or several
// parts with U+001F between them, which is how Join puts them together: parts
// "a" and "b" under the name "order" lock core.Key("order", "a", "b").
//
// It runs before the lock is taken. It gets the incoming context, the full
// method ("/package.Service/Method"), and the request. Of a stream the client of
// which sends many messages there is no request yet: req is nil, and a KeyFunc
// that answers "" without an error is called again with the first message.
type KeyFunc func(ctx context.Context, fullMethod string, req any) (string, error)

// Metadata takes the key from the call's metadata, in which name has to be
// there once; case does not matter. Values of names that end in "-bin" are
// bytes, and written in hexadecimal. It panics if name is empty.
func Metadata(name string) KeyFunc {
	s := keys.NewSource("grpcmw", "metadata", strings.ToLower(name))
	binary := strings.HasSuffix(s.Name, "-bin")
	return func(ctx context.Context, _ string, _ any) (string, error) {
		if _, ok := ctx.(*probe); ok {
			return "0", nil
		}
		value, err := s.Only(metadata.ValueFromIncomingContext(ctx, s.Name))
		if err != nil {
			return "", err
		}
		if binary {
			return hexadecimal(s, []byte(value))
		}
		return s.Part(value)
	}
}

// Join makes one key of several, whose parts cannot run into each other:
// Join(Field("a"), Metadata("b")) under the name "x" locks core.Key("x", a, b).
// It fails as the first of parts that fails. It panics if there are none, or one
// is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("grpcmw: Join without parts")
	}
	parts = append([]KeyFunc(nil), parts...)
	for _, p := range parts {
		if p == nil {
			panic("grpcmw: Join: a part is nil")
		}
	}
	return func(ctx context.Context, fullMethod string, req any) (string, error) {
		return keys.Join(parts, func(part KeyFunc) (string, error) {
			v, err := part(ctx, fullMethod, req)
			if err == nil && v == "" && req == nil {
				err = errNoMessage
			}
			return v, err
		})
	}
}

// sourceOf is a place in calls.
func sourceOf(kind string) keys.Source { return keys.Source{Adapter: "grpcmw", Kind: kind} }

// hexadecimal is a part of a key for bytes. Of more than a part can have, no more is
// copied than is refused.
func hexadecimal(s keys.Source, value []byte) (string, error) {
	const most = 256 // in 512 digits
	return s.Part(hex.EncodeToString(value[:min(len(value), most+1)]))
}
