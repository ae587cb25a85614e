package grpcmw

import (
	"context"
	"encoding/hex"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core/keys"
)

// KeyFunc finds a key in a call: the key to lock, an idempotency key, a scope or a
// fingerprint. After an error that matches core.ErrInvalid the status is
// INVALID_ARGUMENT, because the call is wrong. An error that is a gRPC status is the
// response itself. After any other error the status is INTERNAL, and the error's text
// is not part of the response.
//
// The result is one part of the key, without control characters. Or it has several
// parts with U+001F between them, as Join makes them. The parts "a" and "b" under the
// name "order" lock core.Key("order", "a", "b").
//
// A KeyFunc runs before the lock is acquired. The function gets the incoming context,
// the full method ("/package.Service/Method"), and the request. On a stream of many
// messages from the client, req is nil until a rule has received the first message. If
// the KeyFunc then returns "" without an error, it is called again with the first
// message.
type KeyFunc func(ctx context.Context, fullMethod string, req any) (string, error)

// Metadata takes the key from the call's metadata. name has to be present exactly once,
// in upper or lower case. For a name that ends in "-bin", the key is the value's bytes
// in hexadecimal. Metadata panics if name is empty.
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

// Join combines several keys into one key with distinct parts. For example,
// Join(Field("a"), Metadata("b")) under the name "x" locks core.Key("x", a, b). The
// returned KeyFunc fails with the error of the first part that fails. Join panics if
// there are no parts, or if a part is nil.
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

func sourceOf(kind string) keys.Source { return keys.Source{Adapter: "grpcmw", Kind: kind} }

// hexadecimal encodes value as a part of a key, in hexadecimal digits. Of a value that
// is too long, hexadecimal encodes one byte more than a part can have. Part then
// refuses the result.
func hexadecimal(s keys.Source, value []byte) (string, error) {
	const most = 256 // in 512 digits
	return s.Part(hex.EncodeToString(value[:min(len(value), most+1)]))
}
