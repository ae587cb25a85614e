package keys

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// JSON returns a function that finds the value of s in a JSON object. The name of s is the
// path, with dots into nested objects: "order.id". The function is safe for concurrent
// use, and looks through the text in one pass without a copy.
//
// The value has to be a string or an integer as it can be a Part; the integer 123 and the
// string "123" are the same. Numbers that are written as 1e2, 1.0 or -0 are refused. The
// names on the way have to match exactly, and may not be there more than once, not even
// in another case: decoders differ in which one they take. What is refused fails with an
// *Error, one of the source whole if the text is not one valid JSON text.
//
// It panics if the path is not names with dots between them: "$.id" and "items[0].id" are
// of other languages.
func (s Source) JSON(whole string) func(text []byte) (string, error) {
	steps := bytes.Split([]byte(s.Name), []byte("."))
	for _, step := range steps {
		switch name := string(step); {
		case name == "":
			panic(s.Adapter + ": " + s.String() + ": a name is empty")
		case name == "$", name == "*", strings.ContainsAny(name, "[]"):
			panic(s.Adapter + ": " + s.String() + " is not names with dots between them, as in order.id")
		}
	}
	return func(text []byte) (string, error) {
		if !utf8.Valid(text) || !json.Valid(text) {
			return "", Source{Adapter: s.Adapter, Kind: whole}.Bad("is not valid JSON")
		}
		for i, name := range steps {
			value, times := field(text, name)
			switch {
			case times < 0:
				return "", s.Bad("is not in an object")
			case times > 1:
				return "", s.Bad("is there more than once")
			case value == nil:
				return "", Source{s.Adapter, s.Kind, string(bytes.Join(steps[:i+1], []byte(".")))}.Bad(missing)
			}
			text = value
		}
		return s.scalar(text)
	}
}

// scalar is the string or integer of which text is the valid JSON.
func (s Source) scalar(text []byte) (string, error) {
	switch c := text[0]; {
	case c == '"':
		return s.Part(unescape(text))
	case c != '-' && (c < '0' || c > '9'):
		return "", s.Bad("is neither a string nor an integer")
	case bytes.ContainsAny(text, ".eE") || string(text) == "-0":
		return "", s.Bad("is not written as an integer")
	}
	return s.Part(string(text))
}

// unescape is the string of which text is the valid JSON.
func unescape(text []byte) string {
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
// names are written with escapes: a text may be large, and hold anything.
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
		key = []byte(unescape(quoted))
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
