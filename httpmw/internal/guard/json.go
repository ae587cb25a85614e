package guard

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"
)

// JSON finds the field of a JSON object in the body. It panics if path is not names
// with dots between them.
func JSON(path string) Source {
	s := newPlace("JSON field", path)
	names := strings.Split(path, ".")
	for _, n := range names {
		switch {
		case n == "":
			panic("httpmw: JSON: a name in " + path + " is empty")
		case n == "$", n == "*", strings.ContainsAny(n, "[]"):
			panic("httpmw: JSON: " + path + " is not names with dots between them, as in order.id")
		}
	}
	return func(c Carrier) (string, error) {
		if !isJSON(c.Request().Header.Get("Content-Type")) {
			return "", &keyError{"content type is not JSON"}
		}
		data, err := readBody(c, c.Limit())
		if err != nil {
			return "", err
		}
		if !utf8.Valid(data) || !json.Valid(data) {
			return "", &keyError{"body is not valid JSON"}
		}
		return s.scalar(data, names)
	}
}

// isJSON tells whether a handler that goes by the content type reads the body as
// we do. Without one, gin's binders and net/http do not read a form in it either.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// scalar goes down the names into data, which is valid JSON.
func (s place) scalar(data []byte, names []string) (string, error) {
	for i, name := range names {
		field, err := s.field(data, name)
		if err != nil {
			return "", err
		}
		if field == nil {
			return "", newPlace("JSON field", strings.Join(names[:i+1], ".")).bad("is missing")
		}
		data = field
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a float64 keeps no integers above 2^53 apart
	value, err := decoder.Token()
	if err != nil {
		return "", s.bad("is not valid JSON")
	}
	switch value := value.(type) {
	case string:
		return s.check(value)
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") || value == "-0" {
			return "", s.bad("is not written as an integer")
		}
		return s.check(value.String())
	}
	return "", s.bad("is neither a string nor an integer")
}

// field is the value of the one field of the object in data that has this name,
// nil if there is none.
func (s place) field(data []byte, name string) (found json.RawMessage, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, s.bad("is not in an object")
	}
	alike := 0
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, s.bad("is not in valid JSON")
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, s.bad("is not in valid JSON")
		}
		if k, _ := key.(string); strings.EqualFold(k, name) { // as encoding/json finds struct fields
			alike++
			if k == name {
				found = value
			}
		}
	}
	if alike > 1 {
		return nil, s.bad("is there more than once")
	}
	return found, nil
}
