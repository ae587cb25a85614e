package redisstore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// step is one operation of a long scene on one key.
type step struct {
	name string
	do   func() error
	want error
}

// scene goes through everything that a store can do with a key.
func scene(s *redisstore.Store, key string) []step {
	ctx := context.Background()
	a, b, kept, gone := claimOf(key), claimOf(key), claimOf(key), claimOf(key)
	inner, joins, reader := nested(a), claimOf(key), claimOf(key)
	joins.Via, reader.Weight = a.Owner, 1
	fair, unfair := claimOf(key), claimOf(key)
	fair.Fair, fair.Wait, unfair.Wait = true, true, true
	ahead := claimOf(key)
	ahead.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	kept.Keep = 30 * time.Second
	brief := claimOf(key)
	brief.TTL = time.Millisecond

	acquire := func(c core.Claim) func() error {
		return func() error { _, err := s.Acquire(ctx, c); return err }
	}
	extends := func(c core.Claim) func() error {
		return func() error { return s.Extend(ctx, []core.Claim{c})[0].Err }
	}
	release := func(c core.Claim) func() error { return func() error { return s.Release(ctx, c) } }
	return []step{
		{"acquire", acquire(a), nil},
		{"acquire again", acquire(a), nil},
		{"enter again", acquire(inner), nil},
		{"join", acquire(joins), nil},
		{"extend", extends(a), nil},
		{"be busy", acquire(b), core.ErrBusy},
		{"wait fair", acquire(fair), core.ErrBusy},
		{"wait", acquire(unfair), core.ErrBusy},
		{"wait on", acquire(fair), core.ErrBusy},
		{"release an unknown lease", release(gone), core.ErrLost},
		{"arrive after one's release", acquire(gone), core.ErrLost},
		{"extend an unknown lease", extends(b), core.ErrLost},
		{"leave the joined hold", release(joins), nil},
		{"leave the inner hold", release(inner), nil},
		{"release", release(a), nil},
		{"give up waiting", func() error {
			// Woken, it waits no more.
			if err := s.Release(ctx, unfair); !errors.Is(err, core.ErrLost) {
				return err
			}
			return nil
		}, nil},
		{"wait no more", acquire(fair), nil},
		{"release what waited", release(fair), nil},
		{"read", acquire(reader), nil},
		{"be too heavy", acquire(func() core.Claim { c := nested(reader); c.Weight = core.All; return c }()), core.ErrInvalid},
		{"stop reading", release(reader), nil},
		{"hold for a moment", acquire(brief), nil},
		{"come after", func() error {
			time.Sleep(5 * time.Millisecond)
			_, err := s.Acquire(ctx, ahead)
			return err
		}, nil},
		{"extend what has ended", extends(brief), core.ErrLost},
		{"release what is ahead", release(ahead), nil},
		{"hold", acquire(kept), nil},
		{"keep", release(kept), nil},
		{"keep again", release(kept), core.ErrLost},
		{"be busy with what is kept", acquire(b), core.ErrBusy},
	}
}

// A key has a TTL after every step, so that a crash at any moment leaves
// nothing for ever (hazard 25).
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	asks := server.Client()
	for name, opts := range map[string][]redisstore.Option{
		"plain prefix": nil, "no prefix": {redisstore.WithPrefix("")}, "prefix with spaces": {redisstore.WithPrefix("a b ")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, server.Client(), opts...)
			for _, st := range scene(s, "expires:"+rand.Text()) {
				if err := st.do(); !errors.Is(err, st.want) {
					t.Fatalf("%s: got %v, want %v", st.name, err, st.want)
				}
				for _, key := range asks.Keys(t.Context(), "*").Val() {
					if left := asks.PTTL(t.Context(), key).Val(); left == -1 || left > 2*time.Minute {
						t.Fatalf("after %q the key has a TTL of %v: %v", st.name, left, asks.HGetAll(t.Context(), key).Val())
					}
				}
			}
		})
	}
}

// Scripts touch the key that they declare and no other, so that a cluster can
// tell where they belong.
func TestScriptsTouchOnlyTheirKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	monitor, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	_ = monitor.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(monitor, "MONITOR\r\n")
	lines := bufio.NewScanner(monitor)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("monitor: %q, %v", lines.Text(), lines.Err())
	}
	s := newStore(t, server.Client())
	key := "declared:" + rand.Text()
	for _, st := range scene(s, key) {
		if err := st.do(); !errors.Is(err, st.want) {
			t.Fatalf("%s: got %v, want %v", st.name, err, st.want)
		}
	}
	plain := newStore(t, server.Client(), redisstore.WithPlainKeys(), redisstore.WithPrefix(""))
	p := claimOf("lk1:{" + key + "}:plain")
	p.Key = strings.NewReplacer("{", "", "}", "").Replace(p.Key)
	acquire(t, plain, p)
	if err := extend(plain, p); err != nil {
		t.Fatal(err)
	}
	release(t, plain, p)
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
			if !strings.HasPrefix(first, "lk1:wake:") {
				t.Errorf("publishes to %q", first)
			}
		default:
			if first != "lk1:{"+key+"}" && first != p.Key {
				t.Errorf("%s of %q, which is not declared", command, first)
			}
		}
	}
	for _, c := range []string{"exists", "hgetall", "hget", "hset", "hdel", "pexpire", "pttl", "publish", "get", "set", "del", "time"} {
		if seen[c] == 0 {
			t.Errorf("the scene never used %s, saw %v", c, seen)
		}
	}
}

