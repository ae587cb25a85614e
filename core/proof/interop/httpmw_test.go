package interop_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw"
)

// ofNetHTTP is the option that also stores the headers of net/http's own responses.
var ofNetHTTP = httpmw.KeepHeaders("Accept-Ranges", "X-Content-Type-Options")

// TestAnswers_OuterWriter checks that the client receives the same response with and
// without Idempotent, for every outer middleware and every handler. A replay may have
// the differences that evened removes.
func TestAnswers_OuterWriter(t *testing.T) {
	t.Parallel()
	for name, middleware := range outside {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, answer := range answers {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, middleware)
					s.POST("/bare", answer)
					s.POST("/once", httpmw.Idempotent(s.once, httpmw.AnyCaller(), ofNetHTTP), answer)
					bare := s.post("/bare", "")
					if d := different(s.post("/once", "", "Idempotency-Key", "k"), bare); d != "" {
						t.Errorf("the first answer: %s", d)
					}
					again := s.post("/once", "", "Idempotency-Key", "k")
					if status, ok := notKept[kind]; ok {
						if again.status != status || again.header.Get("Idempotent-Replayed") != "" {
							t.Errorf("the second answer is %d %v", again.status, again.header)
						}
						return
					}
					if again.header.Get("Idempotent-Replayed") != "true" {
						t.Error("the second answer is no replay")
					}
					again.header.Del("Idempotent-Replayed")
					again = evened(again, bare, name, kind)
					if d := different(again, bare); d != "" {
						t.Errorf("the replay: %s", d)
					}
				})
			}
		})
	}
}

// evened returns a replay without its intended differences from the bare response. A
// replay is not flushed before its end, has a length if no outer middleware can change
// the length, and has the headers of the first write.
func evened(replay, bare reply, outside, kind string) reply {
	switch {
	case strings.HasPrefix(kind, "a flush") && replay.status == bare.status && replay.text() == bare.text():
		return bare
	case strings.HasPrefix(kind, "flushed") && replay.text() == bare.text():
		replay.body = bare.body
		if bare.chunked {
			replay.header.Del("Content-Length")
			replay.length, replay.chunked = -1, true
		}
	case outside == "no middleware" && bare.chunked && replay.header.Get("Content-Length") == fmt.Sprint(len(bare.body)):
		replay.header.Del("Content-Length")
		replay.length, replay.chunked = -1, true
	case outside == buffered && kind == "headers and status after it":
		replay.header.Set("Link", "</2>; rel=b")
		replay.header.Set("Content-Language", "de")
	}
	return replay
}

// refusals are requests that the kit refuses, each with the route that it needs.
var refusals = map[string]struct {
	status int
	mount  func(s *site, path string)
	ask    func(s *site, path string) reply
}{
	"a key that is missing": {
		http.StatusBadRequest,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), paid) },
		func(s *site, path string) reply { return s.post(path, "") },
	},
	"a body that is too long": {
		http.StatusRequestEntityTooLarge,
		func(s *site, path string) {
			s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller(), httpmw.BodyLimit(10)), paid)
		},
		func(s *site, path string) reply { return s.post(path, "more than ten", "Idempotency-Key", "k") },
	},
	"another request under the key": {
		http.StatusUnprocessableEntity,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), paid) },
		func(s *site, path string) reply {
			s.post(path, "one", "Idempotency-Key", "k")
			return s.post(path, "two", "Idempotency-Key", "k")
		},
	},
	"response too long to store": {
		http.StatusGone,
		func(s *site, path string) {
			s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller(), httpmw.AnswerLimit(2)), paid)
		},
		func(s *site, path string) reply {
			s.post(path, "", "Idempotency-Key", "k")
			return s.post(path, "", "Idempotency-Key", "k")
		},
	},
	"a Locker that is closed": {
		http.StatusServiceUnavailable,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), paid) },
		func(s *site, path string) reply {
			if err := s.locker.Close(s.t.Context()); err != nil {
				s.t.Error(err)
			}
			return s.post(path, "", "Idempotency-Key", "k")
		},
	},
	"a lock that is busy": {
		http.StatusConflict,
		func(s *site, path string) { s.POST(path, lock(s), paid) },
		func(s *site, path string) reply {
			defer s.hold("order:5")()
			return s.post(path, `{"id":"5"}`)
		},
	},
	"a lock inside that is busy": {
		http.StatusConflict,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), lock(s), paid) },
		func(s *site, path string) reply {
			defer s.hold("order:5")()
			return s.post(path, `{"id":"5"}`, "Idempotency-Key", "k")
		},
	},
	"missing key of an inner lock": {
		http.StatusBadRequest,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), lock(s), paid) },
		func(s *site, path string) reply { return s.post(path, `{}`, "Idempotency-Key", "k") },
	},
	"missing inner key again": {
		http.StatusBadRequest,
		func(s *site, path string) { s.POST(path, httpmw.Idempotent(s.once, httpmw.AnyCaller()), lock(s), paid) },
		func(s *site, path string) reply {
			s.post(path, `{}`, "Idempotency-Key", "k")
			again := s.post(path, `{}`, "Idempotency-Key", "k")
			again.header.Del("Idempotent-Replayed")
			return again
		},
	},
}

func paid(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"receipt": "r-1"}) }

func lock(s *site) gin.HandlerFunc { return httpmw.Lock(s.locker, "order", httpmw.JSON("id")) }

// hold holds key until the returned function is called.
func (s *site) hold(key string) (release func()) {
	s.t.Helper()
	lease, err := s.locker.Acquire(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := lease.Release(context.WithoutCancel(s.t.Context())); err != nil {
			s.t.Error(err)
		}
	}
}

// problem is the body of a problem response, which gin renders without the kit.
type problem string

func (p problem) Render(w http.ResponseWriter) error {
	p.WriteContentType(w)
	_, err := w.Write([]byte(p))
	return err
}

func (problem) WriteContentType(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
}

func TestRefusals_OuterWriter(t *testing.T) {
	t.Parallel()
	for kind, refusal := range refusals {
		plain := newSite(t, outside["no middleware"])
		refusal.mount(plain, "/kit")
		want := refusal.ask(plain, "/kit")
		if want.status != refusal.status {
			t.Errorf("%s: got %d %q, want %d", kind, want.status, want.body, refusal.status)
		}
		for name, middleware := range outside {
			t.Run(kind+" under "+name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, middleware)
				refusal.mount(s, "/kit")
				s.POST("/bare", func(c *gin.Context) {
					if after := want.header.Get("Retry-After"); after != "" {
						c.Header("Retry-After", after)
					}
					for _, name := range []string{"Content-Language", "Link"} {
						c.Header(name, want.header.Get(name))
					}
					c.Render(want.status, problem(want.body))
				})
				bare := s.post("/bare", "")
				if d := different(refusal.ask(s, "/kit"), bare); d != "" {
					t.Error(d)
				}
			})
		}
	}
}
