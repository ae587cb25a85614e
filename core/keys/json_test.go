package keys_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// field returns the function that Source.JSON makes for path. Errors call the parsed
// text "payload".
func field(path string) func([]byte) (string, error) {
	return keys.NewSource("test", "field", path).JSON("payload")
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		path  string // "id" if empty
		text  string
		want  string // the expected value, if fault is empty
		fault string // a part of the expected error
	}{
		{name: "an integer", text: `{"x":[1,{"id":2}],"id":42}`, want: "42"},
		{name: "a string", text: " {\t\"id\" :\r\n \"42\"} ", want: "42"},
		{name: "a negative integer", text: `{"id":-7}`, want: "-7"},
		{name: "the number zero", text: `{"id":0}`, want: "0"},
		{name: "an integer beyond floats", text: `{"id":9007199254740993}`, want: "9007199254740993"},
		{name: "an integer beyond 64 bits", text: `{"id":98765432109876543210987654321}`, want: "98765432109876543210987654321"},
		{name: "a string that Key escapes", text: `{"id":"a:b{%}"}`, want: "a:b{%}"},
		{name: "a string with escapes", text: `{"\u0069d":"\u00e4\ud83d\ude00\"\\"}`, want: `ä😀"\`},
		{name: "a nested field", path: "order.ref.id", text: `{"id":1,"order":{"id":2,"ref":{"id":3}}}`, want: "3"},
		{name: "fields that are repeated elsewhere", text: `{"x":1,"x":2,"y":{"id":1,"id":2},"id":3}`, want: "3"},
		{name: "a field after JSON-like strings", text: `{"x":"}\",\"id\":1","y":["]","\\"],"id":3}`, want: "3"},
		{name: "a field among all kinds", text: `{"a":null,"b":true,"c":1.5e3,"d":[],"e":{},"f":[[{}],[]],"g":"","id":3}`, want: "3"},

		{name: "a field that is missing", text: `{"order_id":1}`, fault: `the field "id" is missing`},
		{name: "a field of an empty object", text: `{ }`, fault: `the field "id" is missing`},
		{name: "a field in another case", text: `{"ID":1}`, fault: `the field "id" is missing`},
		{name: "a nested field without its object", path: "order.id", text: `{"id":1}`, fault: `the field "order" is missing`},
		{name: "a nested field that is missing", path: "order.id", text: `{"order":{}}`, fault: `the field "order.id" is missing`},
		{name: "a nested field in an array", path: "order.id", text: `{"order":[{"id":1}]}`, fault: "is not in an object"},
		{name: "a nested field in null", path: "order.id", text: `{"order":null}`, fault: "is not in an object"},
		{name: "a nested field in a string", path: "order.id", text: `{"order":"x"}`, fault: "is not in an object"},
		{name: "a repeated field", text: `{"id":1,"id":2}`, fault: "is there more than once"},
		{name: "a repeated field and value", text: `{"id":1,"id":1}`, fault: "is there more than once"},
		{name: "a repeated field in another case", text: `{"id":1,"Id":2}`, fault: "is there more than once"},
		{name: "a repeated field with escapes", text: `{"id":1,"\u0069d":2}`, fault: "is there more than once"},
		{name: "a repeated field with folded case", path: "sku", text: `{"sku":1,"ſKU":2}`, fault: "is there more than once"},
		{name: "a repeated object on the way", path: "order.id", text: `{"order":{"id":1},"Order":{"id":2}}`, fault: "is there more than once"},
		{name: "null", text: `{"id":null}`, fault: "is neither a string nor an integer"},
		{name: "true", text: `{"id":true}`, fault: "is neither a string nor an integer"},
		{name: "an object", text: `{"id":{"a":1}}`, fault: "is neither a string nor an integer"},
		{name: "an array", text: `{"id":[1]}`, fault: "is neither a string nor an integer"},
		{name: "an empty string", text: `{"id":""}`, fault: "is empty"},
		{name: "a string with a control character", text: `{"id":"a\u0000b"}`, fault: "contains a control character"},
		{name: "a string with the separator", text: `{"id":"a\u001fb"}`, fault: "contains a control character"},
		{name: "a string that is too long", text: `{"id":"` + strings.Repeat("x", 513) + `"}`, fault: "is too long"},
		{name: "an integer that is too long", text: `{"id":1` + strings.Repeat("0", 513) + `}`, fault: "is too long"},
		{name: "a number with an exponent", text: `{"id":1e2}`, fault: "is not written as an integer"},
		{name: "a number with a large exponent", text: `{"id":1E2}`, fault: "is not written as an integer"},
		{name: "a number with a point", text: `{"id":1.0}`, fault: "is not written as an integer"},
		{name: "minus zero", text: `{"id":-0}`, fault: "is not written as an integer"},
		{name: "a number with leading zeros", text: `{"id":01}`, fault: "the payload is not valid JSON"},
		{name: "an empty text", text: "", fault: "the payload is not valid JSON"},
		{name: "half an object", text: `{"id":1`, fault: "the payload is not valid JSON"},
		{name: "a comma too many", text: `{"id":1,}`, fault: "the payload is not valid JSON"},
		{name: "a second object", text: `{"id":1}{"id":2}`, fault: "the payload is not valid JSON"},
		{name: "something after the object", text: `{"id":1} x`, fault: "the payload is not valid JSON"},
		{name: "a byte order mark", text: "\ufeff" + `{"id":1}`, fault: "the payload is not valid JSON"},
		{name: "a string that is no UTF-8", text: "{\"id\":\"a\xff\"}", fault: "the payload is not valid JSON"},
		{name: "an array of objects", text: `[{"id":1}]`, fault: "is not in an object"},
		{name: "a lone number", text: `1`, fault: "is not in an object"},
		{name: "a deep nest", text: strings.Repeat("[", 100_000), fault: "the payload is not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := "id"
			if c.path != "" {
				path = c.path
			}
			got, err := field(path)([]byte(c.text))
			check(t, got, err, c.want, c.fault)
		})
	}

	// The path is refused before there is a text.
	t.Run("path of another language", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"$.id", "$", "items[0].id", "items[*].id", "items.*.id", "$['id']", "order.$", "", "a..b", ".a", "a."} {
			panics(t, path, "field", func() { field(path) })
		}
		for _, path := range []string{"id", "_id.$oid", "$id", "items.0.id", "a-b.c d", "@id", "*id"} {
			field(path)
		}
	})
}

// FuzzJSON searches for a text whose value differs from the value that a handler
// decodes. It also searches for a text that is refused although all decoders read it in
// the same way.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{"id":1}`, `{"id":"1"}`, `{"id":1,"ID":2}`, `{"id":9007199254740993}`, `{"\u0069d":"x"}`, `{"id":"\ud800"}`,
		`{"id":1}{"id":2}`, `{"id":{"id":1}}`, `[1]`, ``, `{"id":null,"İd":1}`, "{\"id\":\"\xff\"}", `{"a":{"id":"}"},"id":"]"}`,
	} {
		f.Add("id", text)
		f.Add("a.id", text)
	}
	f.Fuzz(func(t *testing.T, path, text string) {
		for name := range strings.SplitSeq(path, ".") {
			if name == "" || name == "$" || name == "*" || strings.ContainsAny(name, "[]") {
				return // not a valid path
			}
		}
		key, err := field(path)([]byte(text))
		if err != nil {
			if key != "" || !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("%q in %q: got %q, %v", path, text, key, err)
			}
			if path == "id" {
				mustBeOdd(t, text)
			}
			return
		}
		if key == "" || len(key) > 512 || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
			t.Fatalf("%q in %q gives %q", path, text, key)
		}
		if want, ok := lookUp(text, path); !ok || key != want {
			t.Fatalf("%q in %q gives %q, want %q", path, text, key, want)
		}
		var in struct{ ID any }
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if path != "id" {
			return
		} else if err := decoder.Decode(&in); err != nil {
			t.Fatalf("%q: got %q, a handler cannot decode it: %v", text, key, err)
		}
		if id, _ := scalar(in.ID); id != key {
			t.Fatalf("%q: got %q, a handler decodes %q", text, key, id)
		}
	})
}

// lookUp returns the value at path as a handler finds it in decoded maps.
func lookUp(text, path string) (string, bool) {
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return "", false
	}
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return "", false
		}
		if value, ok = object[name]; !ok {
			return "", false
		}
	}
	return scalar(value)
}

func scalar(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}

// mustBeOdd fails the test if the refused text has an integer id that all decoders read
// in the same way.
func mustBeOdd(t *testing.T, text string) {
	t.Helper()
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil || string(all["id"]) == "" {
		return
	}
	var n json.Number
	if json.Unmarshal(all["id"], &n) != nil || strings.ContainsAny(string(all["id"]), `.eE"n`) || n == "-0" || len(n) > 512 {
		return
	}
	names, depth := 0, 0
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
		case string:
			if depth == 1 && strings.EqualFold(token, "id") {
				names++
			}
		}
	}
	if names == 1 && utf8.ValidString(text) {
		t.Errorf("%q was refused", text)
	}
}