// Extend, release and leaving work where memory is short; acquire says that it
// cannot (hazard 27).
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newStore(t, server.Client())
	held, inner := claimed(), core.Claim{}
	inner = nested(held)
	waits, keeps, tokens := claimOf(held.Key), claimed(), claimed()
	waits.Wait, waits.Fair = true, true
	keeps.Keep = 20 * time.Second
	tokens.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	for _, c := range []core.Claim{held, inner, keeps, tokens} {
		acquire(t, s, c)
	}
	_, err := s.Acquire(t.Context(), waits)
	wantIs(t, "acquire", err, core.ErrBusy)
	plain := newStore(t, server.Client(), redisstore.WithPlainKeys())
	plainHeld, plainKept := claimed(), claimed()
	plainKept.Keep = 20 * time.Second
	acquire(t, plain, plainHeld)
	acquire(t, plain, plainKept)
	unknownLease := claimed()

	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	for name, c := range map[string]core.Claim{
		"a free key": claimed(), "a held key, waiting": func() core.Claim { c := claimOf(held.Key); c.Wait = true; return c }(),
		"a further hold": nested(held),
	} {
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire of "+name, err, core.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("acquire of %s: got %v, want OOM", name, err)
		}
	}
	_, err = plain.Acquire(t.Context(), claimed())
	wantIs(t, "plain acquire", err, core.ErrUnavailable)
	everyKeyExpires(t, server)

	longer := held
	longer.TTL = 10 * time.Minute
	if err := extend(s, longer); err != nil {
		t.Errorf("extend: %v", err)
	}
	if left := server.Client().PTTL(t.Context(), stored(held)).Val(); left < 5*time.Minute {
		t.Errorf("the key lives for %v", left)
	}
	wantIs(t, "release of an unknown lease", s.Release(t.Context(), unknownLease), core.ErrLost)
	for name, c := range map[string]core.Claim{"waiting": waits, "inner": inner, "held": held, "kept": keeps, "ahead": tokens} {
		if err := s.Release(t.Context(), c); err != nil {
			t.Errorf("release, %s: %v", name, err)
		}
	}
	if err := extend(plain, plainHeld); err != nil {
		t.Errorf("plain extend: %v", err)
	}
	for _, c := range []core.Claim{plainHeld, plainKept} {
		if err := plain.Release(t.Context(), c); err != nil {
			t.Errorf("plain release: %v", err)
		}
	}
	everyKeyExpires(t, server)

	server.Do("CONFIG", "SET", "maxmemory", "0")
	_, err = s.Acquire(t.Context(), unknownLease)
	wantIs(t, "a straggler", err, core.ErrLost)
	_, err = s.Acquire(t.Context(), claimOf(keeps.Key))
	wantIs(t, "acquire of what is kept", err, core.ErrBusy)
	_, err = plain.Acquire(t.Context(), claimOf(plainKept.Key))
	wantIs(t, "plain acquire of what is kept", err, core.ErrBusy)
}

