package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockkit/lockkit/core/keys"
)

// errNoMessage is the error of Field on a stream whose first message has not arrived
// yet.
var errNoMessage = errors.New("grpcmw: the key is in a message, and there is none yet")

// Field takes the key from a field of the request, named as in its .proto file. Dots in
// path lead to nested messages: "order.id", as in a google.protobuf.FieldMask.
//
// The field can be of any type except a message, a list or a map. The key is the string
// itself, a number in decimal, the number of an enum, true or false for a bool, or
// bytes in hexadecimal. Integers of 64 bits are exact. A float is written without an
// exponent, with the fewest digits that distinguish it from every other float. -0 is 0,
// and NaN is refused.
//
// A field that is not set is refused, like an empty string or empty bytes. A proto3
// field without "optional" has no presence. Its 0 and false cannot be distinguished
// from a field that is not set. Field accepts these two values.
//
// On a stream of many messages from the client, Field uses the first message.
//
// Field panics if path is not a list of names with dots between them. Check reports a
// method whose messages do not have the field. Without Check, the calls of such a
// method get INTERNAL.
func Field(path string) KeyFunc {
	f := &field{Source: keys.NewSource("grpcmw", "field", path), names: strings.Split(path, ".")}
	if slices.Contains(f.names, "") {
		panic("grpcmw: Field: a name in " + strconv.Quote(path) + " is empty")
	}
	return f.find
}

type field struct {
	keys.Source
	names []string
	last  atomic.Pointer[resolved] // most fields serve one type of message
}

// resolved has the fields that a path names in one type of message.
type resolved struct {
	message protoreflect.MessageDescriptor
	fields  []protoreflect.FieldDescriptor
}

func (f *field) find(ctx context.Context, _ string, req any) (string, error) {
	if p, ok := ctx.(*probe); ok {
		return p.field(f, req)
	}
	if req == nil {
		return "", errNoMessage
	}
	message, ok := req.(proto.Message)
	if !ok {
		return "", setupError(fmt.Sprintf("field %q is asked of a %T, which is no protobuf message", f.Name, req))
	}
	m := message.ProtoReflect()
	fields, err := f.resolve(m.Descriptor())
	if err != nil {
		return "", err
	}
	last := len(fields) - 1
	for _, d := range fields[:last] {
		if !m.Has(d) {
			return "", f.Bad("is missing")
		}
		m = m.Get(d).Message()
	}
	if fields[last].HasPresence() && !m.Has(fields[last]) {
		return "", f.Bad("is missing")
	}
	value, err := f.text(fields[last].Kind(), m.Get(fields[last]))
	if err != nil {
		return "", err
	}
	return f.Part(value)
}

// resolve finds the fields of the path. It remembers only the last result, because
// types made at run time would accumulate.
func (f *field) resolve(d protoreflect.MessageDescriptor) ([]protoreflect.FieldDescriptor, error) {
	if r := f.last.Load(); r != nil && r.message == d {
		return r.fields, nil
	}
	r := &resolved{message: d, fields: make([]protoreflect.FieldDescriptor, len(f.names))}
	for i, name := range f.names {
		if d == nil {
			return nil, f.wrong(i-1, "is not a message")
		}
		next := d.Fields().ByName(protoreflect.Name(name))
		switch {
		case next == nil:
			return nil, f.wrong(i, fmt.Sprintf("is no field of %s", d.FullName()))
		case next.IsMap():
			return nil, f.wrong(i, "is a map")
		case next.IsList():
			return nil, f.wrong(i, "is a list")
		}
		r.fields[i], d = next, next.Message()
	}
	if d != nil {
		return nil, f.wrong(len(f.names)-1, "is a message, name one of its fields")
	}
	f.last.Store(r)
	return r.fields, nil
}

// wrong returns the error for the path's name at i.
func (f *field) wrong(i int, fault string) error {
	return setupError(fmt.Sprintf("field %q: %s %s", f.Name, f.names[i], fault))
}

func (f *field) text(kind protoreflect.Kind, v protoreflect.Value) (string, error) {
	switch kind {
	case protoreflect.StringKind:
		return v.String(), nil
	case protoreflect.BytesKind:
		return hexadecimal(f.Source, v.Bytes())
	case protoreflect.BoolKind:
		return strconv.FormatBool(v.Bool()), nil
	case protoreflect.EnumKind:
		return strconv.FormatInt(int64(v.Enum()), 10), nil
	case protoreflect.FloatKind:
		return f.float(v.Float(), 32)
	case protoreflect.DoubleKind:
		return f.float(v.Float(), 64)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.FormatUint(v.Uint(), 10), nil
	default:
		return strconv.FormatInt(v.Int(), 10), nil
	}
}

func (f *field) float(v float64, bits int) (string, error) {
	if math.IsNaN(v) {
		return "", f.Bad("is not a number")
	}
	return strconv.FormatFloat(v+0, 'f', -1, bits), nil // -0 + 0 is 0
}

// setupError is a mistake in the rules, not in a call. The call gets INTERNAL. The text
// contains only names from the code, so it may be part of the response.
type setupError string

func (e setupError) Error() string { return "grpcmw: " + string(e) }
