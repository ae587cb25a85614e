package taskmw

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/keys"
)

// Payload takes the key from a field of the payload, a JSON object. Dots go into nested
// objects: "order.id". Fields with a dot or a bracket in their name, fields named "$"
// or "*", and elements of arrays cannot be named.
//
// The field has to be a string or an integer; the integer 123 and the string "123" are
// the same key. Integers of any size stay distinct. Integers written as 1e2 or 1.0 are
// refused, as are null, true, false, arrays and objects. The payload has to be one
// valid JSON text. Names have to match exactly. A name may not be there more than once,
// not even in another case, because decoders differ in which one they take.
//
// Payload panics if path is not names with dots between them: "$.id" and "items[0].id"
// are of other languages, and would have each task archived.
func Payload(path string) KeyFunc {
	field := keys.NewSource("taskmw", "payload field", path).JSON("payload")
	return func(_ context.Context, t *asynq.Task) (string, error) { return field(t.Payload()) }
}