// What is stored is what the package documents.
func TestLayout(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	names := func(t *testing.T, c core.Claim) []string {
		return slices.Sorted(maps.Keys(r.fields(t, c)))
	}
	is := func(t *testing.T, c core.Claim, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := names(t, c); !slices.Equal(got, want) {
			t.Errorf("fields are %q, want %q", got, want)
		}
	}
	t.Run("one field for each hold, one for the token", func(t *testing.T) {
		c := claimed()
		inner := nested(c)
		acquire(t, r.direct, c)
		is(t, c, "h:"+c.Lease, "t")
		acquire(t, r.direct, inner)
		is(t, c, "h:"+c.Lease, "h:"+inner.Lease, "t")
		release(t, r.direct, inner)
		release(t, r.direct, c)
		is(t, c)
	})
	t.Run("a thousand waiters are one field", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		for range 1000 {
			w := claimOf(c.Key)
			w.Wait = true
			if _, err := r.direct.Acquire(t.Context(), w); !errors.Is(err, core.ErrBusy) {
				t.Fatal(err)
			}
		}
		is(t, c, "h:"+c.Lease, "t", "w")
		if n := strings.Count(r.fields(t, c)["w"], "\n"); n != 1001 {
			t.Errorf("the list has %d line ends, want 1001", n)
		}
	})
	t.Run("the dead are dropped when somebody comes", func(t *testing.T) {
		c, next := claimed(), core.Claim{}
		c.Weight = 1
		gone, waits := c, c
		acquire(t, r.direct, c)
		for range 5 {
			gone.Lease, gone.Owner, gone.TTL = rand.Text(), rand.Text(), time.Millisecond
			acquire(t, r.direct, gone)
			waits.Lease, waits.Owner, waits.TTL, waits.Wait = rand.Text(), rand.Text(), time.Millisecond, true
			waits.Weight = core.All
			_, _ = r.direct.Acquire(t.Context(), waits)
		}
		time.Sleep(5 * time.Millisecond)
		next = claimOf(c.Key)
		next.Wait = true
		_, err := r.direct.Acquire(t.Context(), next)
		wantIs(t, "acquire", err, core.ErrBusy)
		is(t, c, "h:"+c.Lease, "w")
		if w := r.fields(t, c)["w"]; strings.Count(w, "\n") != 2 || !strings.Contains(w, next.Lease) {
			t.Errorf("the list is %q", w)
		}
	})
	t.Run("a thousand dead holds do not stop a claim", func(t *testing.T) {
		c := claimed()
		args := []any{"hset", stored(c)}
		for range 5000 {
			args = append(args, "h:"+rand.Text(), "1000 1 owner")
		}
		if err := r.asks.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		acquire(t, r.direct, c)
		release(t, r.direct, c)
		for range 5 {
			next := claimOf(c.Key)
			acquire(t, r.direct, next)
			release(t, r.direct, next)
		}
		is(t, c)
	})
	t.Run("a token ahead of the clock stays until the clock has passed it", func(t *testing.T) {
		c := claimed()
		c.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
		g := acquire(t, r.direct, c)
		release(t, r.direct, c)
		is(t, c, "t")
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < 55*time.Second || left > 61*time.Second {
			t.Errorf("it stays for %v", left)
		}
		if next := acquire(t, r.direct, claimOf(c.Key)); next.Token != g.Token+1 {
			t.Errorf("the next token is %d, want %d", next.Token, g.Token+1)
		}
	})
	t.Run("a token keeps all its digits", func(t *testing.T) {
		c := claimed()
		c.MinToken = 1<<52 - 12345
		g := acquire(t, r.direct, c)
		if g.Token != c.MinToken || r.fields(t, c)["t"] != strconv.FormatUint(c.MinToken, 10) {
			t.Errorf("got token %d, stored %s, want %d", g.Token, r.fields(t, c)["t"], c.MinToken)
		}
	})
	t.Run("a plain key is a string of the owner", func(t *testing.T) {
		s := newStore(t, r.asks, redisstore.WithPlainKeys(), redisstore.WithPrefix("their:"))
		c := claimed()
		acquire(t, s, c)
		if v := r.asks.Get(t.Context(), "their:"+c.Key).Val(); v != c.Owner {
			t.Errorf("the value is %q, want the owner", v)
		}
	})
	t.Run("a place in line lives as long as the contract says", func(t *testing.T) {
		c, w := claimed(), core.Claim{}
		acquire(t, r.direct, c)
		w = claimOf(c.Key)
		w.Wait = true
		_, _ = r.direct.Acquire(t.Context(), w)
		var lease string
		var deadline int64
		if _, err := fmt.Sscan(r.fields(t, c)["w"], &lease, &deadline); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(time.UnixMilli(deadline)); left > core.WaiterLife || left < core.WaiterLife-5*time.Second {
			t.Errorf("it lives for %v, want about %v", left, core.WaiterLife)
		}
	})
}

// A cycle is two commands, whatever the lock is.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	acquire(t, r.store, claimed())
	r.proxy.Forget()
	c := claimed()
	acquire(t, r.store, c)
	release(t, r.store, c)
	if n := len(r.proxy.Commands()); n != 2 {
		t.Errorf("a cycle is %d commands, want 2", n)
	}
	if n := r.proxy.Bytes(); n > 700 {
		t.Errorf("a cycle is %d bytes", n)
	}
	var batch []core.Claim
	for range 100 {
		c := claimed()
		acquire(t, r.direct, c)
		batch = append(batch, c)
	}
	r.proxy.Forget()
	for _, x := range r.store.Extend(t.Context(), batch) {
		if x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	links := make(map[int]bool)
	for _, c := range r.proxy.Commands() {
		links[c.Link] = true
	}
	if n := r.proxy.Count(redistest.Match{Script: "extend"}); n != 100 || len(links) != 1 {
		t.Errorf("a batch of 100 was %d commands over %d connections", n, len(links))
	}
}
