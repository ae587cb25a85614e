package guard

import (
	"mime"
	"strings"
)

// JSON finds the field of a JSON object in the body. JSON panics if path is not a list
// of names with dots between them.
func (p Package) JSON(path string) Source {
	field := p.named("JSON field", path).JSON("body")
	return func(c Carrier) (string, error) {
		if !isJSON(c.Request().Header.Get("Content-Type")) {
			return "", p.sourceOf("content type").Bad("is not JSON")
		}
		data, err := readBody(c, c.Limit())
		if err != nil {
			return "", err
		}
		return field(data)
	}
}

// isJSON reports whether a handler that follows the content type reads the body as
// JSON. Without a content type, neither gin's binders nor net/http read the body as a
// form.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}
