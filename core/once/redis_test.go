package once_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestOnRedis(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	// A first run takes two round trips, and a replay one.
	t.Run("round trips", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		o, other := onRedis(t, proxy.Addr), onRedis(t, proxy.Addr)
		for _, key := range []string{"warm", "trips"} { // in the first round, the scripts are sent
			proxy.Forget()
			first(t, o, charge(key), "receipt", 1)
			acquires, releases := scripts(proxy, "acquire"), scripts(proxy, "release")
			replayed(t, o, charge(key), "receipt", 1)
			replayed(t, other, charge(key), "receipt", 1)
			if key == "warm" {
				continue
			}
			if all := len(proxy.Requests()); acquires != 1 || releases != 1 || scripts(proxy, "acquire") != 3 || all != 4 {
				t.Errorf("a run and two replays are %d commands, want 2 and 2: %v", all, names(proxy))
			}
		}
	})
	t.Run("long answers", func(t *testing.T) {
		t.Parallel()
		o, other := onRedis(t, server.Addr), onRedis(t, server.Addr)
		source := rand.NewChaCha8([32]byte{'o', 'n', 'c', 'e'})
		for _, size := range []int{0, 1, 1 << 20, 10 << 20} {
			value := make([]byte, size)
			_, _ = source.Read(value)
			c := charge("size " + strconv.Itoa(size))
			first(t, o, c, string(value), 1)
			out, err := other.Do(t.Context(), c, new(runs).work("again"))
			if err != nil || !out.Replayed || !bytes.Equal(out.Value, value) {
				t.Errorf("%d bytes: replayed %d bytes, %v (%v)", size, len(out.Value), out.Replayed, err)
			}
		}
	})
	t.Run("answer above the server limit", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--proto-max-bulk-len", "1mb")
		o, c := onRedis(t, server.Addr), charge("long")
		value := bytes.Repeat([]byte("x"), 3<<20)
		out, err := o.Do(t.Context(), c, new(runs).work(string(value)))
		if !errors.Is(err, core.ErrUnavailable) || !bytes.Equal(out.Value, value) || out.Replayed {
			t.Errorf("got %d bytes, %v, want the answer and ErrUnavailable", len(out.Value), err)
		}
		refused(t, onRedis(t, server.Addr), c, once.ErrUnreplayable)
		first(t, o, charge("next"), "receipt", 1)
		read, err := strconv.Atoi(server.Field("stats", "total_net_input_bytes"))
		if err != nil || read > 2*len(value) {
			t.Errorf("the server has read %d bytes (%v), want at most %d", read, err, 2*len(value))
		}
	})
	// One process replays an answer that another process has stored.
	t.Run("two processes", func(t *testing.T) {
		t.Parallel()
		a, b := onRedis(t, server.Addr, once.AtMostOnce()), onRedis(t, server.Addr)
		_, _ = a.Do(t.Context(), charge("failed"), new(runs).failing(errors.New("declined")))
		other := charge("failed")
		other.Fingerprint = []byte("1000 EUR") // hazard 60
		refused(t, b, other, once.ErrMismatch)
		first(t, b, charge("failed"), "receipt", 2)
		refused(t, a, other, once.ErrMismatch)
		replayed(t, a, charge("failed"), "receipt", 2)
		_, _ = a.Do(t.Context(), charge("unknown"), new(runs).failing(once.ErrIndeterminate))
		refused(t, b, charge("unknown"), once.ErrIndeterminate)
		stranger := charge("failed")
		stranger.Scope = "another tenant"
		first(t, b, stranger, "of the other tenant", 1)
		replayed(t, a, charge("failed"), "receipt", 2)
	})
	// A panic leaves a failed run that can be run again at once.
	t.Run("panic of the function", func(t *testing.T) {
		t.Parallel()
		o := onRedis(t, server.Addr)
		for range 10 { // hazard 50
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic did not go on")
					}
				}()
				_, _ = o.Do(t.Context(), charge("panic"), func(context.Context) (once.Answer, error) { panic("on fire") })
			}()
		}
		first(t, o, charge("panic"), "receipt", 11)
	})
	// The answers of callers that left are stored, and their keys are free at once.
	t.Run("callers that left", func(t *testing.T) {
		t.Parallel()
		o, other := onRedis(t, server.Addr), onRedis(t, server.Addr)
		for i := range tally.Trials(50) { // hazard 47
			ctx, leave := context.WithCancel(t.Context())
			c := charge("gone " + strconv.Itoa(i))
			out, err := o.Do(ctx, c, func(ctx context.Context) (once.Answer, error) {
				leave()
				<-ctx.Done()
				return once.Answer{Value: []byte("receipt")}, nil
			})
			if err != nil || string(out.Value) != "receipt" {
				t.Errorf("got %+v and %v", out, err)
			}
			replayed(t, other, c, "receipt", 1)
		}
	})
	t.Run("answers expire", func(t *testing.T) {
		t.Parallel()
		o := onRedis(t, server.Addr, once.Retain(300*time.Millisecond))
		c := charge("brief")
		first(t, o, c, "receipt", 1)
		testserver.Eventually(t, patience, "the call is a new one", func() bool {
			var r runs
			out, err := o.Do(t.Context(), c, r.work("again"))
			if err != nil {
				t.Fatal(err)
			}
			return r.n == 1 && out.Attempt == 1
		})
	})
}

