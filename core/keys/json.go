package keys

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// JSON returns a function that finds the value of s in a JSON object. The name of s is
// the path to the value, with dots between the names of nested objects: "order.id". The
// function is safe for concurrent use. It searches the text without a copy.
//
// The value has to be a string that Part accepts, or an integer. The integer 123 and
// the string "123" give the same result. Numbers that are written as 1e2, 1.0 or -0 are
// refused. The names of the path have to match exactly. No name of the path may occur
// more than once in its object, even in another case, because decoders choose different
// fields. The function fails with an *Error that names s, or the part of the path that
// is missing. If the text is not one valid JSON text, the *Error names a source of the
// Kind whole.
//
// JSON panics if the path does not consist of names with dots between them. For
// example, the paths "$.id" and "items[0].id" of other languages are not allowed.
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

// scalar returns the string or integer that text, valid JSON, represents.
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

// unescape returns the string that text, valid JSON, represents.
func unescape(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text[1 : len(text)-1])
	}
	var value string
	_ = json.Unmarshal(text, &value) // does not fail, because text is valid
	return value
}

// field returns the value of the field with this name in data, which is a valid JSON
// text. The value is nil if there is no such field. times is the number of fields whose
// names match if case is ignored. It is negative if data is not an object. field
// allocates only for names with escapes, because a text can be large and have any
// content.
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

// matches compares quoted, a name in JSON, with name. exact reports whether they are
// equal. alike reports whether encoding/json would match them, in any case.
func matches(quoted, name []byte) (exact, alike bool) {
	key := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = []byte(unescape(quoted))
	}
	return bytes.Equal(key, name), bytes.EqualFold(key, name)
}

// cursor reads a valid JSON text.
type cursor struct {
	data []byte
	at   int
}

// next moves to the next byte that is not white space, and returns that byte.
func (c *cursor) next() byte {
	for strings.IndexByte(" \t\r\n", c.data[c.at]) >= 0 {
		c.at++
	}
	return c.data[c.at]
}

// value moves past the value that begins at the cursor, and returns the value's text.
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

// quoted moves past the string that begins at the cursor.
func (c *cursor) quoted() {
	for c.at++; c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
}

// literal moves past the number or word that begins at the cursor.
func (c *cursor) literal() {
	for c.at < len(c.data) && strings.IndexByte(",}] \t\r\n", c.data[c.at]) < 0 {
		c.at++
	}
}
