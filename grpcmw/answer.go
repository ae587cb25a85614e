package grpcmw

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The first byte of a stored response is its version. The rest is a google.rpc.Status.
// An error is stored unchanged. A reply is stored as the only detail of a Status with
// code OK. A response with metadata has the metadata's length and the metadata before
// the Status.
const (
	answerVersion   = 1
	metadataVersion = 2
)

// headOf returns the beginning of a stored response with this metadata.
func headOf(block []byte) []byte {
	if len(block) == 0 {
		return []byte{answerVersion}
	}
	return protowire.AppendBytes([]byte{metadataVersion}, block)
}

// urlPrefix begins the names of messages in an Any.
const urlPrefix = "type.googleapis.com/"

// The fields of a stored reply: of the Status, and of the Any in it.
const (
	detailsField = 3
	urlField     = 1
	valueField   = 2
)

// encodeReply appends the reply to head. It fails if the reply cannot be decoded later,
// or if it needs more than limit bytes without the metadata. A handler's nil is sent
// and stored as an empty message. The code writes the Status and the Any around the
// message directly, because a large message must not be copied into each of them.
func encodeReply(head []byte, reply any, limit int) ([]byte, error) {
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
	total += len(head) - 1
	data := append(make([]byte, 0, total), head...)
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

// errTooLarge reports that a response is larger than AnswerLimit.
var errTooLarge = errors.New("grpcmw: the response is too large to be stored")

// encodeFailure appends s to head. It makes the text of the message valid UTF-8, as
// gRPC does when it sends s.
func encodeFailure(head []byte, s *status.Status, limit int) ([]byte, error) {
	s.Message = string([]rune(s.GetMessage()))
	data, err := proto.MarshalOptions{}.MarshalAppend(head, s)
	if err != nil {
		return nil, fmt.Errorf("grpcmw: the response: %w", err)
	}
	if len(data)-len(head)+1 > limit {
		return nil, errTooLarge
	}
	return data, nil
}

var errAnswer = errors.New("grpcmw: the stored response cannot be read")

// answer is the response to a call: a reply or an error, and metadata.
type answer struct {
	reply           proto.Message
	failure         *grpcstatus.Status
	header, trailer metadata.MD
}

func decodeAnswer(data []byte) (a answer, err error) {
	version := byte(0)
	if len(data) > 0 {
		version, data = data[0], data[1:]
	}
	switch version {
	case answerVersion:
	case metadataVersion:
		block, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return a, errMetadata
		}
		if a.header, a.trailer, err = decodeMetadata(block); err != nil {
			return answer{}, err
		}
		data = data[n:]
	default:
		return a, fmt.Errorf("%w: unknown version", errAnswer)
	}
	if packed, rest, ok := take(data, detailsField); ok && len(rest) == 0 {
		a.reply, err = decodeReply(packed)
		return a, err
	}
	s := new(status.Status)
	if err := proto.Unmarshal(data, s); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if codes.Code(s.GetCode()) == codes.OK {
		return answer{}, errAnswer
	}
	a.failure = grpcstatus.FromProto(s)
	return a, nil
}

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

// take returns the value of the field, if data begins with this field.
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