func scripts(p *testserver.Proxy, name string) int { return p.Count(testserver.Match{Script: name}) }

func names(p *testserver.Proxy) (all []string) {
	for _, c := range p.Requests() {
		all = append(all, c.Name+" "+c.Script)
	}
	return all
}

// TestFaults checks calls whose requests or replies are lost.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, action := range map[string]testserver.Action{
		"broken": testserver.CloseReply, "silent": testserver.DropReply,
	} {
		t.Run("unanswered begin "+name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewRedisProxy(t, server.Addr)
			o := onRedis(t, proxy.Addr, once.AtMostOnce(), lasting(3*time.Second))
			for i := range 3 {
				c := charge(name + " begin " + strconv.Itoa(i))
				fault := proxy.Inject(testserver.Match{Script: "acquire"}, action)
				first(t, o, c, "receipt", 1)
				fault.Await(t)
				replayed(t, onRedis(t, server.Addr), c, "receipt", 1)
			}
		})
		t.Run("unconfirmed answer "+name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewRedisProxy(t, server.Addr)
			o := onRedis(t, proxy.Addr, once.AtMostOnce(), lasting(3*time.Second))
			for i := range 3 {
				c := charge(name + " finish " + strconv.Itoa(i))
				fault := proxy.Inject(testserver.Match{Script: "release"}, action)
				first(t, o, c, "receipt", 1)
				fault.Await(t)
				replayed(t, onRedis(t, server.Addr), c, "receipt", 1)
			}
		})
	}
	// A run whose begin was applied, but not answered before an outage, does not count
	// as an attempt.
	t.Run("begin before an outage", func(t *testing.T) {
		t.Parallel()
		for name, opts := range map[string][]once.Option{"by default": nil, "at most once": {once.AtMostOnce()}} {
			for _, ending := range []string{"its store", "its caller"} {
				proxy := testserver.NewRedisProxy(t, server.Addr)
				o := onRedis(t, proxy.Addr, append(opts, lasting(600*time.Millisecond))...)
				// This call opens a connection and loads the scripts.
				first(t, o, charge("warm "+name+ending), "receipt", 1)
				c := charge("unheard begin " + name + ending)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				fault := proxy.Inject(testserver.Match{Script: "acquire"}, testserver.DropReply)
				cut := make(chan struct{})
				go func() {
					defer close(cut)
					<-fault.Answered()
					proxy.Partition()
					if ending == "its caller" {
						time.AfterFunc(100*time.Millisecond, cancel)
					}
				}()
				unheard(t, ctx, o, c)
				fault.Await(t)
				<-cut
				cancel()
				db, at := testclient.Redis(t, server.Addr), "lk2:{"+once.StoreKey(c)+"}"
				if n := db.Exists(t.Context(), at).Val(); n != 1 {
					t.Errorf("%s, given up by %s: there is no record of it at first", name, ending)
				}
				proxy.Heal()
				testserver.Eventually(t, patience, "the run is taken back", func() bool {
					stored, err := testclient.Fields(t.Context(), db, at)
					return err == nil && stored["r"] == ""
				})
				first(t, onRedis(t, server.Addr, append(opts, wait(patience))...), c, "receipt", 1)
			}
		}
	})
	// If the store does not confirm the failure of a run at first, Do returns the error
	// of fn.
	t.Run("unconfirmed failure", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		o, declined := onRedis(t, proxy.Addr, once.AtMostOnce()), errors.New("declined")
		fault := proxy.Inject(testserver.Match{Script: "release"}, testserver.CloseReply)
		if _, err := o.Do(t.Context(), charge("declined"), new(runs).failing(declined)); err != declined {
			t.Errorf("got %v, want fn's own error", err)
		}
		fault.Await(t)
		first(t, onRedis(t, server.Addr, once.AtMostOnce()), charge("declined"), "receipt", 2)
	})
	// If the store is cut off, Do returns the outcome with an error, and the outcome is
	// stored after the outage.
	t.Run("store cut off", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		o, declined := onRedis(t, proxy.Addr), errors.New("declined")
		out, err := o.Do(t.Context(), charge("cut off"), func(context.Context) (once.Answer, error) {
			proxy.Partition()
			return once.Answer{Value: []byte("receipt")}, nil
		})
		if string(out.Value) != "receipt" || out.Replayed || out.Attempt != 1 {
			t.Errorf("got %+v, want the outcome", out)
		}
		wantErr(t, err, core.ErrUnavailable)
		var r runs
		if _, err = o.Do(t.Context(), charge("cut off 2"), r.work("x")); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, core.ErrUnavailable)
		}
		r.want(t, 0)
		proxy.Heal()
		replayed(t, onRedis(t, server.Addr, wait(patience)), charge("cut off"), "receipt", 1)

		awaitStore(t, o)
		_, err = o.Do(t.Context(), charge("cut off 3"), func(context.Context) (once.Answer, error) {
			proxy.Partition()
			return once.Answer{}, declined
		})
		wantErr(t, err, declined, core.ErrUnavailable)
		proxy.Heal()
		first(t, onRedis(t, server.Addr, wait(patience), once.AtMostOnce()), charge("cut off 3"), "receipt", 2)
	})
	// While the store is down, nothing is run. After its restart the stored answers
	// still exist.
	t.Run("store down", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		o := onRedis(t, server.Addr)
		first(t, o, charge("1"), "receipt", 1)
		server.Kill()
		for _, key := range []string{"1", "2"} {
			refused(t, o, charge(key), core.ErrUnavailable)
		}
		server.Restart()
		awaitStore(t, o)
		replayed(t, o, charge("1"), "receipt", 1)
		first(t, o, charge("2"), "receipt", 1)
	})
	// If the key was deleted during the run, the caller gets the answer together with
	// ErrLost.
	t.Run("key deleted", func(t *testing.T) {
		t.Parallel()
		o, db := onRedis(t, server.Addr), testclient.Redis(t, server.Addr)
		c := charge("deleted")
		out, err := o.Do(t.Context(), c, func(ctx context.Context) (once.Answer, error) {
			if n, err := db.Del(ctx, "lk2:{"+once.StoreKey(c)+"}").Result(); n != 1 || err != nil {
				t.Errorf("%d keys deleted (%v), want 1", n, err)
			}
			return once.Answer{Value: []byte("receipt")}, nil
		})
		if string(out.Value) != "receipt" {
			t.Errorf("got %+v", out)
		}
		wantErr(t, err, core.ErrLost)
	})
}

// awaitStore waits until the store of o, which had an outage, is available. After the
// outage the store still counts as down until its next probe.
func awaitStore(t *testing.T, o *once.Once) {
	t.Helper()
	testserver.Eventually(t, patience, "the outage is over", func() bool {
		_, err := o.Do(t.Context(), charge("after the outage"), new(runs).work("x"))
		return err == nil
	})
}
