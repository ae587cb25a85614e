module github.com/lockkit/lockkit/grpcmw/connectmw

go 1.25.0

require (
	connectrpc.com/connect v1.19.0
	github.com/lockkit/lockkit v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240318140521-94a12d6c2237
	google.golang.org/grpc v1.64.1
	google.golang.org/protobuf v1.36.9
)

require (
	github.com/cenkalti/backoff/v4 v4.2.0 // indirect
	golang.org/x/net v0.26.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.16.0 // indirect
)

replace github.com/lockkit/lockkit => ../..
