package adapters_test

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// These are the methods of the gRPC service. Requests and responses are StringValues.
const (
	paymentsName = "lockkit.proof.Payments"
	payMethod    = "/" + paymentsName + "/Pay"
	chatMethod   = "/" + paymentsName + "/Chat"
)

// payments is the description of the service that protoc-gen-go-grpc would generate.
var payments = grpc.ServiceDesc{
	ServiceName: paymentsName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Pay",
		Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: payMethod}, func(ctx context.Context, req any) (any, error) {
				return srv.(*grpcFront).pay(ctx, req.(*wrapperspb.StringValue))
			})
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Chat", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return srv.(*grpcFront).chat(s) },
	}},
	Metadata: "payments.proto",
}

// init registers the service as generated code does, because grpcmw looks up methods in
// the registry.
func init() {
	text := ".google.protobuf.StringValue"
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:       proto.String("lockkit/proof/payments.proto"),
		Package:    proto.String("lockkit.proof"),
		Syntax:     proto.String("proto3"),
		Dependency: []string{"google/protobuf/wrappers.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Payments"),
			Method: []*descriptorpb.MethodDescriptorProto{
				{Name: proto.String("Pay"), InputType: &text, OutputType: &text},
				{Name: proto.String("Chat"), InputType: &text, OutputType: &text, ClientStreaming: proto.Bool(true), ServerStreaming: proto.Bool(true)},
			},
		}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}
