package taskmw

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/keys"
)

// Payload takes the key from a field of the payload, a JSON object. Dots in path lead
// to nested objects: "order.id". path cannot name fields with a dot or a bracket in
// their name, fields named "$" or "*", or elements of arrays.
//
// The field has to be a string or an integer. The integer 123 and the string "123" are
// the same key. Integers of any size stay distinct. Integers written as 1e2 or 1.0 are
// refused, as are null, true, false, arrays and objects. The payload has to be one
// valid JSON text. Names have to match exactly. A name must not be present twice, even
// in another case. Decoders differ in the field that they take.
//
// Payload panics if path is not a list of names with dots between them. "$.id" and
// "items[0].id" belong to other path languages. Without the panic, every task would be
// archived.
func Payload(path string) KeyFunc {
	field := keys.NewSource("taskmw", "payload field", path).JSON("payload")
	return func(_ context.Context, t *asynq.Task) (string, error) { return field(t.Payload()) }
}
