#!/bin/sh
# Makes chargepb from charge.proto. It needs protoc; building does not.
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$bin:$PATH protoc -I. -I../../grpcmw/lockkitpb --go_out=chargepb --go_opt=module=github.com/lockkit/lockkit/examples/grpc/chargepb \
  --go-grpc_out=chargepb --go-grpc_opt=module=github.com/lockkit/lockkit/examples/grpc/chargepb charge.proto
