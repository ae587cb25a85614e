package watermillmw

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core/once"
)

// Bounds of the package.
const (
	InlineWait  = inlineWait
	MaxPause    = maxPause
	MaxProduced = maxProduced
)

// The form of stored messages.
var (
	AnswerOf   = answerOf
	ProducedOf = producedOf
)

// CallOf returns the call of Idempotent for msg.
func CallOf(name string, key KeyFunc, msg *message.Message) (once.Call, error) {
	m := &idempotent{config: &config{name: name}, key: key}
	return m.call(msg)
}
