package httpmw_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
)

func TestJSON(t *testing.T) { onEach(t, testJSON) }

func testJSON(t *testing.T, mw framework) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		path        string // "id" if empty
		contentType string // "application/json" if empty, "none" for no header
		body        string
		want        string // the value that is locked, or
		detail      string // what the 400 says
	}{
		{name: "an integer", body: `{"x":[1,{"id":2}],"id":42}`, want: "42"},
		{name: "a string", body: ` {"id": "42"} `, want: "42"},
		{name: "a negative integer", body: `{"id":-7}`, want: "-7"},
		{name: "zero", body: `{"id":0}`, want: "0"},
		{name: "an integer above 2^53", body: `{"id":9007199254740993}`, want: "9007199254740993"},
		{name: "an integer above 2^64", body: `{"id":98765432109876543210987654321}`, want: "98765432109876543210987654321"},
		{name: "a string with what core.Key escapes", body: `{"id":"a:b{%}"}`, want: "a:b{%}"},
		{name: "a string with escapes", body: `{"\u0069d":"\u00e4\ud83d\ude00"}`, want: "ä😀"},
		{name: "a nested field", path: "order.ref.id", body: `{"id":1,"order":{"id":2,"ref":{"id":3}}}`, want: "3"},
		{name: "a body without content type", contentType: "none", body: `{"id":1}`, want: "1"},
		{name: "a body with charset", contentType: "application/json; charset=utf-8", body: `{"id":1}`, want: "1"},
		{name: "a body of a JSON dialect", contentType: "application/vnd.api+json", body: `{"id":1}`, want: "1"},
		{name: "fields that are repeated elsewhere", body: `{"x":1,"x":2,"y":{"id":1,"id":2},"id":3}`, want: "3"},

		{name: "a field that is missing", body: `{"order_id":1}`, detail: `JSON field "id" is missing`},
		{name: "a field in another case", body: `{"ID":1}`, detail: `JSON field "id" is missing`},
		{name: "a nested field whose object is missing", path: "order.id", body: `{"id":1}`, detail: `JSON field "order" is missing`},
		{name: "a nested field in an array", path: "order.id", body: `{"order":[{"id":1}]}`, detail: "is not in an object"},
		{name: "a nested field in null", path: "order.id", body: `{"order":null}`, detail: "is not in an object"},
		{name: "a nested field in a string", path: "order.id", body: `{"order":"x"}`, detail: "is not in an object"},
		{name: "a field that is repeated", body: `{"id":1,"id":2}`, detail: "is there more than once"},
		{name: "a field that is repeated with one value", body: `{"id":1,"id":1}`, detail: "is there more than once"},
		{name: "a field that is repeated in another case", body: `{"id":1,"Id":2}`, detail: "is there more than once"},
		{name: "a field that is repeated with an escape", body: `{"id":1,"\u0069d":2}`, detail: "is there more than once"},
		{name: "a field that is repeated as decoders fold case", path: "sku", body: `{"sku":1,"ſKU":2}`, detail: "is there more than once"},
		{name: "an object on the way that is repeated", path: "order.id", body: `{"order":{"id":1},"Order":{"id":2}}`, detail: "is there more than once"},
		{name: "null", body: `{"id":null}`, detail: "is neither a string nor an integer"},
		{name: "true", body: `{"id":true}`, detail: "is neither a string nor an integer"},
		{name: "an object", body: `{"id":{"a":1}}`, detail: "is neither a string nor an integer"},
		{name: "an array", body: `{"id":[1]}`, detail: "is neither a string nor an integer"},
		{name: "an empty string", body: `{"id":""}`, detail: "is empty"},
		{name: "a string with a control character", body: `{"id":"a\u0000b"}`, detail: "contains a control character"},
		{name: "a string with the separator of parts", body: `{"id":"a\u001fb"}`, detail: "contains a control character"},
		{name: "a string that is too long", body: `{"id":"` + strings.Repeat("x", 513) + `"}`, detail: "is too long"},
		{name: "an integer that is too long", body: `{"id":1` + strings.Repeat("0", 513) + `}`, detail: "is too long"},
		{name: "a number with an exponent", body: `{"id":1e2}`, detail: "is not written as an integer"},
		{name: "a number with a large exponent", body: `{"id":1E2}`, detail: "is not written as an integer"},
		{name: "a number with a point", body: `{"id":1.0}`, detail: "is not written as an integer"},
		{name: "minus zero", body: `{"id":-0}`, detail: "is not written as an integer"},
		{name: "a number with leading zeros", body: `{"id":01}`, detail: "is not valid JSON"},
		{name: "an empty body", body: "", detail: "is not valid JSON"},
		{name: "half an object", body: `{"id":1`, detail: "is not valid JSON"},
		{name: "a comma too many", body: `{"id":1,}`, detail: "is not valid JSON"},
		{name: "a second object", body: `{"id":1}{"id":2}`, detail: "is not valid JSON"},
		{name: "something after the object", body: `{"id":1} x`, detail: "is not valid JSON"},
		{name: "a byte order mark", body: "\ufeff" + `{"id":1}`, detail: "is not valid JSON"},
		{name: "a string that is no UTF-8", body: "{\"id\":\"a\xff\"}", detail: "is not valid JSON"},
		{name: "an array of objects", body: `[{"id":1}]`, detail: "is not in an object"},
		{name: "a lone number", body: `1`, detail: "is not in an object"},
		{name: "a deep nest", body: strings.Repeat("[", 100_000), detail: "is not valid JSON"},
		{name: "JSON sent as a form", contentType: formType, body: `{"id":"a","x":"&id=b&"}`, detail: "Content type is not JSON"},
		{name: "JSON sent as YAML", contentType: "application/yaml", body: `{"id":"a"}`, detail: "Content type is not JSON"},
		{name: "a content type that is none", contentType: "json;;", body: `{"id":"a"}`, detail: "Content type is not JSON"},
	} {
		t.Run(c.name+verdict(c.detail), func(t *testing.T) {
			t.Parallel()
			s := mw.newSite(t)
			path, contentType := "id", []string{"Content-Type", "application/json"}
			if c.path != "" {
				path = c.path
			}
			switch c.contentType {
			case "":
			case "none":
				contentType = nil
			default:
				contentType[1] = c.contentType
			}
			s.POST("/", mw.Lock(s.locker, "order", mw.JSON(path)), ok)
			r := s.send("POST", "/", c.body, contentType...)
			if c.detail == "" {
				if want := core.Key("order", c.want); r.status != http.StatusOK || r.body != want {
					t.Errorf("got %d %q, want the key %q", r.status, r.body, want)
				}
				return
			}
			if detail, _ := r.problem(t, http.StatusBadRequest)["detail"].(string); !strings.Contains(detail, c.detail) {
				t.Errorf("the detail is %q, want %q in it", detail, c.detail)
			}
		})
	}

	t.Run("a path of another language is refused when the middleware is made", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"$.id", "$", "items[0].id", "items[*].id", "items.*.id", "$['id']", "order.$", "", "a..b", ".a", "a."} {
			wantPanic(t, path, "JSON", func() { mw.JSON(path) })
		}
		for _, path := range []string{"id", "_id.$oid", "$id", "items.0.id", "a-b.c d", "@id", "*id"} {
			mw.JSON(path)
		}
	})

	t.Run("order IDs above 2^53 do not share a lock, and 123 and \"123\" do", func(t *testing.T) {
		t.Parallel()
		s, inside, finish := mw.newSite(t), make(chan string), make(chan struct{})
		s.POST("/pay", mw.Lock(s.locker, "order", mw.JSON("order.id")), func(c *gin.Context) {
			lease, _ := core.LeaseFromContext(c.Request.Context())
			inside <- lease.Key()
			<-finish
		})
		pay := func(id string) reply {
			return s.send("POST", "/pay", `{"order":{"id":`+id+`}}`, "Content-Type", "application/json")
		}
		var wg sync.WaitGroup
		for _, id := range []string{"9007199254740992", "9007199254740993", "123"} {
			wg.Go(func() {
				if r := pay(id); r.status != http.StatusOK {
					t.Errorf("%s: got %d %q", id, r.status, r.body)
				}
			})
			if key := within(t, id+" is being paid", inside); key != "order:"+id {
				t.Errorf("locked %q for %s", key, id)
			}
		}
		for _, id := range []string{"9007199254740992", "9007199254740993", `"9007199254740993"`, "123", `"123"`} {
			if r := pay(id); r.status != http.StatusConflict {
				t.Errorf("%s again: got %d, want 409", id, r.status)
			}
		}
		close(finish)
		wg.Wait()
	})
}

