package redisstore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// step is one operation in a long sequence on one key.
type step struct {
	name string
	do   func() error
	want error
}

// scene returns steps with many kinds of acquires, extensions and releases on a key.
// The first grant is made by a SET, or by a script if fields is set.
func scene(s *redisstore.Store, key string, fields bool) []step {
	ctx := context.Background()
	claimOf := func(key string) store.Claim {
		c := claimOf(key)
		if fields {
			c.MinToken = 2
		}
		return c
	}
	a, b, kept, gone := claimOf(key), claimOf(key), claimOf(key), claimOf(key)
	inner, joins, reader := nested(a), claimOf(key), claimOf(key)
	joins.Via, reader.Weight, reader.MinToken = a.Owner, 1, 0
	fair, unfair := claimOf(key), claimOf(key)
	fair.Fair, fair.Wait, unfair.Wait = true, true, true
	ahead := claimOf(key)
	ahead.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	kept.Keep = 30 * time.Second
	run, again, fails, waits, vain := claimOf(key), claimOf(key), claimOf(key), claimOf(key), claimOf(key)
	for _, c := range []*store.Claim{&run, &again, &fails, &waits, &vain} {
		c.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
	}
	waits.Wait = true
	failed, saved := fails, run
	failed.Record = &store.Record{Value: []byte("failed"), Attempt: 1, Retain: time.Minute}
	saved.Record = &store.Record{Value: []byte("answer"), Attempt: 2, Done: true, Retain: time.Minute}
	brief := claimOf(key)
	brief.TTL = time.Millisecond

	acquire := func(c store.Claim) func() error {
		return func() error { _, err := s.Acquire(ctx, c); return err }
	}
	extends := func(c store.Claim) func() error {
		return func() error { return s.Extend(ctx, []store.Claim{c})[0].Err }
	}
	release := func(c store.Claim) func() error { return func() error { return s.Release(ctx, c) } }
	return []step{
		{"acquire", acquire(a), nil},
		{"acquire again", acquire(a), nil},
		{"enter again", acquire(inner), nil},
		{"join", acquire(joins), nil},
		{"extend", extends(a), nil},
		{"be busy", acquire(b), store.ErrBusy},
		{"wait fair", acquire(fair), store.ErrBusy},
		{"wait", acquire(unfair), store.ErrBusy},
		{"wait on", acquire(fair), store.ErrBusy},
		{"release an unknown lease", release(gone), store.ErrLost},
		{"arrive after one's release", acquire(gone), store.ErrLost},
		{"extend an unknown lease", extends(b), store.ErrLost},
		{"leave the joined hold", release(joins), nil},
		{"leave the inner hold", release(inner), nil},
		{"release", release(a), nil},
		{"give up waiting", func() error {
			// A woken waiter does not wait any more.
			if err := s.Release(ctx, unfair); !errors.Is(err, store.ErrLost) {
				return err
			}
			return nil
		}, nil},
		{"wait no more", acquire(fair), nil},
		{"release the waiter", release(fair), nil},
		{"read", acquire(reader), nil},
		{"be too heavy", acquire(func() store.Claim { c := nested(reader); c.Weight = store.All; return c }()), store.ErrInvalid},
		{"stop reading", release(reader), nil},
		{"hold for a moment", acquire(brief), nil},
		{"come after", func() error {
			time.Sleep(5 * time.Millisecond)
			_, err := s.Acquire(ctx, ahead)
			return err
		}, nil},
		{"extend an expired hold", extends(brief), store.ErrLost},
		{"release the hold ahead", release(ahead), nil},
		{"begin a run", acquire(fails), nil},
		{"fail", release(failed), nil},
		{"begin in vain", acquire(vain), nil},
		{"undo", release(undoes(vain)), nil},
		{"undo again", release(undoes(vain)), store.ErrLost},
		{"begin another", acquire(run), nil},
		{"extend a run", extends(run), nil},
		{"wait for an answer", acquire(waits), store.ErrBusy},
		{"finish", release(saved), nil},
		{"finish again", release(saved), nil},
		{"be answered", acquire(waits), nil},
		{"be answered again", acquire(again), nil},
		{"hold", acquire(kept), nil},
		{"keep", release(kept), nil},
		{"keep again", release(kept), store.ErrLost},
		{"be busy with a kept hold", acquire(b), store.ErrBusy},
	}
}

