package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func reply(b []byte, depth int) (v any, rest []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	kind, b := b[0], b[1:]
	switch kind % 8 {
	case 0, 1, 2: // small numbers, which have the most meanings
		return int64(kind/8) - 2, b
	case 3:
		var n [8]byte
		return int64(binary.LittleEndian.Uint64(append(n[:0], append(b, n[:]...)[:8]...))), b[min(8, len(b)):]
	case 4:
		n := min(int(kind/8), len(b))
		return string(b[:n]), b[n:]
	case 5:
		return []any{nil, true, 1.5, map[any]any{int64(0): "x"}, errors.New("x")}[kind/8%5], b
	}
	list := []any{}
	for n := int(kind / 8 % 8); n > 0 && len(b) > 0 && depth > 0; n-- {
		v, b = reply(b, depth-1)
		list = append(list, v)
	}
	return list, b
}

// FuzzReply parses any reply of a server without a panic. An invalid reply is neither a
// grant nor a refusal.
func FuzzReply(f *testing.F) {
	for _, b := range [][]byte{
		{}, {16}, {24}, {0}, {3, 1, 2, 3, 4, 5, 6, 7}, {3, 255, 255, 255, 255, 255, 255, 255, 255}, {12, 'x'}, {5}, {13}, {29},
		{14, 16}, {22, 16, 24}, {30, 16, 24, 12, 'o'}, {54, 16, 24, 12, 'o', 24, 24, 12, 'v'}, {22, 24, 255}, {14, 32}, {14, 40}, {46, 48, 24, 24, 12, 'v'},
		{14, 5}, {22, 14, 16}, {54, 16, 24, 5, 5, 5, 5},
	} {
		for _, kind := range []byte{0, 1, 2} {
			f.Add(b, kind)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, kind byte) {
		v, _ := reply(b, 3)
		c := store.Claim{Key: "k", Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Second}
		if kind%3 > 0 {
			c.Weight = 1
		}
		if kind%3 > 1 {
			c.Record = &store.Record{Value: []byte("begun")}
		}
		g, err := redisstore.Granted(c, v)
		list, isList := v.([]any)
		word, isNumber := int64(0), false
		if isList && len(list) > 0 {
			word, isNumber = list[0].(int64)
		}
		switch {
		case err == nil && g.Owner == "":
			t.Errorf("%#v: a grant without an owner", v)
		case err == nil && (g.Record != nil) != (c.Record != nil):
			t.Errorf("%#v: a grant with the record %v", v, g.Record)
		case err == nil && g.Token > math.MaxInt64:
			t.Errorf("%#v: a grant with token %d", v, g.Token)
		case err == nil && isList && word != 0 && word != 4:
			t.Errorf("%#v: a grant", v)
		case err != nil && (g.Owner != "" || g.Token != 0):
			t.Errorf("%#v: %v with a grant", v, err)
		case errors.Is(err, store.ErrUnavailable):
			t.Errorf("%#v: %v, though it may be granted", v, err)
		case errors.Is(err, store.ErrBusy) && (!isNumber || word != 1), errors.Is(err, store.ErrLost) && (!isNumber || word != 2):
			t.Errorf("%#v: %v", v, err)
		}
		err = redisstore.Confirmed(v)
		if ok := err == nil; ok && isList && (!isNumber || word != 0) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%#v: confirmed with %v", v, err)
		}
	})
}

