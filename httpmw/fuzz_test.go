package httpmw_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw"
)

// FuzzForm checks that the key of a form is the single value that a handler finds after
// the middleware. Other forms have no key.
func FuzzForm(f *testing.F) {
	const multipart = "multipart/form-data; boundary=b"
	for _, body := range []string{
		"id=1", "id=1&id=2", "id=%31", "id=1;id=2", "%69d=1", "id", "id=", "=1", "id=1&x=%", "ID=1", "id=a+b", "id=\xff", "id=1&&x", "id[]=1",
	} {
		f.Add(formType, body)
	}
	for _, body := range []string{
		"--b\r\nContent-Disposition: form-data; name=id\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name=\"id\"; filename=\"x\"\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name=id\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=id\r\n\r\n2\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name*=utf-8''id\r\n\r\n1\r\n--b--", "--b\r\n\r\n1", "--b--", "",
	} {
		f.Add(multipart, body)
	}
	f.Add("multipart/form-data", "--b--")
	f.Add(multipart+"; boundary=c", "--c--")
	engine := gin.New()
	f.Fuzz(func(t *testing.T, contentType, body string) {
		c := gin.CreateTestContextOnly(httptest.NewRecorder(), engine)
		c.Request = httptest.NewRequest(http.MethodPost, "/?id=query", strings.NewReader(body))
		c.Request.Header.Set("Content-Type", contentType)
		key, err := httpmw.Form("id")(c)
		if err != nil {
			if key != "" || !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("%q, %q gives %q, %v", contentType, body, key, err)
			}
			return
		}
		if key == "" || len(key) > 512 || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
			t.Fatalf("%q, %q gives %q", contentType, body, key)
		}
		if found := c.PostFormArray("id"); len(found) != 1 || found[0] != key {
			t.Fatalf("%q, %q gives %q, and the handler finds %q", contentType, body, key, found)
		}
	})
}
