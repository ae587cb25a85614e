//go:build !race

package keys_test

import (
	"strings"
	"testing"
)

// TestAllocations runs without the race detector, which makes allocations itself.
func TestAllocations(t *testing.T) {
	small := `{"order":{"id":"42"}}`
	large := `{"x":[` + strings.Repeat(`{"a":"b","c":[1,2,3]},`, 5000) + `0],"order":{"id":"42"}}`

	t.Run("field of a JSON text", func(t *testing.T) {
		find := field("order.id")
		for _, text := range [][]byte{[]byte(small), []byte(large)} {
			n := testing.AllocsPerRun(100, func() {
				if v, err := find(text); v != "42" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
			if n > 1 {
				t.Errorf("%v allocations for %d bytes", n, len(text))
			}
		}
	})
	t.Run("key of a part", func(t *testing.T) {
		joined := "a\x1fb"
		n := testing.AllocsPerRun(100, func() {
			if key, err := whole.Key("order", joined); key != "order:a:b" || err != nil {
				t.Errorf("got %q, %v", key, err)
			}
		})
		if n > 1 {
			t.Errorf("%v allocations", n)
		}
	})
}
