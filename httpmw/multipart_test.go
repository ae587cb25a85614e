package httpmw_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
)

// field is one part of a multipart body.
type field struct{ name, file, kind, text string }

// bodyOf returns a request with a multipart body of fields, with this boundary.
func bodyOf(t *testing.T, boundary string, fields ...field) request {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q`, f.name)}}
		if f.file != "" {
			h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, f.name, f.file))
		}
		if f.kind != "" {
			h.Set("Content-Type", f.kind)
		}
		p, err := w.CreatePart(h)
		if err == nil {
			_, err = p.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return request{"POST", "/", b.String(), w.FormDataContentType()}
}

func TestFingerprint_HonestRetries(t *testing.T) { onEachKey(t, testHonestRetries) }

func testHonestRetries(t *testing.T, mw framework) {
	t.Parallel()
	amount, scan := field{"amount", "", "", "5"}, field{"scan", "scan.png", "image/png", "PNG!"}
	first := bodyOf(t, "one", amount, scan)
	with := func(amount, scan field) request { return bodyOf(t, "two", amount, scan) }
	body := func(contentType, text string) request { return request{"POST", "/", text, contentType} }
	form := body("application/x-www-form-urlencoded", "a=1&b=2&a=3")
	for _, c := range []struct {
		name         string
		first, other request
		same         bool
	}{
		{"another boundary", first, bodyOf(t, "two", amount, scan), true},
		{"a boundary in quotes", first, bodyOf(t, "two words", amount, scan), true},
		{"a preamble", first, body(first.contentType, "hello\r\n"+first.body), true},
		{"another field name", first, with(field{"Amount", "", "", "5"}, scan), false},
		{"another text", first, with(field{"amount", "", "", "6"}, scan), false},
		{"another file name", first, with(amount, field{"scan", "b.png", "image/png", "PNG!"}), false},
		{"another part type", first, with(amount, field{"scan", "scan.png", "image/jpeg", "PNG!"}), false},
		{"another content", first, with(amount, field{"scan", "scan.png", "image/png", "PNG?"}), false},
		{"another order", first, bodyOf(t, "two", scan, amount), false},
		{"a part more", first, bodyOf(t, "two", amount, scan, amount), false},
		{"a part less", first, bodyOf(t, "two", amount), false},
		{"text moved to the next part", bodyOf(t, "one", field{"a", "", "", "xy"}, field{"b", "", "", "z"}), bodyOf(t, "two", field{"a", "", "", "x"}, field{"b", "", "", "yz"}), false},
		{"multipart of another type", first, body(strings.Replace(first.contentType, "form-data", "mixed", 1), first.body), false},
		{"malformed body", body(first.contentType, first.body[:40]), body(first.contentType, first.body[:40]), true},
		{"malformed with other bytes", body(first.contentType, first.body[:40]), body(first.contentType, first.body[:41]), false},
		{"without an end", first, body(first.contentType, strings.TrimSuffix(first.body, "--one--\r\n")), false},
		{"no boundary", body("multipart/form-data", first.body), body("multipart/form-data", first.body), true},
		{"no boundary with other bytes", body("multipart/form-data", "a"), body("multipart/form-data", "b"), false},
		{"a form in another order", form, body(form.contentType, "b=2&a=1&a=3"), true},
		{"a form in another spelling", form, body(form.contentType+"; charset=utf-8", "%61=1&b=2&a=3"), true},
		{"values in another order", form, body(form.contentType, "a=3&b=2&a=1"), false},
		{"a form with another value", form, body(form.contentType, "a=1&b=2&a=4"), false},
		{"a malformed form", body(form.contentType, "a=%zz&b=2"), body(form.contentType, "b=2&a=%zz"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
			c.first.sendTo(s, "k")
			r := c.other.sendTo(s, "k")
			if !c.same {
				p := r.problem(t, http.StatusUnprocessableEntity)
				if detail := fmt.Sprint(p["detail"]); !strings.Contains(detail, "may have been carried out") || strings.Contains(detail, "Use a new key") {
					t.Errorf("got the detail %q, want what is safe", detail)
				}
			}
			if c.same != r.isReplay() || runs.Load() != 1 {
				t.Errorf("got %d %q after %d runs, want a replay: %v", r.status, r.body, runs.Load(), c.same)
			}
		})
	}
	t.Run("the handler reads the form", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			file, _, err := c.Request.FormFile("scan")
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			data, err := io.ReadAll(file)
			c.String(http.StatusOK, "%s %s", c.PostForm("amount"), data)
			if err != nil {
				t.Error(err)
			}
		})
		if r := first.sendTo(s, "k"); r.body != "5 PNG!" {
			t.Errorf("got %d %q, want the form's values", r.status, r.body)
		}
	})
}
