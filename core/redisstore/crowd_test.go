package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// enter has n readers of the key of c, each of an owner of its own.
func enter(t *testing.T, s *redisstore.Store, c store.Claim, n int) []store.Claim {
	t.Helper()
	readers, in := make([]store.Claim, n), make(chan store.Claim)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for c := range in {
				if _, err := s.Acquire(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range readers {
		readers[i] = shared(claimOf(c.Key))
		in <- readers[i]
	}
	close(in)
	wg.Wait()
	return readers
}

// plant has a key be a hash: its tombstones are more leases than a string has.
func plant(s *redisstore.Store, key string) {
	for range 20 {
		_ = s.Release(context.Background(), claimOf(key))
	}
}

// crowdFault returns what is wrong with the fields of a hash that follow from others.
func crowdFault(fields map[string]string) string {
	var written, ends, first, count, sum, kept int64
	if _, err := fmt.Sscan(fields["n"], &written, &ends, &first, &count, &sum, &kept); err != nil {
		return fmt.Sprintf("n is %q", fields["n"])
	}
	for name, text := range fields {
		kind, lease, _ := strings.Cut(name, ":")
		if !strings.Contains("hkd", kind) || text == "" || name == beside {
			continue
		}
		words := strings.Split(text, " ")
		var since, ms, weight int64
		_, _ = fmt.Sscan(words[0]+" "+words[1], &since, &ms)
		if kind != "d" {
			_, _ = fmt.Sscan(words[3], &weight)
		}
		count, sum = count-1, sum-weight
		if kind == "k" {
			kept -= weight
		}
		if deadline := since/1000 + ms; since > written || deadline < first || deadline > ends {
			return fmt.Sprintf("%s %s beside n %s", name, text, fields["n"])
		}
		if kind == "h" && !strings.Contains(fields["o:"+words[2]], " "+lease+" ") {
			return fmt.Sprintf("%s is not in %q of its owner", name, fields["o:"+words[2]])
		}
	}
	if count != 0 || sum != 0 || kept != 0 {
		return fmt.Sprintf("n counts %d leases, a weight of %d and a kept one of %d too many: %v", count, sum, kept, fields)
	}
	return ""
}

// What a script reads and writes for a reader or a permit does not grow with a crowd. Only
// once in a while it reads and writes all: when the first of them may have expired.
func TestCrowdCostsNoMore(t *testing.T) {
	t.Parallel()
	testserver.RequireLua(t)
	server := testserver.StartRedis(t)
	r := newLuaRecorder(t, server.Addr)
	s, direct := newStore(t, testclient.Redis(t, r.proxy.Addr)), newStore(t, testclient.Redis(t, server.Addr))
	acquire(t, s, claimOf("known")) // the scripts are
	size := make(map[string][]int)
	for _, n := range []int{10, 2000} {
		c := shared(claimed())
		enter(t, direct, c, n)
		measured := func(name string, do func()) {
			r.step("", stored(c), do)
			size[name] = append(size[name], r.size)
		}
		measured("acquire", func() { acquire(t, s, c) })
		longer := c
		longer.TTL *= 2
		measured("extend", func() { wantIs(t, "extend", extend(s, longer), nil) })
		w := claimOf(c.Key)
		w.Wait = true
		measured("wait", func() { busyWith(t, s, w) })
		measured("release beside a waiter", func() { release(t, s, c) })
		permit := shared(claimOf(c.Key))
		permit.Limit, permit.Lease = int64(n), rand.Text()
		measured("be refused a permit", func() { busyWith(t, s, permit) })
		permit.Limit++
		measured("get a permit", func() { acquire(t, s, permit) })
		measured("release a permit", func() { release(t, s, permit) })
	}
	for name, n := range size {
		t.Logf("%s: %d bytes beside 10, %d beside 2,000", name, n[0], n[1])
		if n[1] > 2*n[0] {
			t.Errorf("%s: %d bytes beside 10, %d beside 2,000", name, n[0], n[1])
		}
	}
}

// A user that may not write hashes has a string of any length: nothing is lost on the way.
func TestCrowdWithoutRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, denied := range []string{"hset", "del", "pexpire"} {
		t.Run(denied, func(t *testing.T) {
			r.server.Do("ACL", "SETUSER", "no-"+denied, "reset", "on", ">pw", "~*", "&*", "+@all", "-"+denied)
			s := newStore(t, testclient.Redis(t, r.server.Addr, func(o *redis.Options) { o.Username, o.Password = "no-"+denied, "pw" }))
			c := claimed()
			readers := enter(t, s, c, 30)
			if got := len(r.fields(t, c)); got != 30 {
				t.Errorf("%d readers are stored, want 30", got)
			}
			for _, reader := range readers {
				release(t, r.direct, reader)
			}
			acquire(t, r.direct, c)
		})
	}
}
