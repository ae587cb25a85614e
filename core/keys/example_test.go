package keys_test

import (
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// An adapter for a queue locks the order of each message.
func Example() {
	type message struct {
		tenant string
		body   []byte
	}
	tenant := keys.NewSource("queuemw", "attribute", "tenant")
	order := keys.NewSource("queuemw", "field", "order.id").JSON("body")
	parts := []func(message) (string, error){
		func(m message) (string, error) { return tenant.Part(m.tenant) },
		func(m message) (string, error) { return order(m.body) },
	}
	keyOf := func(m message) (string, error) {
		joined, err := keys.Join(parts, func(part func(message) (string, error)) (string, error) { return part(m) })
		if err != nil {
			return "", err
		}
		return keys.Source{Adapter: "queuemw", Kind: "key"}.Key("order", joined)
	}

	fmt.Println(keyOf(message{"acme", []byte(`{"order":{"id":42}}`)}))
	_, err := keyOf(message{"acme", []byte(`{"order":{"id":1,"ID":2}}`)})
	fmt.Println(err, errors.Is(err, core.ErrInvalid))
	// Output:
	// order:acme:42 <nil>
	// queuemw: the field "order.id" is there more than once true
}
