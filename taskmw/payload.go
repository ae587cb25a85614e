package taskmw

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// Payload takes the key from a field of the payload, a JSON object; dots go into
// nested objects: "order.id". Fields with a dot or a bracket in their name, fields
// named "$" or "*", and elements of arrays cannot be named.
//
// The field has to be a string or an integer; the integer 123 and the string
// "123" are the same key. Integers of any size are kept apart, and those
// written as 1e2 or 1.0 are refused, as are null, true, false, arrays and
// objects. The payload has to be one valid JSON text. Names have to match
// exactly, and may not be there more than once, not even in another case:
// decoders differ in which one they take.
//
// It panics if path is not names with dots between them: "$.id" and "items[0].id"
// are of other languages, and would have each task archived.
func Payload(path string) KeyFunc {
	s := newSource("payload field", path)
	var steps []step
	for i, name := range strings.Split(path, ".") {
		switch {
		case name == "":
			panic("taskmw: Payload: a name in " + path + " is empty")
		case name == "$", name == "*", strings.ContainsAny(name, "[]"):
			panic("taskmw: Payload: " + path + " is not names with dots between them, as in order.id")
		}
		parent := name
		if i > 0 {
			parent = steps[i-1].path + "." + name
		}
		steps = append(steps, step{[]byte(name), parent})
	}
	return func(_ context.Context, t *asynq.Task) (string, error) {
		data := t.Payload()
		if !utf8.Valid(data) || !json.Valid(data) {
			return "", &keyError{"the payload is not valid JSON"}
		}
		for _, step := range steps {
			value, times := field(data, step.name)
			switch {
			case times < 0:
				return "", s.bad("is not in an object")
			case times > 1:
				return "", s.bad("is there more than once")
			case value == nil:
				return "", newSource("payload field", step.path).bad("is missing")
			}
			data = value
		}
		return s.scalar(data)
	}
}

// step is one name of a path, and the path to there.
type step struct {
	name []byte
	path string
}

// scalar is the string or integer of which text is the valid JSON.
func (s source) scalar(text []byte) (string, error) {
	switch c := text[0]; {
	case c == '"':
		return s.check(unquote(text))
	case c != '-' && (c < '0' || c > '9'):
		return "", s.bad("is neither a string nor an integer")
	case bytes.ContainsAny(text, ".eE") || string(text) == "-0":
		return "", s.bad("is not written as an integer")
	}
	return s.check(string(text))
}

// unquote is the string of which text is the valid JSON.
func unquote(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text[1 : len(text)-1])
	}
	var value string
	_ = json.Unmarshal(text, &value) // it is valid
	return value
}

// field looks into data, a valid JSON text, for the field with this name. It
// returns its value, nil if there is none, and how often the name is there, in
// whatever case; less than 0 if data is no object. It allocates nothing, unless
// names are written with escapes: a payload may be large, and hold anything.
func field(data, name []byte) (value []byte, times int) {
	c := cursor{data: data}
	if c.next() != '{' {
		return nil, -1
	}
	for c.at++; c.next() != '}'; {
		if c.data[c.at] == ',' {
			c.at++
			c.next()
		}
		key := c.value()
		c.next()
		c.at++ // the colon
		c.next()
		text := c.value()
		if exact, alike := matches(key, name); alike {
			times++
			if exact {
				value = text
			}
		}
	}
	return value, times
}

// matches compares a name in JSON with one as it is, as encoding/json finds the
// fields of a struct.
func matches(quoted, name []byte) (exact, alike bool) {
	key := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = []byte(unquote(quoted))
	}
	return bytes.Equal(key, name), bytes.EqualFold(key, name)
}

// cursor goes through a valid JSON text.
type cursor struct {
	data []byte
	at   int
}

// next goes to the next byte that is not white space, and returns it.
func (c *cursor) next() byte {
	for strings.IndexByte(" \t\r\n", c.data[c.at]) >= 0 {
		c.at++
	}
	return c.data[c.at]
}

// value goes behind the value that begins here, and returns its text.
func (c *cursor) value() []byte {
	begin, depth := c.at, 0
	for c.at < len(c.data) {
		switch b := c.data[c.at]; {
		case b == '"':
			c.quoted()
		case b == '{' || b == '[':
			depth++
			c.at++
			continue
		case b == '}' || b == ']':
			depth--
			c.at++
		case depth == 0:
			c.literal()
		default:
			c.at++
			continue
		}
		if depth == 0 {
			break
		}
	}
	return c.data[begin:c.at]
}

// quoted goes behind the string that begins here.
func (c *cursor) quoted() {
	for c.at++; c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
}

// literal goes behind the number or word that begins here.
func (c *cursor) literal() {
	for c.at < len(c.data) && strings.IndexByte(",}] \t\r\n", c.data[c.at]) < 0 {
		c.at++
	}
}
