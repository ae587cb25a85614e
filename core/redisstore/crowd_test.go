package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// enter makes n readers of c's key, each with its own owner.
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

// plant turns a key into a hash, by more tombstones than a string may have.
func plant(s *redisstore.Store, key string) {
	for range 20 {
		_ = s.Release(context.Background(), claimOf(key))
	}
}

// crowdFault returns an inconsistency between the fields of a hash, or "".
func crowdFault(fields map[string]string) string {
	var written, first, free, count, sum, kept int64
	if _, err := fmt.Sscanf(fields["n"], "%d %d %d %d %d %d", &written, &first, &free, &count, &sum, &kept); err != nil {
		return fmt.Sprintf("n is %q", fields["n"])
	}
	lists := make(map[string]int)
	for name, text := range fields {
		kind, lease, _ := strings.Cut(name, ":")
		if kind == "o" {
			lists[name] += len(strings.Fields(text))
			continue
		}
		if !strings.Contains("hkd", kind) || name == beside {
			continue
		}
		words := strings.Split(text, " ")
		var since, ms, weight int64
		_, _ = fmt.Sscan(words[0]+" "+words[1], &since, &ms)
		deadline := since/1000 + ms
		if kind != "d" {
			_, _ = fmt.Sscan(words[3], &weight)
			if deadline < free {
				return fmt.Sprintf("%s %s beside n %s", name, text, fields["n"])
			}
		}
		count, sum = count-1, sum-weight
		if kind == "k" {
			kept -= weight
		}
		if since > written || deadline < first {
			return fmt.Sprintf("%s %s beside n %s", name, text, fields["n"])
		}
		if kind == "h" {
			list := "o:" + words[2]
			if lists[list]--; !strings.Contains(fields[list], " "+lease+" ") {
				return fmt.Sprintf("%s is not in %q of its owner", name, fields[list])
			}
		}
	}
	for name, more := range lists {
		if more != 0 {
			return fmt.Sprintf("%s is %q, which has %d leases too many", name, fields[name], more)
		}
	}
	if count != 0 || sum != 0 || kept != 0 {
		return fmt.Sprintf("n counts %d leases, a weight of %d and a kept one of %d too many: %v", count, sum, kept, fields)
	}
	return ""
}

// TestCrowd_Cost checks that a script's reads and writes for a reader or a permit
// do not grow with the crowd. The script reads and writes everything only when the
// lease that expires first may have expired.
func TestCrowd_Cost(t *testing.T) {
	t.Parallel()
	testserver.RequireLua(t)
	server := testserver.StartRedis(t)
	r := newLuaRecorder(t, server.Addr)
	s, direct := newStore(t, testclient.Redis(t, r.proxy.Addr)), newStore(t, testclient.Redis(t, server.Addr))
	known := claimOf("known") // an unknown script would be sent twice
	known.MinToken = 2
	acquire(t, s, known)
	known.TTL *= 2
	wantIs(t, "extend", extend(s, known), nil)
	release(t, s, known)
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

// TestCrowd_WithoutRights checks users who lack one of the rights for hashes. Their keys
// stay strings of any length, and no hold is lost.
func TestCrowd_WithoutRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, denied := range []string{"hset", "hgetall", "hdel", "del", "pexpire", "pttl"} {
		t.Run(denied, func(t *testing.T) {
			s := newStore(t, testclient.Redis(t, r.server.Addr, lacking(t, r.server, denied)))
			c := claimed()
			readers := enter(t, s, c, 30)
			if got := len(r.fields(t, c)); got != 30 {
				t.Errorf("%d readers are stored, want 30", got)
			}
			leaves := s
			if denied == "del" { // without this right no release works
				leaves = r.direct
			}
			for _, reader := range readers {
				release(t, leaves, reader)
			}
			acquire(t, r.direct, c)
		})
	}
}

// wantCrowd fails the test unless the key is a hash with consistent fields.
func (r *rig) wantCrowd(t *testing.T, c store.Claim) {
	t.Helper()
	fields := r.asks.HGetAll(t.Context(), stored(c)).Val()
	if len(fields) == 0 {
		t.Fatal("test setup: the key is no hash")
	}
	if fault := crowdFault(fields); fault != "" {
		t.Error(fault)
	}
}

// TestCrowd_Calls counts the commands that the server runs for the acquire and the
// release of a reader among others. No command reads the whole hash.
func TestCrowd_Calls(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := shared(claimed())
	enter(t, r.direct, c, 30)
	c.TTL, c.Lease = time.Second, c.Owner
	r.server.Do("CONFIG", "RESETSTAT")
	acquire(t, r.direct, c)
	release(t, r.direct, c)
	for command, want := range map[string]int{"hmget": 2, "hset": 2, "hdel": 2, "pexpire": 0, "hgetall": 0} {
		calls := 0
		_, _ = fmt.Sscanf(r.server.Field("commandstats", "cmdstat_"+command), "calls=%d", &calls)
		if calls != want {
			t.Errorf("%s: %d calls, want %d", command, calls, want)
		}
	}
	r.wantCrowd(t, c)
}

