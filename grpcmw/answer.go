package grpcmw

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// answerVersion is the first byte of an answer that is kept; the rest is a
// google.rpc.Status. An error is that as it is, and a reply is the one detail of
// OK.
const answerVersion = 1

// encodeReply fails if the reply could not be made again. A handler's nil is sent
// as an empty message, and kept as one.
func encodeReply(reply any) ([]byte, error) {
	m, ok := reply.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("grpcmw: the reply is a %T, which is no protobuf message", reply)
	}
	if _, err := protoregistry.GlobalTypes.FindMessageByName(m.ProtoReflect().Descriptor().FullName()); err != nil {
		return nil, fmt.Errorf("grpcmw: the type of the reply: %w", err)
	}
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{AllowPartial: true}); err != nil {
		return nil, fmt.Errorf("grpcmw: the reply: %w", err)
	}
	return encode(&status.Status{Details: []*anypb.Any{packed}})
}

// encodeFailure makes the message one that can be encoded, as gRPC does when it
// sends it.
func encodeFailure(s *status.Status) ([]byte, error) {
	s.Message = string([]rune(s.GetMessage()))
	return encode(s)
}

func encode(s *status.Status) ([]byte, error) {
	data, err := proto.MarshalOptions{}.MarshalAppend([]byte{answerVersion}, s)
	if err != nil {
		return nil, fmt.Errorf("grpcmw: the answer: %w", err)
	}
	return data, nil
}

// errAnswer says that what is kept was not written by this package.
var errAnswer = errors.New("grpcmw: the answer that is kept cannot be read")

// decodeAnswer is the reply, or the error with which the call was answered.
func decodeAnswer(data []byte) (reply proto.Message, answer *grpcstatus.Status, err error) {
	if len(data) == 0 || data[0] != answerVersion {
		return nil, nil, fmt.Errorf("%w: unknown version", errAnswer)
	}
	s := new(status.Status)
	if err := proto.Unmarshal(data[1:], s); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if codes.Code(s.GetCode()) != codes.OK {
		return nil, grpcstatus.FromProto(s), nil
	}
	if len(s.GetDetails()) != 1 {
		return nil, nil, errAnswer
	}
	reply, err = anypb.UnmarshalNew(s.GetDetails()[0], proto.UnmarshalOptions{AllowPartial: true})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return reply, nil, nil
}
