package grpcmw_test

// It needs protoc, which building and testing do not. Generated files are tests'
// own, so that they are no package that a user could import.
//
//go:generate sh testdata/generate.sh
