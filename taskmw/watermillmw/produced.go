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

// maxProduced is the most that is kept of the messages that a run has produced, in bytes:
// UUIDs, metadata, payloads and their lengths.
const maxProduced = 256 << 10

// producedVersion is the first byte of messages that are kept. A run without any keeps nothing.
const producedVersion = 1

var errProduced = fmt.Errorf("watermillmw: the kept messages have a form that this program does not know: %w", core.ErrUnsupported)

// Commit saves the success of the message of ctx, and the messages that the handler is about to
// return, in the caller's own transaction tx, as once.Commit does: its effect and its success
// are committed together, or neither is. The handler calls Commit as the last statement of the
// transaction, commits that, and returns. ctx is msg.Context().
//
// What is published then is produced, as it was committed, whatever the handler returns.
//
// It fails as once.Commit does: with core.ErrInvalid if there is no Idempotent around the
// handler. It fails with core.ErrInvalid too if produced has more than 256 KiB, before anything
// is written.
func Commit(ctx context.Context, tx once.Saver, produced ...*message.Message) error {
	a := answerOf(produced)
	if a.Unreplayable {
		return fmt.Errorf("watermillmw: commit: the produced messages have more than %d bytes: %w", maxProduced, core.ErrInvalid)
	}
	return once.Commit(ctx, tx, a)
}

// answerOf is what is stored of a run that has produced these messages.
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

// producedOf returns the messages that are kept as value.
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

// reader takes fields from the front of rest. It is bad once there is no such field.
type reader struct {
	rest []byte
	bad  bool
}

// number returns a number that is not greater than what is left.
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