// FuzzNames checks claims with any names. A claim is refused before anything is sent,
// or it changes its own key correctly and no other key.
func FuzzNames(f *testing.F) {
	for _, s := range []string{
		"order:42|o|l", "a b|o|l", "%|%|%", "order:ä€😀|ö|ß", "\n|\n|\n", "a\x00b|o|l", "a{b}|o|l", "|o|l", "k||l", "k|o|", "k|a b|l",
		"k|o|h:l", "*?[a]|^%d+$|(%d)", "k|'|\"", "k|\\|\\n", "k|o|" + strings.Repeat("l", 256), strings.Repeat("k", 512) + "|o|l",
		strings.Repeat("k", 513) + "|o|l", "k|o|\u00a0", "k|o|\u2028", "k|o|\xff", "\xff|o|l", "k|1 2 3|4", "k|-1|0", "k|o|l%S+",
	} {
		parts := strings.Split(s, "|")
		f.Add(parts[0], parts[1], parts[2])
	}
	server := testserver.StartRedis(f)
	s, asks := newStore(f, testclient.Redis(f, server.Addr), redisstore.WithPrefix("p ")), testclient.Redis(f, server.Addr)
	f.Fuzz(func(t *testing.T, key, owner, lease string) {
		ctx := context.Background()
		c := store.Claim{Key: key, Owner: owner, Lease: lease, Weight: store.All, Limit: store.All, TTL: 10 * time.Second}
		g, err := s.Acquire(ctx, c)
		if errors.Is(err, store.ErrInvalid) {
			if n := asks.DBSize(ctx).Val(); n != 0 {
				t.Fatalf("refused, and %d keys are there", n)
			}
			return
		}
		if err != nil || g.Owner != owner || g.Token == 0 {
			t.Fatalf("acquire: %+v and %v", g, err)
		}
		if keys := asks.Keys(ctx, "*").Val(); len(keys) != 1 || keys[0] != "p lk2:{"+key+"}" {
			t.Fatalf("the keys are %q", keys)
		}
		waits := c
		waits.Owner, waits.Lease, waits.Wait, waits.Fair = owner+"2", lease+"2", true, true
		if len(waits.Owner) > 256 || len(waits.Lease) > 256 {
			waits.Owner, waits.Lease = "o2", "l2"
		}
		watching, stop := context.WithCancel(ctx)
		defer stop()
		woken, err := s.Watch(watching, waits)
		if err != nil {
			t.Fatalf("watch: %v", err)
		}
		for range 2 {
			if _, err := s.Acquire(ctx, waits); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("acquire by another: %v", err)
			}
		}
		if f, err := testclient.Fields(ctx, asks, "p lk2:{"+key+"}"); err != nil || strings.Count(f["w"], "\n") != 2 {
			t.Fatalf("what is stored is %q (%v)", f, err)
		}
		again, err := s.Acquire(ctx, c)
		if err != nil || again.Owner != g.Owner {
			t.Fatalf("the same again: %+v and %v", again, err)
		}
		if err := extend(s, c); err != nil {
			t.Fatalf("extend: %v", err)
		}
		if err := s.Release(ctx, c); err != nil {
			t.Fatalf("release: %v", err)
		}
		select {
		case <-woken:
		case <-time.After(10 * time.Second):
			t.Fatal("no wake-up")
		}
		if next, err := s.Acquire(ctx, waits); err != nil || next.Token <= g.Token {
			t.Fatalf("acquire by the waiter: %+v and %v", next, err)
		}
		if err := s.Release(ctx, waits); err != nil {
			t.Fatalf("release by the waiter: %v", err)
		}
		if err := s.Release(ctx, c); !errors.Is(err, store.ErrLost) {
			t.Fatalf("release again: %v", err)
		}
		if _, err := s.Acquire(ctx, c); !errors.Is(err, store.ErrLost) {
			t.Fatalf("acquire after that: %v", err)
		}
		asks.Del(ctx, "p lk2:{"+key+"}")
		if n := asks.DBSize(ctx).Val(); n != 0 {
			t.Fatalf("%d keys are left", n)
		}
	})
}

// FuzzPush parses any message without a panic. A grant in the message names a place,
// has a token, and lasts for at most store.WaiterLife.
func FuzzPush(f *testing.F) {
	for _, text := range []string{
		"", " ", "  ", "1790000000000 1790000000000000 8500", "1 2 3", "1 2 3 4", "1 2", "1 2 -3", "1 -2 3", "1 2 0", "1 2 x", "1  3",
		"1 18446744073709551615 3", "1 18446744073709551616 3", "1 2 9223372036854775807", "1 2 9223372036855", "1 2 3\n", "1\n2 3 4", "1 2 +3", "1 0x2 3",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		until, token, valid, ok := redisstore.ReadPush(text)
		if !ok {
			return
		}
		if valid <= 0 || valid > store.WaiterLife {
			t.Errorf("%q is a grant for %v", text, valid)
		}
		words := strings.Split(text, " ")
		if n, err := strconv.ParseUint(words[1], 10, 64); len(words) != 3 || words[0] != until || n != token || err != nil {
			t.Errorf("%q is read as %q, %d", text, until, token)
		}
	})
}

// FuzzInfo parses any reply of INFO without a panic. A reply without online replicas,
// and the reply of a replica, must make the server unfit.
func FuzzInfo(f *testing.F) {
	for _, text := range []string{
		"", "redis_version:7.0.15\r\nrole:master\r\n", "redis_version:6.1.9\r\n", "redis_version:6\r\n", "redis_version:a.b.c\r\n",
		"redis_version:\r\nrole:slave\r\nloading:1", ":\r\n:::\r\n", "slave0:ip=1,state=online\r\nslave:\r\n", "maxmemory_policy:allkeys-lru",
		"aof_last_write_status:err\nrdb_last_bgsave_status:err", "redis_version:-1.-2.-3\n", "redis_version:99999999999999999999.0.0\n",
	} {
		f.Add(text)
	}
	server := testserver.StartRedis(f)
	s := newStore(f, testclient.Redis(f, server.Addr), redisstore.WithReplicas(1, time.Millisecond))
	f.Fuzz(func(t *testing.T, text string) {
		faults := strings.Join(s.Unfit(text), "\n")
		if !strings.Contains(text, "state=online") && !strings.Contains(faults, "replicas") {
			t.Errorf("%q has no replicas, and Check says %q", text, faults)
		}
		if text == "role:slave" && !strings.Contains(faults, "slave") {
			t.Errorf("%q is fit", text)
		}
	})
}
