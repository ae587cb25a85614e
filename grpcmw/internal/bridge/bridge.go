// Package bridge has the interfaces between grpcmw and a server of another library that applies
// its rules.
package bridge

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// OwnerMetadata is the name of the metadata with the owner of the caller's lease.
const OwnerMetadata = "lockkit-owner"

// PushbackTrailer is the name of the trailer with the pause before the next try. grpc-go obeys it,
// and not the RetryInfo:
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md
const PushbackTrailer = "grpc-retry-pushback-ms"

// Errors is the stream of a call whose KeyFuncs return errors of another library.
type Errors interface {
	// StatusOf returns the status that is sent for such an error, or nil for another error.
	StatusOf(err error) *status.Status
}

// Stream is the stream of a call whose handler does not set its metadata by the stream,
// but returns it with its response.
type Stream interface {
	grpc.ServerTransportStream
	// Returned returns copies of the metadata of the response that the handler has
	// returned, or is about to commit.
	Returned() (header, trailer metadata.MD)
}