// TestCrowd_LeasesOfOneOwner releases the first of two leases of an owner. The other
// lease must stay in the owner's list.
func TestCrowd_LeasesOfOneOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	first := shared(claimed())
	first.Lease = first.Owner
	plant(r.direct, first.Key)
	joins := shared(claimOf(first.Key))
	joins.Owner, joins.Via = first.Owner, first.Owner
	acquire(t, r.direct, first)
	acquire(t, r.direct, joins)
	release(t, r.direct, first)
	r.wantCrowd(t, first)
}

// TestCrowd_LeaseOfAnotherOwner makes a lease expire in a crowd and then belong to
// another owner. The lease must not make the first owner a holder.
func TestCrowd_LeaseOfAnotherOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	first := claimed()
	plant(r.direct, first.Key)
	joins := claimOf(first.Key)
	joins.Via, joins.TTL = first.Owner, time.Millisecond
	acquire(t, r.direct, first)
	acquire(t, r.direct, joins)
	time.Sleep(1100 * time.Millisecond) // so long that the next call removes the lease
	longer := first
	longer.TTL *= 2
	wantIs(t, "extend", extend(r.direct, longer), nil)
	r.wantCrowd(t, first)
	release(t, r.direct, first)
	joins.TTL = time.Minute
	if g := acquire(t, r.direct, joins); g.Owner != joins.Owner {
		t.Fatalf("got owner %q, want %q", g.Owner, joins.Owner)
	}
	busyWith(t, r.direct, nested(first))
	r.wantCrowd(t, first)
}

// TestCrowd_Lists checks that each lease in an owner's list is read too. The lease can
// belong to another owner.
func TestCrowd_Lists(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c, other := claimed(), store.Claim{}
	other = claimOf(c.Key)
	plant(r.direct, c.Key)
	acquire(t, r.direct, c)
	r.asks.HSet(t.Context(), stored(c), "o:"+other.Owner, " "+c.Lease+" ")
	busyWith(t, r.direct, other)
	other.Owner, other.Via = "another", other.Owner
	busyWith(t, r.direct, other)
}

// TestCrowd_RetryAfter checks that tombstones do not change RetryAfter of a busy claim.
func TestCrowd_RetryAfter(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := claimed()
	c.TTL = time.Hour
	plant(r.direct, c.Key)
	acquire(t, r.direct, c)
	plant(r.direct, c.Key)
	var busy *store.BusyError
	if _, err := r.direct.Acquire(t.Context(), claimOf(c.Key)); !errors.As(err, &busy) {
		t.Fatalf("acquire: got %v, want busy", err)
	}
	if busy.RetryAfter < 59*time.Minute || busy.RetryAfter > time.Hour {
		t.Errorf("got a retry after %v, want an hour", busy.RetryAfter)
	}
}

// TestCrowd_Emptied checks that a hash does not outlive its entries, even if the last
// entries have just been removed.
func TestCrowd_Emptied(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	long := shared(claimed())
	long.TTL = time.Hour
	acquire(t, r.direct, long)
	plant(r.direct, long.Key)
	r.wantCrowd(t, long)
	release(t, r.direct, long)
	// Here all entries look as if they had expired long ago.
	fields := r.asks.HGetAll(t.Context(), stored(long)).Val()
	for name := range fields {
		if strings.HasPrefix(name, "d:") {
			fields[name] = "1 1"
		}
	}
	n := strings.Fields(fields["n"])
	n[1] = "1"
	fields["n"] = strings.Join(n, " ")
	r.asks.HSet(t.Context(), stored(long), fields)
	if state, err := r.direct.Look(t.Context(), long.Key); err != nil || len(state.Holds) > 0 {
		t.Errorf("look: got %+v, %v, want no hold", state, err)
	}
	wantIs(t, "extend", extend(r.direct, long), store.ErrLost)
	if left := r.asks.PTTL(t.Context(), stored(long)).Val(); left > time.Second {
		t.Errorf("got %v left to an empty key: %v", left, r.asks.HGetAll(t.Context(), stored(long)).Val())
	}
}

// TestCrowd_KeyWithLessTime simulates a key from another server, whose clock was ahead.
// The key must live as long as a new lease.
func TestCrowd_KeyWithLessTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := shared(claimed())
	c.TTL = time.Hour
	enter(t, r.direct, c, 30)
	r.asks.PExpire(t.Context(), stored(c), time.Minute)
	acquire(t, r.direct, c)
	if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < 50*time.Minute {
		t.Errorf("got %v left to the key, want an hour", left)
	}
}

