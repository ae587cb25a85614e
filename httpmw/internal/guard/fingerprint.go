package guard

import (
	"crypto/sha256"
	"errors"
	"mime"
	"net/http"
	"net/url"
)

// fingerprintOf is what tells a request that is sent again from another one
// under the same key: method and path with what of says, or with query, media
// type and body if of is nil.
func fingerprintOf(x Exchange, of KeyFunc, limit int64) ([]byte, error) {
	if of != nil {
		value, err := of(x)
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, sourceOf("fingerprint").Bad("is empty")
		}
		return digest(x.Request(), "part", value, nil), nil
	}
	data, err := readBody(x, limit)
	if err == nil && len(data) == 0 {
		data, err = formerBody(x.Request())
	}
	if err != nil {
		return nil, err
	}
	return digest(x.Request(), "whole", mediaType(x.Request()), data), nil
}

// errBodyGone says that a request cannot be told from another one.
var errBodyGone = errors.New("httpmw: the body was read before Idempotent could: mount it outside of what reads it, or have that use ShouldBindBodyWith, or set Fingerprint")

// formerBody is what was in a body that reads as empty: the form that was parsed from
// it. It fails if there was a body whose contents are not known.
func formerBody(r *http.Request) ([]byte, error) {
	switch {
	case r.MultipartForm != nil:
		return nil, errBodyGone // files cannot be compared without reading them again
	case len(r.PostForm) > 0:
		return []byte(r.PostForm.Encode()), nil
	case r.ContentLength > 0 && r.Body != nil && r.Body != http.NoBody:
		return nil, errBodyGone
	}
	return nil, nil
}

// digest is the SHA-256 of all that. Each part but the last has its length before
// it, so that nothing can run into its neighbour.
func digest(r *http.Request, kind, value string, data []byte) []byte {
	path, query := r.URL.EscapedPath(), ""
	if kind == "whole" {
		query = canonicalQuery(r.URL.RawQuery)
	}
	head := make([]byte, 0, 64+len(path)+len(query)+len(value))
	for _, part := range [...]string{kind, r.Method, path, query, value} {
		head = appendString(head, part)
	}
	h := sha256.New()
	_, _ = h.Write(head)
	_, _ = h.Write(data)
	return h.Sum(nil)
}

// canonicalQuery is the query in the order of its names. The order of one name's
// values may mean something, and stays.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "?" + raw // parsed, it would lack what is malformed
	}
	return query.Encode()
}

// mediaType is the content type without its parameters, and as it is if it
// cannot be read.
func mediaType(r *http.Request) string {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || contentType == "application/json" {
		return contentType
	}
	if media, _, err := mime.ParseMediaType(contentType); err == nil {
		return media
	}
	return contentType
}
