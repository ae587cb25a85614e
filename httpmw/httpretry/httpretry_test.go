package httpretry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/retry"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(serviceEnv); what != "" {
		serveForParent(what)
		return
	}
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

const host = "pay.example"

// answer is the response of a peer to one try.
type answer struct {
	status int // 0 means that err is returned
	header http.Header
	body   string
	err    error
	hang   bool // the try hangs until its context is done
	cut    bool // the body ends in its middle
}

var (
	errNet = errors.New("connection reset")
	lost   = answer{err: errNet}
	paid   = answer{status: 201, body: "receipt"}
)

// problem returns a refusal in the form of stdmw's refusals.
func problem(status int, kind string, header ...string) answer {
	a := answer{status: status, body: fmt.Sprintf(`{"type":"https://pay.example/problems/%s","status":%d}`, kind, status), header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		a.header.Set(header[i], header[i+1])
	}
	return a
}

// peer is a server in memory. It returns its answers one after the other, and then
// repeats the last answer.
type peer struct {
	answers []answer
	keys    [][]string
	bodies  []string
	times   []time.Duration // the time of each try, counted from the first try
	began   time.Time
	open    atomic.Int64 // bodies of requests and responses that are not closed
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(p.times) == 0 {
		p.began = time.Now()
	}
	p.times = append(p.times, time.Since(p.began))
	p.keys = append(p.keys, r.Header["Idempotency-Key"])
	if r.Body != nil {
		sent, _ := io.ReadAll(r.Body)
		p.bodies = append(p.bodies, string(sent))
		_ = r.Body.Close()
	}
	a := p.answers[min(len(p.times), len(p.answers))-1]
	if a.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if a.status == 0 {
		return nil, a.err
	}
	p.open.Add(1)
	body := io.Reader(strings.NewReader(a.body))
	if a.cut {
		body = io.MultiReader(strings.NewReader(a.body[:len(a.body)/2]), broken{})
	}
	header := a.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: a.status, Header: header, Body: &counted{Reader: body, open: &p.open}, Request: r}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// counted is a body that is counted as open until it is closed.
type counted struct {
	io.Reader
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return nil
}

