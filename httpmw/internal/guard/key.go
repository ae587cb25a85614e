package guard

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/lockkit/lockkit/core/keys"
)

// KeyFunc finds a key in a request. An error that matches core.ErrInvalid means that
// the request is wrong. The result is one part of the key, or several parts that Join
// has combined.
type KeyFunc func(x Exchange) (string, error)

// Source finds in a request the value for a part of a key.
type Source func(c Carrier) (string, error)

// sourceOf returns the source of a kind that a request has only once, such as its body.
// named returns a source with a name, such as one of many headers.
func (p Package) sourceOf(kind string) keys.Source {
	return keys.Source{Adapter: string(p), Kind: kind}
}

func (p Package) named(kind, name string) keys.Source { return keys.NewSource(string(p), kind, name) }

// Path finds a parameter of the request's route by find. find also returns the route,
// and reports whether the route has the parameter.
func (p Package) Path(name string, find func(c Carrier) (value, route string, ok bool)) Source {
	s := p.named("path parameter", name)
	return func(c Carrier) (string, error) {
		value, route, ok := find(c)
		if !ok {
			return "", setupError(p.text("route %q has no %s", route, s))
		}
		return s.Part(value)
	}
}

// Query finds a parameter of the URL's query.
func (p Package) Query(name string) Source {
	s := p.named("query parameter", name)
	return func(c Carrier) (string, error) {
		query, err := url.ParseQuery(c.Request().URL.RawQuery)
		if err != nil {
			return "", p.sourceOf("query").Bad("is malformed")
		}
		return only(s, query[name])
	}
}

// Header finds a header.
func (p Package) Header(name string) Source {
	s := p.named("header", name)
	if http.CanonicalHeaderKey(name) == "Host" {
		// net/http removes Host from the headers.
		return func(c Carrier) (string, error) { return s.Part(c.Request().Host) }
	}
	return func(c Carrier) (string, error) {
		return only(s, c.Request().Header.Values(name))
	}
}

// Join combines several KeyFuncs into one, for any framework.
func Join[F ~func(C) (string, error), C any](p Package, parts []F) F {
	if len(parts) == 0 {
		p.panic("Join without parts")
	}
	parts = append([]F(nil), parts...)
	for _, part := range parts {
		if part == nil {
			p.panic("Join: a part is nil")
		}
	}
	return func(c C) (string, error) {
		return keys.Join(parts, func(part F) (string, error) { return part(c) })
	}
}

// only returns the single element of values, as a part of a key.
func only(s keys.Source, values []string) (string, error) {
	value, err := s.Only(values)
	if err != nil {
		return "", err
	}
	return s.Part(value)
}

// sentence returns the sentence in a problem that explains why a request has no key.
func sentence(e *keys.Error) string {
	words := strings.TrimPrefix(e.Detail(), "the ")
	return strings.ToUpper(words[:1]) + words[1:] + "."
}
