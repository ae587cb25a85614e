// Package lockkitpb has the option (lockkit.v1.guard), by which a .proto file names the
// guard of a method; grpcmw.Annotated makes rules of it. Code that protoc-gen-go makes
// from such a file imports this package; there is no reason to do so by hand.
//
// protoc finds lockkit/v1/guard.proto with
//
//	-I "$(go list -m -f '{{.Dir}}' github.com/lockkit/lockkit)/grpcmw/lockkitpb"
//
// Do not generate code from it a second time: the extension would be registered twice,
// and the program panics when it starts.
//
// The package is experimental: the number of the extension will change once, when one
// is registered. Code that was generated before has to be generated again.
package lockkitpb

// It needs protoc (Debian: protobuf-compiler), which building and testing do not.
//
//go:generate sh generate.sh