// post returns a request with the method and the host of the tests.
func post(ctx context.Context, t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/pay", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newTransport returns a transport that covers the host of post.
func newTransport(base http.RoundTripper, opts ...httpretry.Option) http.RoundTripper {
	quick := httpretry.Retry(retry.Policy{Initial: 10 * time.Millisecond, Attempts: 4})
	return httpretry.New(base, append([]httpretry.Option{httpretry.Hosts(host), quick}, opts...)...)
}

func TestTries(t *testing.T) {
	t.Parallel()
	const second = time.Second
	date := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return date.Add(d).Format(http.TimeFormat) }
	busy := problem(409, "idempotency-in-progress", "Retry-After", "1")
	one := func(a ...answer) []answer { return a }
	for name, c := range map[string]struct {
		answers  []answer
		opts     []httpretry.Option
		deadline time.Duration
		tries    int
		status   int  // status of the response; 0 means an error
		unknown  bool // the error is an UnknownError
		gap      time.Duration
		took     time.Duration // the maximum time of all tries
	}{
		"a response ends it":             {answers: one(paid), tries: 1, status: 201},
		"a lost try is made again":       {answers: one(lost, paid), tries: 2, status: 201},
		"lost tries are unknown":         {answers: one(lost), tries: 4, unknown: true},
		"None is one try":                {answers: one(lost, paid), opts: []httpretry.Option{httpretry.Retry(retry.None)}, tries: 1, unknown: true},
		"408 is made again":              {answers: one(problem(408, ""), paid), tries: 2, status: 201},
		"425 is made again":              {answers: one(problem(425, ""), paid), tries: 2, status: 201},
		"429 is made again":              {answers: one(problem(429, ""), paid), tries: 2, status: 201},
		"502 is made again":              {answers: one(problem(502, ""), paid), tries: 2, status: 201},
		"503 is made again":              {answers: one(problem(503, ""), paid), tries: 2, status: 201},
		"504 is made again":              {answers: one(problem(504, ""), paid), tries: 2, status: 201},
		"409 in progress is made again":  {answers: one(busy, busy, paid), tries: 3, status: 201, gap: second},
		"409 busy is made again":         {answers: one(problem(409, "lock-busy"), paid), tries: 2, status: 201},
		"409 indeterminate is final":     {answers: one(problem(409, "idempotency-indeterminate", "Retry-After", "1"), paid), tries: 1, status: 409},
		"409 of another kind is final":   {answers: one(problem(409, "out-of-stock", "Retry-After", "1"), paid), tries: 1, status: 409},
		"409 without a problem is final": {answers: one(answer{status: 409, body: "in progress"}, paid), tries: 1, status: 409},
		"409 cut is final":               {answers: one(answer{status: 409, body: busy.body, cut: true}, paid), tries: 1, status: 409},
		"503 cut is made again":          {answers: one(answer{status: 503, body: busy.body, cut: true}, paid), tries: 2, status: 201},
		"422 is final":                   {answers: one(problem(422, "idempotency-mismatch", "Retry-After", "1"), paid), tries: 1, status: 422},
		"410 is final":                   {answers: one(problem(410, "idempotency-unreplayable"), paid), tries: 1, status: 410},
		"400 is final":                   {answers: one(problem(400, "idempotency-key-invalid"), paid), tries: 1, status: 400},
		"402 is final":                   {answers: one(problem(402, "declined"), paid), tries: 1, status: 402},
		"500 is final":                   {answers: one(problem(500, "idempotency-failed"), paid), tries: 1, status: 500},
		"501 is final":                   {answers: one(problem(501, ""), paid), tries: 1, status: 501},
		"307 is final":                   {answers: one(problem(307, ""), paid), tries: 1, status: 307},
		"401 after a lost try":           {answers: one(lost, problem(401, "")), tries: 2, unknown: true},
		"401 after 504 is unknown":       {answers: one(problem(504, ""), problem(401, "")), tries: 2, unknown: true},
		"422 after a lost try":           {answers: one(lost, problem(422, "idempotency-mismatch")), tries: 2, unknown: true},
		"409 in progress to the end":     {answers: one(busy), tries: 4, unknown: true},
		"402 replayed after a lost try":  {answers: one(lost, problem(402, "declined", "Idempotent-Replayed", "true")), tries: 2, status: 402},
		"402 after 429 is final":         {answers: one(problem(429, ""), problem(402, "declined")), tries: 2, status: 402},
		"429 to the end":                 {answers: one(problem(429, "")), tries: 4, status: 429},
		"429 after a lost try":           {answers: one(lost, problem(429, "")), tries: 4, unknown: true},
		"503 to the end":                 {answers: one(lost, problem(503, "")), tries: 4, status: 503},
		"500 after a lost try":           {answers: one(lost, problem(500, "")), tries: 2, status: 500},

		"Retry-After in seconds":          {answers: one(problem(503, "", "Retry-After", "7"), paid), tries: 2, status: 201, gap: 7 * second, took: 7 * second},
		"Retry-After as a date":           {answers: one(problem(503, "", "Retry-After", at(7*second), "Date", at(0)), paid), tries: 2, status: 201, gap: 7 * second, took: 7 * second},
		"Retry-After as a past date":      {answers: one(problem(503, "", "Retry-After", at(-second), "Date", at(0)), paid), tries: 2, status: 201, took: second},
		"Retry-After that says nothing":   {answers: one(problem(503, "", "Retry-After", "soon"), paid), tries: 2, status: 201, took: second},
		"Retry-After below zero":          {answers: one(problem(503, "", "Retry-After", "-7"), paid), tries: 2, status: 201, took: second},
		"Retry-After beyond the deadline": {answers: one(problem(503, "", "Retry-After", "7"), paid), deadline: 7 * second, tries: 1, status: 503, took: time.Millisecond},
		"Retry-After beyond all numbers":  {answers: one(problem(503, "", "Retry-After", "99999999999999999999"), paid), deadline: 365 * 24 * time.Hour, tries: 1, status: 503, took: time.Millisecond},

		"no pause reaches the deadline":          {answers: one(busy), deadline: 2500 * time.Millisecond, tries: 3, unknown: true, took: 2 * second},
		"hung try uses up the deadline":          {answers: one(answer{hang: true}, paid), deadline: second, tries: 1, unknown: true, took: second},
		"with TryTimeout it is made again":       {answers: one(answer{hang: true}, paid), opts: []httpretry.Option{httpretry.TryTimeout(second)}, deadline: time.Minute, tries: 2, status: 201, gap: second},
		"hung tries with TryTimeout are unknown": {answers: one(answer{hang: true}), opts: []httpretry.Option{httpretry.TryTimeout(second)}, tries: 4, unknown: true, gap: second},
		"TryTimeout does not limit a pause":      {answers: one(busy, paid), opts: []httpretry.Option{httpretry.TryTimeout(100 * time.Millisecond)}, tries: 2, status: 201, gap: second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, start := t.Context(), time.Now()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				p := peer{answers: c.answers}
				resp, err := newTransport(&p, c.opts...).RoundTrip(post(ctx, t, strings.NewReader("5 euros")))
				took := time.Since(start)
				status, unknown := 0, new(httpretry.UnknownError)
				if err == nil {
					status = resp.StatusCode
					if _, err := io.ReadAll(resp.Body); err != nil != c.answers[0].cut && status != 201 {
						t.Errorf("the body: %v", err)
					}
					_ = resp.Body.Close()
				}
				if status != c.status || errors.As(err, &unknown) != c.unknown || len(p.times) != c.tries {
					t.Errorf("got %d, %v after %d tries, want %d after %d", status, err, len(p.times), c.status, c.tries)
				}
				if c.unknown && (unknown.Tries != c.tries || unknown.Key != p.keys[0][0] || strings.Contains(err.Error(), unknown.Key)) {
					t.Errorf("got %+v", *unknown)
				}
				for i := 1; i < len(p.times); i++ {
					if gap := p.times[i] - p.times[i-1]; gap < c.gap {
						t.Errorf("try %d came after %v, want at least %v", i+1, gap, c.gap)
					}
				}
				if c.took > 0 && took > c.took+100*time.Millisecond {
					t.Errorf("it took %v, want at most %v", took, c.took)
				}
				for i, key := range p.keys {
					if len(key) != 1 || key[0] != p.keys[0][0] || p.bodies[i] != "5 euros" {
						t.Errorf("try %d had key %q and body %q", i+1, key, p.bodies[i])
					}
				}
				if n := p.open.Load(); n != 0 {
					t.Errorf("%d bodies are not closed", n)
				}
			})
		})
	}
}

