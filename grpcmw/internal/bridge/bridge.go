// Package bridge has the interfaces between grpcmw and adapters that apply grpcmw's rules
// to servers of other libraries.
package bridge

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// OwnerMetadata is the name of the metadata with the owner of the caller's lease.
const OwnerMetadata = "lockkit-owner"

// PushbackTrailer is the name of the trailer with the pause before the next try. grpc-go
// obeys this trailer, but ignores the RetryInfo:
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md
const PushbackTrailer = "grpc-retry-pushback-ms"

// RepeatedTrailer is set by a client adapter if its transport has sent a failed try more
// than once, so that the outcome of the earlier sending is not known. No server sends it.
const RepeatedTrailer = "lockkit-repeated"

// Errors is implemented by the stream of a call if the call's KeyFuncs can return
// errors of another library.
type Errors interface {
	// StatusOf returns the status that the server sends for err, if err is an error of
	// that library. For any other error StatusOf returns nil.
	StatusOf(err error) *status.Status
}

// Stream is implemented by the stream of a call whose handler returns metadata with its
// response, instead of setting it on the stream.
type Stream interface {
	grpc.ServerTransportStream
	// Returned returns copies of the metadata of the response that the handler has
	// returned or is about to commit.
	Returned() (header, trailer metadata.MD)
}
