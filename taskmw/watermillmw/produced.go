package watermillmw

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// maxProduced limits the stored form of a run's messages, in bytes. The form has UUIDs,
// metadata, payloads and their lengths.
const maxProduced = 256 << 10

// producedVersion is the first byte of stored messages. A run without messages stores
// nothing.
const producedVersion = 1

var errProduced = fmt.Errorf("watermillmw: the stored messages have a form that this program cannot read: %w", core.ErrUnsupported)

// Commit stores the success of a message and its produced messages in the caller's
// transaction tx, as once.Commit does. The effect and the success are committed
// together, or neither is. ctx is msg.Context(). The handler calls Commit as the last
// statement of the transaction, commits the transaction, and returns.
//
// The router then publishes the committed messages, whatever the handler returns.
//
// Commit fails like once.Commit. For example, it fails with core.ErrInvalid if there is
// no Idempotent around the handler. It also fails with core.ErrInvalid, before anything
// is written, if produced has more than 256 KiB.
func Commit(ctx context.Context, tx once.Saver, produced ...*message.Message) error {
	a := answerOf(produced)
	if a.Unreplayable {
		return fmt.Errorf("watermillmw: commit: the produced messages have more than %d bytes: %w", maxProduced, core.ErrInvalid)
	}
	return once.Commit(ctx, tx, a)
}

// answerOf returns the stored form of the messages of a run.
func answerOf(produced []*message.Message) once.Answer {
	if len(produced) == 0 {
		return once.Answer{}
	}
	text := []byte{producedVersion}
	for _, p := range produced {
		text = appendField(text, p.UUID)
		text = appendField(text, string(p.Payload))
		text = binary.AppendUvarint(text, uint64(len(p.Metadata)))
		for _, key := range slices.Sorted(maps.Keys(p.Metadata)) {
			text = appendField(appendField(text, key), p.Metadata[key])
		}
		if len(text) > maxProduced {
			return once.Answer{Unreplayable: true}
		}
	}
	return once.Answer{Value: text}
}

func appendField(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

// producedOf returns the messages whose stored form is value.
func producedOf(value []byte) (produced []*message.Message, err error) {
	if len(value) == 0 {
		return nil, nil
	}
	if value[0] != producedVersion {
		return nil, errProduced
	}
	for text := (reader{rest: value[1:]}); len(text.rest) > 0; {
		p := message.NewMessage(text.field(), message.Payload(text.field()))
		for range text.number() {
			key := text.field()
			p.Metadata[key] = text.field()
		}
		if text.bad {
			return nil, errProduced
		}
		produced = append(produced, p)
	}
	return produced, nil
}

// reader reads fields from the front of rest. bad is true after a field was missing.
type reader struct {
	rest []byte
	bad  bool
}

// number reads a number. It sets bad if the number exceeds the length of the rest.
func (r *reader) number() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)-size) {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *reader) field() string {
	n := r.number()
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
