package connectmw

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// metadataOf returns headers in the form of grpc-go: names in lower case, and decoded
// values for names that end in "-bin". If a value of such a name is not base64,
// metadataOf omits all values of the name. Another reader might use the first or the
// last value.
func metadataOf(h http.Header) metadata.MD {
	md := make(metadata.MD, len(h))
	addMetadata(md, h)
	return md
}

func addMetadata(md metadata.MD, h http.Header) {
	for name, values := range h {
		name = strings.ToLower(name)
		if !strings.HasSuffix(name, "-bin") {
			md[name] = append(md[name], values...)
			continue
		}
		if decoded, ok := decode(values); ok {
			md[name] = append(md[name], decoded...)
		}
	}
}

// decode returns the values of a binary header. ok is false if a value is not base64.
func decode(lines []string) (decoded []string, ok bool) {
	for _, line := range lines {
		for value := range strings.SplitSeq(line, ",") {
			data, err := connect.DecodeBinaryHeader(strings.TrimSpace(value))
			if err != nil {
				return nil, false
			}
			decoded = append(decoded, string(data))
		}
	}
	return decoded, true
}

// addHeaders adds the metadata md to h. It is the inverse of addMetadata.
func addHeaders(h http.Header, md metadata.MD) {
	for name, values := range md {
		for _, value := range values {
			if strings.HasSuffix(name, "-bin") {
				value = connect.EncodeBinaryHeader([]byte(value))
			}
			h.Add(name, value)
		}
	}
}

// hideOwner removes the owner of the caller's lease from the headers h, if a rule has
// removed the owner from the metadata of ctx. See grpcmw.TakeOwner.
func hideOwner(ctx context.Context, h http.Header) {
	if len(metadata.ValueFromIncomingContext(ctx, bridge.OwnerMetadata)) == 0 {
		h.Del(bridge.OwnerMetadata)
	}
}
