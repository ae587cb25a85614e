package keys_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

var header = keys.Source{Adapter: "test", Kind: "header"}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 255)
	for _, c := range []struct {
		name  string
		value string
		want  string // the expected key, if fault is empty
		fault string // a part of the expected error
	}{
		{name: "a bare key", value: "8e03978e-40d5-43e8-bc93-6894a57f9324", want: "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{name: "a quoted key", value: `"8e03978e"`, want: "8e03978e"},
		{name: "a quoted key with escapes", value: `"a\"b\\c"`, want: `a"b\c`},
		{name: "a quoted key with separators", value: `"a,b;c=d"`, want: "a,b;c=d"},
		{name: "a quoted key with blanks", value: `" a b "`, want: " a b "},
		{name: "a bare key with other characters", value: `a:b/c=+\?!~`, want: `a:b/c=+\?!~`},
		{name: "the longest bare key", value: long, want: long},
		{name: "the longest quoted key", value: `"` + long + `"`, want: long},
		{name: "the longest escaped quoted key", value: `"` + strings.Repeat(`\"`, 255) + `"`, want: strings.Repeat(`"`, 255)},

		{name: "an empty header", value: "", fault: "is empty"},
		{name: "an empty string", value: `""`, fault: "is empty"},
		{name: "a list", value: "a, b", fault: "is not one key"},
		{name: "a list of strings", value: `"a", "b"`, fault: "is not one quoted string"},
		{name: "a parameter", value: `"a";b=c`, fault: "is not one quoted string"},
		{name: "a bare key with a parameter", value: "a;b=c", fault: "is not one key"},
		{name: "a quote within a bare key", value: `a"b`, fault: "is not one key"},
		{name: "a string without end", value: `"a`, fault: "is not one quoted string"},
		{name: "a single quote mark", value: `"`, fault: "is not one quoted string"},
		{name: "a string ending with an escape", value: `"a\`, fault: "is not one quoted string"},
		{name: "a string that escapes its end", value: `"a\"`, fault: "is not one quoted string"},
		{name: "an escape that is none", value: `"a\b"`, fault: "is not one quoted string"},
		{name: "more after the string", value: `"a"b`, fault: "is not one quoted string"},
		{name: "a blank in a bare key", value: "a b", fault: "contains something other than visible ASCII"},
		{name: "a blank before a key", value: " k", fault: "contains something other than visible ASCII"},
		{name: "a tab in a string", value: "\"a\tb\"", fault: "contains something other than visible ASCII"},
		{name: "what is not ASCII", value: "schlüssel", fault: "contains something other than visible ASCII"},
		{name: "a bare key too long", value: long + "x", fault: "is too long, 255 bytes are allowed"},
		{name: "a string that is too long", value: `"` + long + `x"`, fault: "is too long, 255 bytes are allowed"},
		{name: "a header of 4 KiB", value: strings.Repeat("x", 4096), fault: "is too long, 255 bytes are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := header.IdempotencyKey(c.value)
			check(t, got, err, c.want, c.fault)
		})
	}
}

// FuzzIdempotencyKey checks that a value is refused, or gives a key whose quoted form
// gives the same key.
func FuzzIdempotencyKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		key, err := header.IdempotencyKey(value)
		if err != nil {
			if key != "" || !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("%q gives %q, %v", value, key, err)
			}
			return
		}
		if len(key) == 0 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q gives %q", value, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := header.IdempotencyKey(quoted); again != key || err != nil {
			t.Fatalf("%q gives %q, but %q gives %q, %v", value, key, quoted, again, err)
		}
		if !strings.HasPrefix(value, `"`) && key != value {
			t.Fatalf("%q gives %q", value, key)
		}
	})
}
