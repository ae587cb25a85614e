// Package bridge has what grpcmw needs of a server that is not grpc-go's, and applies
// its rules.
package bridge

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// OwnerMetadata is the metadata with the owner of the caller's lease.
const OwnerMetadata = "lockkit-owner"

// PushbackTrailer has the pause before the next try. grpc-go obeys it, and not the
// RetryInfo: https://github.com/grpc/proposal/blob/master/A6-client-retries.md
const PushbackTrailer = "grpc-retry-pushback-ms"

// Stream is the stream of a call whose handler does not set its metadata by the stream,
// but returns it with its response.
type Stream interface {
	grpc.ServerTransportStream
	// Returned returns copies of the metadata of the response that the handler has
	// returned, or is about to commit.
	Returned() (header, trailer metadata.MD)
}
