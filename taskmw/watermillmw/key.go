package watermillmw

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core/keys"
)

// KeyFunc returns the key of a message. It returns an error that matches
// core.ErrInvalid if the message is wrong. The text of the KeyFunc's error is not
// stored with the message. An outer middleware finds that error with errors.Is and
// errors.As.
//
// The result is one part of the key, without control characters. Or it has several
// parts with U+001F between them, as Join makes them. The parts "a" and "b" under the
// name "order" lock core.Key("order", "a", "b").
type KeyFunc func(msg *message.Message) (string, error)

func sourceOf(kind string) keys.Source { return keys.Source{Adapter: "watermillmw", Kind: kind} }

// Metadata returns a KeyFunc that takes the key from the message's metadata with
// exactly this name. It panics if name is empty.
func Metadata(name string) KeyFunc {
	s := keys.NewSource("watermillmw", "metadata", name)
	return func(msg *message.Message) (string, error) {
		value, ok := msg.Metadata[name]
		if !ok {
			return "", s.Bad("is missing")
		}
		return s.Part(value)
	}
}

// UUID returns a KeyFunc that takes the message's UUID, which is the same in each
// delivery. If a producer publishes twice, the two messages have different UUIDs,
// unless the producer sets the same UUID for both messages.
func UUID() KeyFunc {
	s := sourceOf("UUID")
	return func(msg *message.Message) (string, error) { return s.Part(msg.UUID) }
}

// Payload returns a KeyFunc that takes the key from a field of the payload, a JSON
// object. Dots lead into nested objects: "order.id". Fields with a dot or a bracket in
// their name, fields named "$" or "*", and elements of arrays cannot be named.
//
// The field has to be a string or an integer. The integer 123 and the string "123" are
// the same key. Integers of any size are distinct. Integers written as 1e2 or 1.0 are
// refused, as are null, true, false, arrays and objects. The payload has to be one
// valid JSON text. Names have to match exactly. A name must not be present twice, even
// in another case. Decoders differ in the field that they take.
//
// Payload panics if path is not a list of names with dots between them. "$.id" and
// "items[0].id" belong to other path languages. Without the panic, every message would
// be refused.
func Payload(path string) KeyFunc {
	field := keys.NewSource("watermillmw", "payload field", path).JSON("payload")
	return func(msg *message.Message) (string, error) { return field(msg.Payload) }
}

// Join combines several keys into one key with distinct parts. For example,
// Join(Payload("a"), Metadata("b")) under the name "x" locks core.Key("x", a, b). The
// returned KeyFunc fails with the error of the first part that fails. Join panics if
// there are no parts, or if one is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("watermillmw: Join without parts")
	}
	parts = clone("Join", parts)
	return func(msg *message.Message) (string, error) {
		return keys.Join(parts, func(part KeyFunc) (string, error) { return part(msg) })
	}
}

// clone returns a copy of keys, because the caller may change the slice. It panics if a
// key is nil.
func clone(where string, keys []KeyFunc) []KeyFunc {
	keys = append([]KeyFunc(nil), keys...)
	for _, k := range keys {
		if k == nil {
			panic("watermillmw: " + where + ": a key is nil")
		}
	}
	return keys
}
