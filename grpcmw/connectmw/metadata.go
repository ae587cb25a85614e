package connectmw

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// metadataOf returns headers as grpc-go has them: names in lower case, and the values of
// names that end in "-bin" decoded. Those that are not base64 are left out.
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
		for _, line := range values {
			for value := range strings.SplitSeq(line, ",") {
				if data, err := connect.DecodeBinaryHeader(strings.TrimSpace(value)); err == nil {
					md[name] = append(md[name], string(data))
				}
			}
		}
	}
}

// addHeaders is the inverse of addMetadata.
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

// hideOwner takes the owner of the caller's lease out of headers if a rule has taken it
// out of the metadata: see grpcmw.TakeOwner.
func hideOwner(ctx context.Context, h http.Header) {
	if len(metadata.ValueFromIncomingContext(ctx, bridge.OwnerMetadata)) == 0 {
		h.Del(bridge.OwnerMetadata)
	}
}
