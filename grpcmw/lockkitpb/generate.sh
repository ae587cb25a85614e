#!/bin/sh
# Makes guard.pb.go from lockkit/v1/guard.proto. It needs protoc; building does not.
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PATH=$bin:$PATH protoc --go_out=. --go_opt=module=github.com/lockkit/lockkit/grpcmw/lockkitpb lockkit/v1/guard.proto
