#!/bin/sh
# Makes the Go code of orders.proto. It needs protoc; building and testing do not.
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$bin:$PATH protoc -I. -I../../lockkitpb --go_out=. --go_opt=module=github.com/lockkit/lockkit/grpcmw/internal/orders \
  --go-grpc_out=. --go-grpc_opt=module=github.com/lockkit/lockkit/grpcmw/internal/orders orders.proto
