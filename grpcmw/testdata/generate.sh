#!/bin/sh
# Makes the Go code of orders.proto, as test files of the package above.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$bin:$PATH protoc -I. -I../lockkitpb --go_out="$bin" --go_opt=module=github.com/lockkit/lockkit/grpcmw \
  --go-grpc_out="$bin" --go-grpc_opt=module=github.com/lockkit/lockkit/grpcmw orders.proto
mv "$bin/orders.pb.go" ../orders.pb_test.go
mv "$bin/orders_grpc.pb.go" ../orders_grpc.pb_test.go
