package grpcmw

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// fingerprintVersion is the first byte of the digested data. A change of the walk has
// to change this version.
const fingerprintVersion = 1

// fingerprintOf returns the fingerprint that distinguishes a duplicate from another
// request under the same key. The fingerprint covers the method and the result of the
// function part. If part is nil, the whole message replaces the result. A request that
// is no protobuf message always fails, because its reply could not be stored.
//
// The function walks the message by its descriptor and does not encode it. The encoding
// of a message, even the deterministic encoding, differs between builds
// (https://protobuf.dev/programming-guides/serialization-not-canonical/). It also
// includes fields that this program does not know.
func fingerprintOf(ctx context.Context, c *call, part KeyFunc) ([]byte, error) {
	m, ok := c.req.(proto.Message)
	if !ok {
		return nil, setupError(fmt.Sprintf("the request is a %T, which is no protobuf message", c.req))
	}
	w := newWalk()
	if part != nil {
		value, err := c.ask(ctx, part)
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, sourceOf("fingerprint").Bad("is empty")
		}
		w.begin('p', c.name)
		w.text(value)
		return w.sum(), nil
	}
	w.begin('m', c.name)
	w.message(m.ProtoReflect())
	return w.sum(), nil
}

// walk digests values, each with its length or in a fixed form, so different values
// give different data.
type walk struct {
	hash     hash.Hash
	buffer   []byte // bytes that are not in the hash yet
	unpacked int    // the number of messages of type Any around the walk
}

// maxUnpacked limits the depth to which nested messages of type Any are unpacked.
// Unpacking copies the content, so without a limit a small request could fill the
// memory. Deeper messages are digested as bytes.
const maxUnpacked = 8

func newWalk() *walk { return &walk{hash: sha256.New(), buffer: make([]byte, 0, 256)} }

func (w *walk) sum() []byte {
	_, _ = w.hash.Write(w.buffer)
	return w.hash.Sum(nil)
}

// room makes room for n more bytes in the buffer, if the buffer has that capacity.
func (w *walk) room(n int) {
	if len(w.buffer)+n > cap(w.buffer) {
		_, _ = w.hash.Write(w.buffer)
		w.buffer = w.buffer[:0]
	}
}

func (w *walk) begin(what byte, method string) {
	w.buffer = append(w.buffer, fingerprintVersion, what)
	w.text(method)
}

func (w *walk) number(n uint64) {
	w.room(binary.MaxVarintLen64)
	w.buffer = binary.AppendUvarint(w.buffer, n)
}

func (w *walk) text(s string) {
	w.number(uint64(len(s)))
	for w.room(len(s)); len(s) > cap(w.buffer); w.room(len(s)) {
		w.buffer = append(w.buffer, s[:cap(w.buffer)]...)
		s = s[cap(w.buffer):]
	}
	w.buffer = append(w.buffer, s...)
}

func (w *walk) bytes(b []byte) {
	w.number(uint64(len(b)))
	w.room(cap(w.buffer) + 1)
	_, _ = w.hash.Write(b)
}

// message digests the fields that are set, in the order of their numbers, and then a 0,
// which is not the number of any field.
func (w *walk) message(m protoreflect.Message) {
	if inner := w.unpack(m); inner != nil {
		w.unpacked++
		defer func() { w.unpacked-- }()
		w.text(string(inner.Descriptor().FullName()))
		m = inner
	}
	type set struct {
		field protoreflect.FieldDescriptor
		value protoreflect.Value
	}
	var fields []set
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, set{f, v})
		return true
	})
	slices.SortFunc(fields, func(a, b set) int { return cmp.Compare(a.field.Number(), b.field.Number()) })
	for _, s := range fields {
		w.number(uint64(s.field.Number()))
		switch {
		case s.field.IsMap():
			w.entries(s.field, s.value.Map())
		case s.field.IsList():
			list := s.value.List()
			w.number(uint64(list.Len()))
			for i := range list.Len() {
				w.value(s.field, list.Get(i))
			}
		default:
			w.value(s.field, s.value)
		}
	}
	w.number(0)
}

// unpack returns the message in a google.protobuf.Any. It returns nil if m is not an
// Any, or if its content is of an unknown type or too deep. The bytes in an Any are an
// encoding, so the walk uses the message instead.
func (w *walk) unpack(m protoreflect.Message) protoreflect.Message {
	packed, ok := m.Interface().(*anypb.Any)
	if !ok || w.unpacked == maxUnpacked {
		return nil
	}
	inner, err := anypb.UnmarshalNew(packed, proto.UnmarshalOptions{AllowPartial: true})
	if err != nil {
		return nil
	}
	return inner.ProtoReflect()
}

// entries digests a map in the order of its keys.
func (w *walk) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return compareKeys(f.MapKey().Kind(), a, b) })
	w.number(uint64(len(keys)))
	for _, k := range keys {
		w.value(f.MapKey(), k.Value())
		w.value(f.MapValue(), m.Get(k))
	}
}

func compareKeys(kind protoreflect.Kind, a, b protoreflect.MapKey) int {
	switch kind {
	case protoreflect.StringKind:
		return cmp.Compare(a.String(), b.String())
	case protoreflect.BoolKind:
		if a.Bool() == b.Bool() {
			return 0
		}
		if b.Bool() {
			return -1
		}
		return 1
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return cmp.Compare(a.Uint(), b.Uint())
	default:
		return cmp.Compare(a.Int(), b.Int())
	}
}

// value digests one value of the kind of f.
func (w *walk) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		w.message(v.Message())
	case protoreflect.StringKind:
		w.text(v.String())
	case protoreflect.BytesKind:
		w.bytes(v.Bytes())
	case protoreflect.BoolKind:
		if v.Bool() {
			w.number(1)
		} else {
			w.number(0)
		}
	case protoreflect.EnumKind:
		w.number(uint64(v.Enum()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		w.number(math.Float64bits(v.Float()))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		w.number(v.Uint())
	default:
		w.number(uint64(v.Int()))
	}
}
