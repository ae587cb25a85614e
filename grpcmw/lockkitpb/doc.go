// Package lockkitpb has the option (lockkit.v1.guard), with which a .proto file sets
// the guard of a method. grpcmw.Annotated makes rules from such guards. Code that
// protoc-gen-go generates from such a file imports this package. Other code needs no
// import of this package.
//
// protoc finds lockkit/v1/guard.proto with
//
//	-I "$(go list -m -f '{{.Dir}}' github.com/lockkit/lockkit)/grpcmw/lockkitpb"
//
// Do not generate code from guard.proto a second time. The extension would be
// registered twice, and the program would panic when it starts.
//
// The package is experimental. The number of the extension will change once, when a
// number is registered. Older generated code then has to be generated again.
package lockkitpb

// go generate needs protoc (Debian: protobuf-compiler). Building and testing do not
// need it.
//
//go:generate sh generate.sh
