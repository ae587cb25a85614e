package httpmw

import (
	"crypto/sha256"
	"mime"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"
)

// fingerprintOf is what tells a request that is sent again from another one
// under the same key: method and path with what of says, or with query, media
// type and body if of is nil.
func fingerprintOf(c *gin.Context, of KeyFunc, limit int64) ([]byte, error) {
	if of != nil {
		value, err := of(c)
		if err != nil {
			return nil, err
		}
		return digest(c.Request, "part", value, nil), nil
	}
	data, err := readBody(c, limit)
	if err != nil {
		return nil, err
	}
	return digest(c.Request, "whole", mediaType(c.Request), data), nil
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
