package pipeline_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestOptionalCalls_ServerDown(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	p := newPatient(t, server.Addr)
	mustTake(t, p, newKey())
	server.Kill()
	do := func(c *pipeline.Call) error {
		_, err := p.Do(t.Context(), c)
		if err == nil || pipeline.Sent(err) {
			t.Fatalf("got %v, want an error of what was not sent", err)
		}
		return err
	}
	knownDown := func(err error) bool { return strings.Contains(err.Error(), "known to be down") }
	testserver.Eventually(t, time.Minute, "optional calls are refused", func() bool {
		return knownDown(do(p.SetNX([]byte(newKey()), []byte("value"), 1000).Optional()))
	})
	if err := p.Enter(t.Context()); err == nil || !knownDown(err) {
		t.Errorf("Enter: got %v", err)
	}
	if err := do(p.SetNX([]byte(newKey()), []byte("value"), 1000)); knownDown(err) {
		t.Errorf("a call that is not optional: got %v", err)
	}
	server.Restart()
	testserver.Eventually(t, time.Minute, "a call is answered", func() bool {
		_, err := p.Do(t.Context(), p.SetNX([]byte(newKey()), []byte("value"), 1000).Optional())
		return err == nil
	})
}

// reroute is a hook that connects to addr, whatever the address of the client.
type reroute struct {
	*pipeline.Dials
	addr string
}

func (r reroute) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, r.addr)
	}
}

// TestOptionalCalls_DialHook reaches the server only through a hook of the user's client.
// After an outage the server must not be refused forever.
func TestOptionalCalls_DialHook(t *testing.T) {
	t.Parallel()
	for way, addr := range map[string]string{"refused": "127.0.0.1:1", "silent": silent(t)} {
		t.Run(way+" address of client", func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			client := testclient.Redis(t, addr)
			client.AddHook(reroute{addr: server.Addr})
			p := newPipeline(t, client)
			call := func() error {
				_, err := p.Do(t.Context(), p.SetNX([]byte(newKey()), []byte("value"), 1000).Optional())
				return err
			}
			testserver.Eventually(t, time.Minute, "the first call is answered", func() bool { return call() == nil })
			server.Kill()
			testserver.Eventually(t, time.Minute, "the server is known to be down", func() bool { return call() != nil && p.Down() != nil })
			server.Restart()
			testserver.Eventually(t, time.Minute, "a call is answered", func() bool { return call() == nil })
		})
	}
}

// silent returns the address of a listener that accepts connections and sends nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestOptionalCalls_MasterDown calls the masters by turns, and each one rarely. A call
// to one master must not remove what is known of another one.
func TestOptionalCalls_MasterDown(t *testing.T) {
	t.Parallel()
	const masters, slots = 4, 16384 / 4
	var servers []*testserver.Redis
	var view []redis.ClusterSlot
	for i := range masters {
		s := testserver.StartRedis(t)
		servers = append(servers, s)
		view = append(view, redis.ClusterSlot{Start: slots * i, End: slots*(i+1) - 1, Nodes: []redis.ClusterNode{{Addr: s.Addr}}})
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return view, nil },
	})
	t.Cleanup(func() { _ = cluster.Close() })
	p := newPipeline(t, cluster)
	call := func(server int) error {
		key := newKey()
		for testserver.Slot(key)/slots != server {
			key = newKey()
		}
		_, err := p.Do(t.Context(), p.SetNX([]byte(key), []byte("value"), 1000).Optional())
		return err
	}
	knownDown := func(err error) bool { return err != nil && strings.Contains(err.Error(), "known to be down") }
	servers[0].Kill()
	testserver.Eventually(t, time.Minute, "optional calls are refused", func() bool { return knownDown(call(0)) })
	testserver.Eventually(t, time.Minute, "no worker is left", p.Unused)
	testserver.Eventually(t, time.Minute, "another master answers", func() bool { return call(1) == nil })
	if err := call(0); !knownDown(err) {
		t.Errorf("after a call to the other master: got %v", err)
	}
	// Unused servers are removed when another master is called.
	testserver.Eventually(t, time.Minute, "again no worker is left", p.Unused)
	p.Age()
	for i := range 2 {
		testserver.Eventually(t, time.Minute, "another master answers", func() bool { return call(2+i) == nil })
	}
	if n := p.Age(); n != 2 {
		t.Errorf("got %d servers, want 2", n)
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	p := newPatient(t, server.Addr)
	key := []byte(newKey())
	for i, want := range []any{"OK", nil} {
		if got, err := p.Do(t.Context(), p.SetNX(key, []byte("value"), 60_000)); err != nil || got.Reply != want {
			t.Errorf("SET NX, time %d: got %v, %v, want %v", i+1, got, err, want)
		}
	}
	list := newKey()
	server.Do("rpush", list, "of the wrong type")
	_, err := take(t.Context(), p, list)
	if !errors.As(err, new(redis.Error)) || !pipeline.Sent(err) {
		t.Errorf("an error reply: got %v (sent: %v)", err, pipeline.Sent(err))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := p.Do(ctx, p.Eval(takeScript, []byte(newKey()), "", "acquire").Text("value").Wait(1, time.Millisecond))
	if err != nil || got.Reply != int64(1) || got.Err != nil || got.Replicas != 0 {
		t.Errorf("with WAIT, where there is no replica: got %+v, %v", got, err)
	}
}
