package watermillmw

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core/once"
)

// These are limits of the package.
const (
	InlineWait  = inlineWait
	MaxPause    = maxPause
	MaxProduced = maxProduced
)

// These functions convert produced messages to their stored form and back.
var (
	AnswerOf   = answerOf
	ProducedOf = producedOf
)

// CallOf returns the once.Call that Idempotent makes for msg.
func CallOf(name string, key KeyFunc, msg *message.Message) (once.Call, error) {
	m := &idempotent{config: &config{name: name}, key: key}
	return m.call(msg)
}
