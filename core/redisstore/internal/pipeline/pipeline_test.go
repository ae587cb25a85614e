package pipeline_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMain runs up to 16 tests at once, because most wait for time or for a server.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "16")
	}
	logging.Disable() // clients log every server that a test has stopped
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// newPipeline returns a Pipeline that is closed before its client.
func newPipeline(t testing.TB, client redis.UniversalClient) *pipeline.Pipeline {
	t.Helper()
	p := pipeline.New(client)
	t.Cleanup(p.Close)
	return p
}

// newPatient returns a Pipeline that is Patient, on a new client of the server at addr.
func newPatient(t testing.TB, addr string, edit ...func(*redis.Options)) *pipeline.Pipeline {
	t.Helper()
	p := newPipeline(t, testclient.Redis(t, addr, append(edit, patient)...))
	p.Patient()
	return p
}

// patient sets long time-outs, for the client of a Pipeline that is Patient.
func patient(o *redis.Options) {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
}

// takeScript takes a key, unless the key has another value. The proxies of testserver
// recognize it by its first argument.
var takeScript = pipeline.NewScript([]byte(`
	local value = redis.call('GET', KEYS[1])
	if value and value ~= ARGV[2] then return 0 end
	redis.call('SET', KEYS[1], ARGV[2], 'PX', 60000)
	return 1`))

var errTaken = errors.New("another has the key")

// take takes a key, and returns the reply or errTaken. The texts have no meaning.
func take(ctx context.Context, p *pipeline.Pipeline, key string, texts ...string) (any, error) {
	c := p.Eval(takeScript, []byte(key), "", "acquire").Text("value of " + key)
	for _, text := range texts {
		c.Text(text)
	}
	got, err := p.Do(ctx, c)
	if err == nil && got.Reply == int64(0) {
		return nil, errTaken
	}
	return got.Reply, err
}

// takeAll takes all keys, and gives up after a minute.
func takeAll(ctx context.Context, p *pipeline.Pipeline, all []string) []pipeline.Result {
	items := make([]pipeline.Item, len(all))
	for i, key := range all {
		items[i] = pipeline.Item{Key: key, Text: "value of " + key, Num: 1}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.DoAll(ctx, takeScript, "acquire", items)
}

func mustTake(t testing.TB, p *pipeline.Pipeline, key string) {
	t.Helper()
	if got, err := take(t.Context(), p, key); err != nil || got != int64(1) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func newKey() string { return "{test:" + rand.Text() + "}" }

func newKeys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = newKey()
	}
	return all
}

func notSent(t testing.TB, what string, err, why error) {
	t.Helper()
	if err == nil || pipeline.Sent(err) || !errors.Is(err, why) {
		t.Errorf("%s: got %v (sent: %v), want %v, not sent", what, err, pipeline.Sent(err), why)
	}
}

func unknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || !pipeline.Sent(err) {
		t.Errorf("%s: got %v, want an error of what may have been sent", what, err)
	}
}