// TestKeys_Expire checks that a key has a TTL after every step, so that a crash at
// any moment leaves nothing forever (hazard 25).
func TestKeys_Expire(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	for _, c := range []struct {
		name, prefix string
		fields       bool
	}{{"a prefix", "app:", false}, {"hash fields", "app:", true}, {"no prefix", "", false}, {"a prefix with spaces", "a b ", false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPrefix(c.prefix))
			for _, st := range scene(s, "expires:"+rand.Text(), c.fields) {
				if err := st.do(); !errors.Is(err, st.want) {
					t.Fatalf("%s: got %v, want %v", st.name, err, st.want)
				}
				for _, key := range asks.Keys(t.Context(), "*").Val() {
					if left := asks.PTTL(t.Context(), key).Val(); left == -1 || left > 2*time.Minute {
						f, err := testclient.Fields(t.Context(), asks, key)
						t.Fatalf("after %q the key has a TTL of %v: %v (%v)", st.name, left, f, err)
					}
				}
			}
		})
	}
}

// TestScripts_NoRefusals checks that the server refuses no command of a step with
// WRONGTYPE. A server counts refused commands, even inside a script that continues, and
// an operator can have an alert on that number.
func TestScripts_NoRefusals(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	acquire(t, s, claimOf("known")) // afterwards the scripts are known
	server.Do("CONFIG", "RESETSTAT")
	for _, fields := range []bool{false, true} {
		for _, st := range scene(s, "refused:"+rand.Text(), fields) {
			if err := st.do(); !errors.Is(err, st.want) {
				t.Fatalf("%s: got %v, want %v", st.name, err, st.want)
			}
			if n := server.Field("errorstats", "errorstat_WRONGTYPE"); n != "" {
				t.Errorf("%s, fields %v: refused %s", st.name, fields, n)
				server.Do("CONFIG", "RESETSTAT")
			}
		}
	}
}

// TestScripts_OnlyTheirKey checks that scripts touch only the key that they
// declare. So a Cluster knows the server of each script.
func TestScripts_OnlyTheirKey(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	monitor, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	_ = monitor.SetDeadline(time.Now().Add(10 * time.Minute))
	fmt.Fprint(monitor, "MONITOR\r\n")
	lines := bufio.NewScanner(monitor)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("monitor: %q, %v", lines.Text(), lines.Err())
	}
	s := newStore(t, testclient.Redis(t, server.Addr))
	key := "declared:" + rand.Text()
	for _, st := range append(scene(s, key, false), scene(s, key+":fields", true)...) {
		if _, err := asked(func() (struct{}, error) { return struct{}{}, st.do() }); !errors.Is(err, st.want) {
			t.Fatalf("%s: got %v, want %v", st.name, err, st.want)
		}
	}
	plain := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys(), redisstore.WithPrefix(""))
	p := claimOf("lk2:{" + key + "}:plain")
	p.Key = strings.NewReplacer("{", "", "}", "").Replace(p.Key)
	acquire(t, plain, p)
	if err := extend(plain, p); err != nil {
		t.Fatal(err)
	}
	other := claimOf(p.Key)
	_, err = plain.Acquire(t.Context(), other)
	wantIs(t, "acquire", err, store.ErrBusy)
	release(t, plain, p)
	acquire(t, plain, other) // by the script, because it was refused before
	release(t, plain, other)
	server.Do("ECHO", "the end")
	seen := make(map[string]int)
	for {
		if !lines.Scan() {
			t.Fatalf("the monitor ended: %v", lines.Err())
		}
		line := lines.Text()
		if strings.Contains(line, `"the end"`) {
			break
		}
		if !strings.Contains(line, " lua] ") {
			continue
		}
		words := strings.Split(line, `"`)
		command, first := strings.ToLower(words[1]), ""
		if len(words) > 3 {
			first = words[3]
		}
		seen[command]++
		switch command {
		case "time":
		case "publish":
			if !strings.HasPrefix(first, "lk2:wake:") {
				t.Errorf("publishes to %q", first)
			}
		default:
			if first != "lk2:{"+key+"}" && first != "lk2:{"+key+":fields}" && first != p.Key {
				t.Errorf("%s of %q, which is not declared", command, first)
			}
		}
	}
	for _, c := range []string{"pttl", "publish", "get", "set", "del", "time"} {
		if seen[c] == 0 {
			t.Errorf("the scene never used %s, saw %v", c, seen)
		}
	}
}
