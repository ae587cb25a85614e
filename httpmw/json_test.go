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
		want        string // the value that is locked, unless the request is refused
		detail      string // the expected detail of the 400 of a refused request
	}{
		{name: "an integer", body: `{"x":[1,{"id":2}],"id":42}`, want: "42"},
		{name: "a nested field", path: "order.ref.id", body: `{"id":1,"order":{"id":2,"ref":{"id":3}}}`, want: "3"},
		{name: "a body without content type", contentType: "none", body: `{"id":1}`, want: "1"},
		{name: "a body with charset", contentType: "application/json; charset=utf-8", body: `{"id":1}`, want: "1"},
		{name: "a body of a JSON dialect", contentType: "application/vnd.api+json", body: `{"id":1}`, want: "1"},

		{name: "a field that is missing", body: `{"order_id":1}`, detail: `JSON field "id" is missing`},
		{name: "field repeated in another case", body: `{"id":1,"Id":2}`, detail: "is there more than once"},
		{name: "a string with a control character", body: `{"id":"a\u0000b"}`, detail: "contains a control character"},
		{name: "a second object", body: `{"id":1}{"id":2}`, detail: "is not valid JSON"},
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

	// Order IDs above 2^53 do not share a lock. 123 and "123" do.
	t.Run("IDs beyond floats", func(t *testing.T) {
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

// FuzzJSON searches for a body whose key differs from the value that a handler decodes.
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
