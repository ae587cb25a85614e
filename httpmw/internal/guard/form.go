package guard

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// Form finds the field of a form in the body.
func (p Package) Form(name string) Source {
	s := p.named("form field", name)
	return func(c Carrier) (string, error) {
		form, err := formOf(c)
		if err != nil {
			return "", err
		}
		return only(s, form[name])
	}
}

// formOf returns the form in the body, and does not change the form fields of the
// request.
func formOf(c Carrier) (url.Values, error) {
	r := c.Request()
	contentType := r.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(contentType)
	multipart := media == "multipart/form-data"
	if r.PostForm != nil && (!multipart || r.MultipartForm != nil) {
		return r.PostForm, nil // the form was parsed before, and the body is gone
	}
	data, err := readBody(c, c.Limit())
	if err != nil {
		return nil, err
	}
	again := &http.Request{
		Method: r.Method, // only some methods have a form
		URL:    &url.URL{},
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(bytes.NewReader(data)),
	}
	err = again.ParseForm()
	if err == nil && multipart {
		err = again.ParseMultipartForm(int64(len(data)))
	}
	if again.MultipartForm != nil {
		_ = again.MultipartForm.RemoveAll()
	}
	if err != nil {
		return nil, c.Package().sourceOf("form").Bad("is malformed")
	}
	return again.PostForm, nil
}

// TakeForm copies to r the form that was parsed from its copy. The server removes
// temporary files only for its own request, and not for copies.
func TakeForm(r, parsed *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = parsed.MultipartForm
	}
	if r.PostForm == nil {
		r.PostForm = parsed.PostForm
	}
	if r.Form == nil {
		r.Form = parsed.Form
	}
}
