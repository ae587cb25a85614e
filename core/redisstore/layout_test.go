package redisstore_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestLayout compares the stored entries with the package's documentation.
func TestLayout(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	names := func(t *testing.T, c store.Claim) []string {
		return slices.Sorted(maps.Keys(r.fields(t, c)))
	}
	is := func(t *testing.T, c store.Claim, want ...string) {
		t.Helper()
		slices.Sort(want)
		// The tokens of a grant stay until the clock has passed them.
		for len(want) == 0 && slices.Equal(names(t, c), []string{"t"}) {
			time.Sleep(time.Millisecond)
		}
		if got := names(t, c); !slices.Equal(got, want) {
			t.Errorf("fields are %q, want %q", got, want)
		}
	}
	t.Run("usual claim and further holds", func(t *testing.T) {
		c := claimed()
		inner := nested(c)
		acquire(t, r.direct, c)
		if v := r.asks.Get(t.Context(), stored(c)).Val(); v != fmt.Sprintf("%d %s %s", c.TTL.Milliseconds(), c.Owner, c.Lease) {
			t.Errorf("the value is %q", v)
		}
		acquire(t, r.direct, inner)
		is(t, c, "h:"+c.Lease, "h:"+inner.Lease, "t")
		release(t, r.direct, inner)
		release(t, r.direct, c)
		is(t, c)
	})
	t.Run("many waiters are one field", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		var wg sync.WaitGroup
		for range 200 { // each place lasts for at most WaiterLife
			wg.Go(func() {
				w := claimOf(c.Key)
				w.Wait = true
				_, err := r.direct.Acquire(t.Context(), w)
				// If the machine was too slow, the acquire is repeated.
				for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
					_, err = r.direct.Acquire(t.Context(), w)
				}
				if !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		is(t, c, "h:"+c.Lease, "t", "w")
		if n := strings.Count(r.fields(t, c)["w"], "\n"); n != 201 {
			t.Errorf("the list has %d line ends, want 201", n)
		}
	})
	t.Run("expired holds are dropped", func(t *testing.T) {
		c, next := claimed(), store.Claim{}
		c.Weight = 1
		gone, waits := c, c
		acquire(t, r.direct, c)
		for range 5 {
			gone.Lease, gone.Owner, gone.TTL = rand.Text(), rand.Text(), time.Millisecond
			acquire(t, r.direct, gone)
			waits.Lease, waits.Owner, waits.TTL, waits.Wait = rand.Text(), rand.Text(), time.Millisecond, true
			waits.Weight = store.All
			_, _ = r.direct.Acquire(t.Context(), waits)
		}
		time.Sleep(5 * time.Millisecond)
		next = claimOf(c.Key)
		next.Wait = true
		_, err := r.direct.Acquire(t.Context(), next)
		wantIs(t, "acquire", err, store.ErrBusy)
		is(t, c, "h:"+c.Lease, "w")
		if w := r.fields(t, c)["w"]; strings.Count(w, "\n") != 2 || !strings.Contains(w, next.Lease) {
			t.Errorf("the list is %q", w)
		}
	})
	t.Run("a thousand dead holds", func(t *testing.T) {
		c := claimed()
		dead := "f"
		for range 5000 {
			dead += "\th:" + rand.Text() + " 1000000000001000 1000 owner 1"
		}
		if err := r.asks.Set(t.Context(), stored(c), dead, time.Minute).Err(); err != nil {
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
	t.Run("token ahead of the clock", func(t *testing.T) {
		c := claimed()
		c.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
		g := acquire(t, r.direct, c)
		release(t, r.direct, c)
		is(t, c, "t")
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < 55*time.Second || left > 61*time.Second {
			t.Errorf("it stays for %v", left)
		}
		if next := acquire(t, r.direct, claimOf(c.Key)); next.Token != g.Token+store.TokenStep {
			t.Errorf("the next token is %d, want %d", next.Token, g.Token+store.TokenStep)
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
	t.Run("plain key has the owner", func(t *testing.T) {
		s := newStore(t, r.asks, redisstore.WithPlainKeys(), redisstore.WithPrefix("their:"))
		c := claimed()
		acquire(t, s, c)
		if v := r.asks.Get(t.Context(), "their:"+c.Key).Val(); v != c.Owner {
			t.Errorf("the value is %q, want the owner", v)
		}
	})
	t.Run("life of a place in line", func(t *testing.T) {
		c, w := claimed(), store.Claim{}
		acquire(t, r.direct, c)
		w = claimOf(c.Key)
		w.Wait = true
		_, _ = r.direct.Acquire(t.Context(), w)
		var lease string
		var deadline int64
		if _, err := fmt.Sscan(r.fields(t, c)["w"], &lease, &deadline); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(time.UnixMilli(deadline)); left > store.WaiterLife || left < store.WaiterLife-5*time.Second {
			t.Errorf("it lives for %v, want about %v", left, store.WaiterLife)
		}
	})
}

// TestRoundTrips checks that acquire and release send three commands: SET, TIME and one
// script. It also checks their length, and that 100 extensions use one connection.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	first := claimed()
	acquire(t, r.store, first)
	release(t, r.store, first)
	r.proxy.Forget()
	c := claimed()
	acquire(t, r.store, c)
	release(t, r.store, c)
	if got := strings.Join(names(r.proxy), " "); got != "set time evalsha" {
		t.Errorf("a cycle is %s", got)
	}
	if n := r.proxy.Bytes(); n > 700 {
		t.Errorf("a cycle is %d bytes", n)
	}
	var batch []store.Claim
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
	for _, c := range r.proxy.Requests() {
		links[c.Link] = true
	}
	if n := r.proxy.Count(testserver.Match{Script: "extend"}); n != 100 || len(links) != 1 {
		t.Errorf("a batch of 100 was %d commands over %d connections", n, len(links))
	}
}