// FuzzJSON looks for a body whose key is not what a handler decodes.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"id":1}`, `{"id":"1"}`, `{"id":1,"ID":2}`, `{"id":9007199254740993}`, `{"\u0069d":"x"}`, `{"id":"\ud800"}`,
		`{"id":1}{"id":2}`, `{"id":{"id":1}}`, `[1]`, ``, `{"id":null,"İd":1}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(body))
	}
	l, err := core.New(memstore.New())
	if err != nil {
		f.Fatal(err)
	}
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	engine.POST("/", onGin.Lock(l, "order", onGin.JSON("id"), onGin.Acquire(core.Wait(time.Minute))), func(c *gin.Context) {
		var in struct{ ID json.RawMessage }
		if err := c.ShouldBindJSON(&in); err != nil {
			c.String(http.StatusTeapot, "the handler cannot decode it: %v", err)
			return
		}
		id := string(in.ID)
		if strings.HasPrefix(id, `"`) {
			if err := json.Unmarshal(in.ID, &id); err != nil {
				c.String(http.StatusTeapot, "the handler cannot decode %s: %v", in.ID, err)
				return
			}
		}
		if lease, _ := core.LeaseFromContext(c.Request.Context()); lease.Key() != core.Key("order", id) {
			c.String(http.StatusTeapot, "locked %q for %q", lease.Key(), id)
		}
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(string(body))))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%q: got %d %s", body, w.Code, w.Body)
		}
	})
}
