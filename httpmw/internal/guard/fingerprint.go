package guard

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// fingerprintOf returns the fingerprint that distinguishes a duplicate from another
// request under the same key. The fingerprint covers method and path, and the result of
// the function of. If of is nil, query, media type and body replace that result. A form
// counts by its fields, a multipart body by its parts, and any other body by its bytes.
func fingerprintOf(x Exchange, of KeyFunc, limit int64) ([]byte, error) {
	if of != nil {
		value, err := of(x)
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, x.Package().sourceOf("fingerprint").Bad("is empty")
		}
		return digest(x.Request(), "part", value, nil), nil
	}
	data, err := readBody(x, limit)
	if err == nil && len(data) == 0 {
		data, err = formerBody(x.Request())
		err = x.Package().wrap(err)
	}
	if err != nil {
		return nil, err
	}
	media, boundary := mediaType(x.Request())
	if media == formType {
		return digest(x.Request(), "whole", media, []byte(canonicalQuery(string(data)))), nil
	}
	if parts, ok := partsOf(data, boundary); ok {
		return digest(x.Request(), "parts", media, parts), nil
	}
	return digest(x.Request(), "whole", media, data), nil
}

const formType = "application/x-www-form-urlencoded"

// partsOf returns the relevant contents of a multipart body: the header of each part
// and the digest of its content, in their order. The boundary is not relevant, because
// a client chooses another boundary for each body. ok is false for a body that is not
// multipart, is malformed, or has more than maxParts.
func partsOf(data []byte, boundary string) (parts []byte, ok bool) {
	// multipart.Reader accepts a body that ends within a header as complete.
	delimiter := []byte("--" + boundary)
	last := bytes.LastIndex(data, delimiter)
	if boundary == "" || last < 0 || !bytes.HasPrefix(data[last+len(delimiter):], []byte("--")) {
		return nil, false
	}
	content, buffer := sha256.New(), make([]byte, min(len(data), 32<<10)) // for all parts
	r := multipart.NewReader(bytes.NewReader(data), boundary)
	for range maxParts + 1 {
		part, err := r.NextRawPart()
		if err == io.EOF {
			return parts, true
		}
		if err != nil {
			return nil, false
		}
		parts = binary.AppendUvarint(parts, uint64(len(part.Header)))
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			parts = binary.AppendUvarint(appendString(parts, name), uint64(len(part.Header[name])))
			for _, value := range part.Header[name] {
				parts = appendString(parts, value)
			}
		}
		content.Reset()
		if _, err := io.CopyBuffer(content, part, buffer); err != nil {
			return nil, false
		}
		parts = content.Sum(parts)
	}
	return nil, false
}

// maxParts is the maximum number of parts of a multipart body that is compared by its
// parts. Package mime/multipart has the same limit for a form. A part takes a kilobyte
// of memory while it is read.
const maxParts = 1000

// errBodyGone is returned when an outer handler has read the body, so two requests
// cannot be distinguished.
var errBodyGone = errors.New("the body was read before Idempotent could: mount it outside of what reads it, or have that use ShouldBindBodyWith, or set Fingerprint")

// formerBody returns the form that an outer handler has parsed from the body. It fails
// if an outer handler has read a body from which no form is left.
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

// digest returns the SHA-256 of its arguments. Each part except the last is preceded by
// its length, so different parts give different data.
func digest(r *http.Request, kind, value string, data []byte) []byte {
	path, query := r.URL.EscapedPath(), ""
	if kind != "part" {
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

// canonicalQuery returns the query in the order of its names. The order of one name's
// values stays, because that order can have a meaning.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "?" + raw // after parsing, the malformed parts would be missing
	}
	return query.Encode()
}

// mediaType returns the content type without its parameters, or unchanged if it is
// malformed. boundary is the boundary of a multipart body.
func mediaType(r *http.Request) (media, boundary string) {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || contentType == "application/json" {
		return contentType, ""
	}
	media, params, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return contentType, ""
	case strings.HasPrefix(media, "multipart/"):
		return media, params["boundary"]
	}
	return media, ""
}
