package taskmw_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		path    string // "id" if empty
		payload string
		want    string // the value, or
		fault   string // what the error says
	}{
		{name: "an integer", payload: `{"x":[1,{"id":2}],"id":42}`, want: "42"},
		{name: "a string", payload: " {\t\"id\" :\r\n \"42\"} ", want: "42"},
		{name: "a negative integer", payload: `{"id":-7}`, want: "-7"},
		{name: "zero", payload: `{"id":0}`, want: "0"},
		{name: "an integer above 2^53", payload: `{"id":9007199254740993}`, want: "9007199254740993"},
		{name: "an integer above 2^64", payload: `{"id":98765432109876543210987654321}`, want: "98765432109876543210987654321"},
		{name: "a string with what core.Key escapes", payload: `{"id":"a:b{%}"}`, want: "a:b{%}"},
		{name: "a string with escapes", payload: `{"\u0069d":"\u00e4\ud83d\ude00\"\\"}`, want: `ä😀"\`},
		{name: "a nested field", path: "order.ref.id", payload: `{"id":1,"order":{"id":2,"ref":{"id":3}}}`, want: "3"},
		{name: "fields that are repeated elsewhere", payload: `{"x":1,"x":2,"y":{"id":1,"id":2},"id":3}`, want: "3"},
		{name: "a field after strings that look like JSON", payload: `{"x":"}\",\"id\":1","y":["]","\\"],"id":3}`, want: "3"},
		{name: "a field among all kinds", payload: `{"a":null,"b":true,"c":1.5e3,"d":[],"e":{},"f":[[{}],[]],"g":"","id":3}`, want: "3"},

		{name: "a field that is missing", payload: `{"order_id":1}`, fault: `payload field "id" is missing`},
		{name: "a field of an empty object", payload: `{ }`, fault: `payload field "id" is missing`},
		{name: "a field in another case", payload: `{"ID":1}`, fault: `payload field "id" is missing`},
		{name: "a nested field whose object is missing", path: "order.id", payload: `{"id":1}`, fault: `payload field "order" is missing`},
		{name: "a nested field that is missing", path: "order.id", payload: `{"order":{}}`, fault: `payload field "order.id" is missing`},
		{name: "a nested field in an array", path: "order.id", payload: `{"order":[{"id":1}]}`, fault: "is not in an object"},
		{name: "a nested field in null", path: "order.id", payload: `{"order":null}`, fault: "is not in an object"},
		{name: "a nested field in a string", path: "order.id", payload: `{"order":"x"}`, fault: "is not in an object"},
		{name: "a field that is repeated", payload: `{"id":1,"id":2}`, fault: "is there more than once"},
		{name: "a field that is repeated with one value", payload: `{"id":1,"id":1}`, fault: "is there more than once"},
		{name: "a field that is repeated in another case", payload: `{"id":1,"Id":2}`, fault: "is there more than once"},
		{name: "a field that is repeated with an escape", payload: `{"id":1,"\u0069d":2}`, fault: "is there more than once"},
		{name: "a field that is repeated as decoders fold case", path: "sku", payload: `{"sku":1,"ſKU":2}`, fault: "is there more than once"},
		{name: "null", payload: `{"id":null}`, fault: "is neither a string nor an integer"},
		{name: "true", payload: `{"id":true}`, fault: "is neither a string nor an integer"},
		{name: "an object", payload: `{"id":{"a":1}}`, fault: "is neither a string nor an integer"},
		{name: "an array", payload: `{"id":[1]}`, fault: "is neither a string nor an integer"},
		{name: "an empty string", payload: `{"id":""}`, fault: "is empty"},
		{name: "a string with a control character", payload: `{"id":"a\u0000b"}`, fault: "contains a control character"},
		{name: "a string with the separator of parts", payload: `{"id":"a\u001fb"}`, fault: "contains a control character"},
		{name: "a string that is too long", payload: `{"id":"` + strings.Repeat("x", 513) + `"}`, fault: "is too long"},
		{name: "an integer that is too long", payload: `{"id":1` + strings.Repeat("0", 513) + `}`, fault: "is too long"},
		{name: "a number with an exponent", payload: `{"id":1e2}`, fault: "is not written as an integer"},
		{name: "a number with a point", payload: `{"id":1.0}`, fault: "is not written as an integer"},
		{name: "minus zero", payload: `{"id":-0}`, fault: "is not written as an integer"},
		{name: "an empty payload", payload: "", fault: "is not valid JSON"},
		{name: "half an object", payload: `{"id":1`, fault: "is not valid JSON"},
		{name: "a second object", payload: `{"id":1}{"id":2}`, fault: "is not valid JSON"},
		{name: "a string that is no UTF-8", payload: "{\"id\":\"a\xff\"}", fault: "is not valid JSON"},
		{name: "an array of objects", payload: `[{"id":1}]`, fault: "is not in an object"},
		{name: "a lone number", payload: `1`, fault: "is not in an object"},
		{name: "a deep nest", payload: strings.Repeat("[", 100_000), fault: "is not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := "id"
			if c.path != "" {
				path = c.path
			}
			got, err := taskmw.Payload(path)(t.Context(), asynq.NewTask("x", []byte(c.payload)))
			if c.fault == "" {
				if got != c.want || err != nil {
					t.Errorf("got %q, %v; want %q", got, err, c.want)
				}
				return
			}
			if got != "" || !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %q, %v; want ErrInvalid that says %q", got, err, c.fault)
			}
		})
	}
}

// FuzzPayload looks for a payload whose key is not what a handler decodes.
func TestPayloadOfAnotherLanguageIsRefusedWhenTheMiddlewareIsMade(t *testing.T) {
	t.Parallel()
	refused := func(path string) (is bool) {
		defer func() { is = recover() != nil }()
		taskmw.Payload(path)
		return false
	}
	for _, path := range []string{"$.id", "$", "items[0].id", "items[*].id", "items.*.id", "$['id']", "order.$", "", "a..b", ".a", "a."} {
		if !refused(path) {
			t.Errorf("%q is a path", path)
		}
	}
	for _, path := range []string{"id", "_id.$oid", "$id", "items.0.id", "a-b.c d", "@id", "*id"} {
		if refused(path) {
			t.Errorf("%q is no path", path)
		}
	}
}

func FuzzPayload(f *testing.F) {
	for _, payload := range []string{
		`{"id":1}`, `{"id":"1"}`, `{"id":1,"ID":2}`, `{"id":9007199254740993}`, `{"\u0069d":"x"}`, `{"id":"\ud800"}`,
		`{"id":1}{"id":2}`, `{"id":{"id":1}}`, `[1]`, ``, `{"id":null,"İd":1}`, "{\"id\":\"\xff\"}", `{"a":{"id":"}"},"id":"]"}`,
	} {
		f.Add([]byte(payload))
	}
	key, nested := taskmw.Payload("id"), taskmw.Payload("a.id")
	f.Fuzz(func(t *testing.T, payload []byte) {
		task := asynq.NewTask("x", payload)
		if got, err := key(t.Context(), task); err == nil {
			compare(t, payload, got)
		} else if !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q: %v", payload, err)
		} else {
			mustBeOdd(t, payload)
		}
		if got, err := nested(t.Context(), task); err == nil {
			var outer struct{ A json.RawMessage }
			if err := json.Unmarshal(payload, &outer); err != nil {
				t.Fatalf("%q: got %q, a handler cannot decode it: %v", payload, got, err)
			}
			compare(t, outer.A, got)
		}
	})
}

// compare decodes the object as a handler would.
func compare(t *testing.T, object []byte, got string) {
	t.Helper()
	var in struct{ ID json.RawMessage }
	if err := json.Unmarshal(object, &in); err != nil {
		t.Fatalf("%q: got %q, a handler cannot decode it: %v", object, got, err)
	}
	id := string(in.ID)
	if strings.HasPrefix(id, `"`) {
		if err := json.Unmarshal(in.ID, &id); err != nil {
			t.Fatal(err)
		}
	}
	if got != id {
		t.Errorf("%q: got %q, a handler decodes %q", object, got, id)
	}
}

// mustBeOdd fails if a payload that was refused is one that everybody reads the
// same way.
func mustBeOdd(t *testing.T, payload []byte) {
	t.Helper()
	var all map[string]json.RawMessage
	if json.Unmarshal(payload, &all) != nil || string(all["id"]) == "" {
		return
	}
	var n json.Number
	if json.Unmarshal(all["id"], &n) != nil || strings.ContainsAny(string(all["id"]), `.eE"n`) || n == "-0" || len(n) > 512 {
		return
	}
	names, depth := 0, 0
	for d := json.NewDecoder(strings.NewReader(string(payload))); ; {
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
	if names == 1 && strings.ToValidUTF8(string(payload), "") == string(payload) {
		t.Errorf("%q was refused", payload)
	}
}
