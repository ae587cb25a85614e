package grpcmw

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// answerVersion is the first byte of an answer that is kept; the rest is a
// google.rpc.Status. An error is that as it is, and a reply is the one detail of
// OK.
const answerVersion = 1

// urlPrefix is what names of messages in an Any begin with.
const urlPrefix = "type.googleapis.com/"

// The fields of an answer that is a reply: of the Status, and of the Any in it.
const (
	detailsField = 3
	urlField     = 1
	valueField   = 2
)

// encodeReply fails if the reply could not be made again, or not be kept in
// limit bytes. A handler's nil is sent as an empty message, and kept as one. The
// Status and the Any around the message are put there by hand: a message may be
// large, and is not copied into one after the other.
func encodeReply(reply any, limit int) ([]byte, error) {
	m, ok := reply.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("grpcmw: the reply is a %T, which is no protobuf message", reply)
	}
	name := m.ProtoReflect().Descriptor().FullName()
	if _, err := protoregistry.GlobalTypes.FindMessageByName(name); err != nil {
		return nil, fmt.Errorf("grpcmw: the type of the reply: %w", err)
	}
	url, size := len(urlPrefix)+len(name), proto.Size(m)
	packed := 2*protowire.SizeTag(1) + protowire.SizeBytes(url) + protowire.SizeBytes(size)
	total := 1 + protowire.SizeTag(detailsField) + protowire.SizeBytes(packed)
	if total > limit {
		return nil, errTooLarge
	}
	data := append(make([]byte, 0, total), answerVersion)
	data = protowire.AppendVarint(protowire.AppendTag(data, detailsField, protowire.BytesType), uint64(packed))
	data = protowire.AppendVarint(protowire.AppendTag(data, urlField, protowire.BytesType), uint64(url))
	data = append(append(data, urlPrefix...), name...)
	data = protowire.AppendVarint(protowire.AppendTag(data, valueField, protowire.BytesType), uint64(size))
	data, err := proto.MarshalOptions{AllowPartial: true, UseCachedSize: true}.MarshalAppend(data, m)
	if err != nil {
		return nil, fmt.Errorf("grpcmw: the reply: %w", err)
	}
	if len(data) != total {
		return nil, errors.New("grpcmw: the reply was changed while it was encoded")
	}
	return data, nil
}

// errTooLarge says that an answer is larger than AnswerLimit.
var errTooLarge = errors.New("grpcmw: the answer is too large to be kept")

// encodeFailure makes the message one that can be encoded, as gRPC does when it
// sends it.
func encodeFailure(s *status.Status, limit int) ([]byte, error) {
	s.Message = string([]rune(s.GetMessage()))
	data, err := proto.MarshalOptions{}.MarshalAppend([]byte{answerVersion}, s)
	if err != nil {
		return nil, fmt.Errorf("grpcmw: the answer: %w", err)
	}
	if len(data) > limit {
		return nil, errTooLarge
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
	if packed, rest, ok := take(data[1:], detailsField); ok && len(rest) == 0 {
		reply, err = decodeReply(packed)
		return reply, nil, err
	}
	s := new(status.Status)
	if err := proto.Unmarshal(data[1:], s); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if codes.Code(s.GetCode()) == codes.OK {
		return nil, nil, errAnswer
	}
	return nil, grpcstatus.FromProto(s), nil
}

// decodeReply is the message in an encoded Any.
func decodeReply(packed []byte) (proto.Message, error) {
	url, rest, _ := take(packed, urlField)
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(string(url))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	value, rest, _ := take(rest, valueField)
	if len(rest) != 0 {
		return nil, errAnswer
	}
	reply := kind.New().Interface()
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(value, reply); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return reply, nil
}

// take takes the field with which data begins, if it is this one.
func take(data []byte, field protowire.Number) (value, rest []byte, ok bool) {
	number, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 || number != field || kind != protowire.BytesType {
		return nil, data, false
	}
	value, n := protowire.ConsumeBytes(data[tag:])
	if n < 0 {
		return nil, data, false
	}
	return value, data[tag+n:], true
}
