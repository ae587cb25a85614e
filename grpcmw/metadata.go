package grpcmw

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// maxKeptMetadata limits the encoded metadata that is stored with a response, in bytes.
const maxKeptMetadata = 64 << 10

// neverKept has the names of metadata that describes the connection, the time or the
// caller, or that the kit sets.
var neverKept = []string{
	"access-control-*", "age", "authorization", "connection", "content-length", "content-type", "cookie", "date", "grpc-*",
	"grpcgateway-*", "host", "idempotency-key", "keep-alive", "lockkit-*", "proxy-*", "retry-after", "server", "set-cookie",
	"te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "www-authenticate", replayedMetadata,
}

// isKeepable reports whether metadata of this name, in lower case, may be stored.
func isKeepable(name string) bool {
	return keys.IsLabel(name) && !slices.ContainsFunc(neverKept, func(never string) bool {
		prefix, all := strings.CutSuffix(never, "*")
		return name == never || all && strings.HasPrefix(name, prefix)
	})
}

// recorder records the metadata that a handler sets, and passes it to the wrapped
// stream.
type recorder struct {
	grpc.ServerTransportStream
	bridged bridge.Stream // nil with grpc-go

	mu              sync.Mutex
	header, trailer metadata.MD
}

// record returns a recorder around stream, which can be another rule's recorder.
func record(stream grpc.ServerTransportStream) *recorder {
	r := &recorder{ServerTransportStream: stream}
	switch stream := stream.(type) {
	case *recorder:
		r.bridged = stream.bridged
	case bridge.Stream:
		r.bridged = stream
	}
	return r
}

func (r *recorder) SetHeader(md metadata.MD) error {
	return r.note(&r.header, md, r.ServerTransportStream.SetHeader)
}

func (r *recorder) SendHeader(md metadata.MD) error {
	return r.note(&r.header, md, r.ServerTransportStream.SendHeader)
}

func (r *recorder) SetTrailer(md metadata.MD) error {
	return r.note(&r.trailer, md, r.ServerTransportStream.SetTrailer)
}

func (r *recorder) note(in *metadata.MD, md metadata.MD, set func(metadata.MD) error) error {
	err := set(md)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		*in = metadata.Join(*in, md)
	}
	return err
}

// noted returns copies of the metadata that the handler has set and returned.
func (r *recorder) noted() (header, trailer metadata.MD) {
	if r == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bridged == nil {
		return r.header.Copy(), r.trailer.Copy()
	}
	header, trailer = r.bridged.Returned()
	return metadata.Join(r.header, header), metadata.Join(r.trailer, trailer)
}

// The fields of stored metadata: headers and trailers, each with its name and values.
const (
	headerField  = 1
	trailerField = 2

	mdNameField  = 1
	mdValueField = 2
)

// encodeMetadata returns the metadata of these names, empty if there is none.
func encodeMetadata(names []string, header, trailer metadata.MD) (block []byte) {
	add := func(field protowire.Number, md metadata.MD) {
		for _, name := range slices.Sorted(maps.Keys(md)) {
			if !slices.Contains(names, name) || len(md[name]) == 0 {
				continue
			}
			entry := protowire.AppendString(protowire.AppendTag(nil, mdNameField, protowire.BytesType), name)
			for _, value := range md[name] {
				entry = protowire.AppendString(protowire.AppendTag(entry, mdValueField, protowire.BytesType), value)
			}
			block = protowire.AppendBytes(protowire.AppendTag(block, field, protowire.BytesType), entry)
		}
	}
	add(headerField, header)
	add(trailerField, trailer)
	return block
}

// decodeMetadata is the inverse of encodeMetadata.
func decodeMetadata(block []byte) (header, trailer metadata.MD, err error) {
	header, trailer = metadata.MD{}, metadata.MD{}
	for len(block) > 0 {
		md := header
		entry, rest, ok := take(block, headerField)
		if !ok {
			md = trailer
			entry, rest, ok = take(block, trailerField)
		}
		name, values, named := take(entry, mdNameField)
		if !ok || !named || !isKeepable(string(name)) {
			return nil, nil, errMetadata
		}
		for len(values) > 0 {
			var value []byte
			if value, values, ok = take(values, mdValueField); !ok {
				return nil, nil, errMetadata
			}
			md.Append(string(name), string(value))
		}
		block = rest
	}
	return header, trailer, nil
}

var errMetadata = fmt.Errorf("%w: its metadata", errAnswer)

var errMuchMetadata = errors.New("grpcmw: the metadata of the response is too large to be stored")