// TestCrowd_ForeignExpiry changes a crowd's expiry as another client can. The next
// acquire reads all leases and sets the expiry again. Then the key lives as long as its
// leases, and not for ever.
func TestCrowd_ForeignExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for name, change := range map[string]func(key string){
		"expiry removed": func(key string) { r.asks.Persist(t.Context(), key) },
		"expiry closer":  func(key string) { r.asks.PExpire(t.Context(), key, 5*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			c := shared(claimed())
			c.TTL = time.Minute
			enter(t, r.direct, c, 30)
			change(stored(c))
			c.TTL = 30 * time.Second
			acquire(t, r.direct, c)
			if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < 50*time.Second || left > time.Minute {
				t.Errorf("got %v left to the key, want a minute", left)
			}
		})
	}
}

// TestCrowd_ResentClaim checks that a duplicate of a claim does not change the
// claim's weight, even if the duplicate has another weight.
func TestCrowd_ResentClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, form := range []string{"a string", "a hash"} {
		t.Run(form, func(t *testing.T) {
			c := claimed()
			if form == "a hash" {
				plant(r.direct, c.Key)
			}
			c.Weight, c.Limit = 1, 4
			acquire(t, r.direct, c)
			other := claimOf(c.Key)
			other.Weight, other.Limit = 1, 4
			acquire(t, r.direct, other)
			c.Weight = 3
			acquire(t, r.direct, c)
			more := claimOf(c.Key)
			more.Weight, more.Limit = 2, 4
			acquire(t, r.direct, more)
			if form == "a hash" {
				r.wantCrowd(t, c)
			}
			release(t, r.direct, c)
			release(t, r.direct, other)
			release(t, r.direct, more)
			acquire(t, r.direct, claimOf(c.Key))
		})
	}
}

// TestCrowd_UnreadableNumbers checks that all leases are read if the numbers of a hash
// cannot be read.
func TestCrowd_UnreadableNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := shared(claimed())
	enter(t, r.direct, c, 30)
	for _, n := range []string{"", "1 2 3", "1 2 3 4 -5 6", "1 2 3 4 5 6 7"} {
		r.asks.HSet(t.Context(), stored(c), "n", n)
		busyWith(t, r.direct, claimOf(c.Key))
		acquire(t, r.direct, shared(claimOf(c.Key)))
		r.wantCrowd(t, c)
	}
}

// TestCrowd_ReleaseBesideManyWaiters checks that a release in a crowd reads the holds
// of a limited number of waiting owners.
func TestCrowd_ReleaseBesideManyWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := shared(claimed())
	readers := enter(t, r.direct, c, 30)
	until := time.Now().Add(store.WaiterLife).UnixMilli()
	lines := "\n"
	for i := range 1000 {
		lines += fmt.Sprintf("lease%d %d 0 2147483647 2147483647 owner%d C\n", i, until, i)
	}
	if err := testclient.SetField(t.Context(), r.asks, stored(c), "w", lines); err != nil {
		t.Fatal(err)
	}
	r.server.Do("CONFIG", "RESETSTAT")
	release(t, r.direct, readers[0])
	var calls int
	if _, err := fmt.Sscanf(r.server.Field("commandstats", "cmdstat_hmget"), "calls=%d", &calls); err != nil {
		t.Fatal(err)
	}
	if calls < 2 || calls > 150 {
		t.Errorf("got %d reads, want some 100", calls)
	}
}

// TestCrowd_RefusedRelease checks that a refused release keeps the hold, and does not
// shorten the life of its key.
func TestCrowd_RefusedRelease(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	s := newStore(t, testclient.Redis(t, server.Addr))
	for _, left := range []string{"hset", "hdel"} {
		lacks := newStore(t, testclient.Redis(t, server.Addr, lacking(t, server, left)))
		c := claimed()
		plant(s, c.Key)
		late := claimOf(c.Key)
		late.TTL, c.TTL = time.Millisecond, time.Hour
		_ = s.Release(t.Context(), late) // an expired tombstone
		acquire(t, s, c)
		time.Sleep(1200 * time.Millisecond) // long enough for a read of all leases
		wantIs(t, "release without "+left, lacks.Release(t.Context(), c), store.ErrUnavailable)
		if left := asks.PTTL(t.Context(), stored(c)).Val(); left < 30*time.Minute {
			t.Errorf("the key lasts for %v, and the hold in it for an hour", left)
		}
		wantIs(t, "acquire", second(s.Acquire(t.Context(), claimOf(c.Key))), store.ErrBusy)
	}
}