// TestRedirects checks the outcomes of http.Client, which follows redirects.
func TestRedirects(t *testing.T) {
	t.Parallel()
	to := func(status int, where string) answer {
		return answer{status: status, header: http.Header{"Location": {where}}}
	}
	receipt := answer{status: 200, body: "receipt"}
	for name, c := range map[string]struct {
		answers  []answer
		method   string
		methods  []string
		own      string // the key in the header of the caller
		nameless bool   // base sets no Response.Request
		cut      bool   // the body of the response ends early
		tries    int
		status   int // of the response or the UnknownError
		unknown  bool
		failed   bool // another error
	}{
		"receipt at another page":    {answers: []answer{to(303, "/receipt"), receipt}, tries: 2, status: 200},
		"lost receipt":               {answers: []answer{to(303, "/receipt"), lost}, tries: 2, unknown: true},
		"lost receipt elsewhere":     {answers: []answer{to(303, "https://cdn.example/r"), lost}, tries: 2, unknown: true},
		"lost after two redirects":   {answers: []answer{to(303, "/a"), to(302, "/b"), lost}, tries: 3, unknown: true},
		"no receipt":                 {answers: []answer{to(303, "/receipt"), problem(404, "")}, tries: 2, status: 404, unknown: true},
		"broken receipt":             {answers: []answer{to(303, "/receipt"), problem(500, "")}, tries: 2, status: 500},
		"lost receipt by a method":   {answers: []answer{to(303, "/receipt"), lost}, methods: []string{http.MethodPost, http.MethodGet}, tries: 2, unknown: true},
		"no receipt by a method":     {answers: []answer{to(303, "https://cdn.example/r"), problem(404, "")}, methods: []string{http.MethodPost, http.MethodGet}, tries: 2, status: 404, unknown: true},
		"two pages with own key":     {answers: []answer{to(303, "/a"), to(302, "/b"), problem(404, "")}, methods: []string{http.MethodPost, http.MethodGet}, own: "k", tries: 3, status: 404, unknown: true},
		"base without requests":      {answers: []answer{to(303, "/a"), to(302, "/b"), lost}, nameless: true, tries: 3, unknown: true},
		"cut receipt":                {answers: []answer{to(303, "/receipt"), {status: 200, body: "receipt", cut: true}}, tries: 2, status: 200, cut: true},
		"307 to a named host":        {answers: []answer{to(307, "/pay2"), paid}, tries: 2, status: 201},
		"307 to another host":        {answers: []answer{to(307, "https://other.example/pay"), paid}, tries: 1, failed: true},
		"307 of an uncovered method": {answers: []answer{to(307, "/pay2"), lost}, method: http.MethodPut, tries: 2, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := peer{answers: c.answers}
			r := post(t.Context(), t, strings.NewReader("5 euros"))
			r.Method = cmp.Or(c.method, r.Method)
			if c.own != "" {
				r.Header.Set("Idempotency-Key", c.own)
			}
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := p.RoundTrip(r)
				if c.nameless && resp != nil {
					resp.Request = nil
				}
				return resp, err
			})
			opts := []httpretry.Option{httpretry.Retry(retry.None)}
			if c.methods != nil {
				opts = append(opts, httpretry.Methods(c.methods...))
			}
			resp, err := (&http.Client{Transport: newTransport(base, opts...)}).Do(r)
			status, unknown := 0, new(httpretry.UnknownError)
			isUnknown := errors.As(err, &unknown)
			switch {
			case err == nil:
				status = resp.StatusCode
				_, err := io.ReadAll(resp.Body)
				if cut := errors.As(err, &unknown); cut != c.cut || err != nil && unknown.Key != p.keys[0][0] {
					t.Errorf("the body: %v", err)
				}
				_ = resp.Body.Close()
			case isUnknown:
				status = unknown.Status
				if unknown.Tries != 1 || unknown.Key != p.keys[0][0] {
					t.Errorf("got %d tries under %q, want 1 under %q", unknown.Tries, unknown.Key, p.keys[0])
				}
			}
			if status != c.status || isUnknown != c.unknown || (err != nil && !isUnknown) != c.failed || len(p.times) != c.tries {
				t.Errorf("got %d, %v after %d tries, want %d after %d", status, err, len(p.times), c.status, c.tries)
			}
			if n := p.open.Load(); n != 0 {
				t.Errorf("%d bodies are not closed", n)
			}
		})
	}
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  answer
		before  bool
		unknown bool
	}{
		"after a lost try":      {answer: lost, unknown: true},
		"after 503":             {answer: problem(503, ""), unknown: true},
		"after 409 in progress": {answer: problem(409, "idempotency-in-progress"), unknown: true},
		"while a try hangs":     {answer: answer{hang: true}, unknown: true},
		"after 429":             {answer: problem(429, "")},
		"before any try":        {before: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				cause := errors.New("the user left")
				if c.before {
					cancel(cause)
				}
				time.AfterFunc(time.Second, func() { cancel(cause) })
				var body counted
				var open atomic.Int64
				open.Add(1)
				body.Reader, body.open = strings.NewReader("5 euros"), &open
				p := peer{answers: []answer{c.answer}}
				r := post(ctx, t, &body)
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("5 euros")), nil }
				_, err := newTransport(&p, httpretry.Retry(retry.Policy{Initial: time.Minute})).RoundTrip(r)
				unknown := new(httpretry.UnknownError)
				if !errors.Is(err, context.Canceled) || errors.As(err, &unknown) != c.unknown {
					t.Errorf("got %v", err)
				}
				if open.Load() != 0 || p.open.Load() != 0 {
					t.Errorf("%d and %d bodies are not closed", open.Load(), p.open.Load())
				}
			})
		})
	}
}
