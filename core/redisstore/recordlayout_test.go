package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRecordLayout checks the stored entries of runs and their lifetimes.
func TestRecordLayout(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	lives := func(t *testing.T, c store.Claim, about time.Duration) {
		t.Helper()
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left > about || left < about-20*time.Second {
			t.Errorf("the key lives for %v, want about %v", left, about)
		}
	}
	record := func(t *testing.T, c store.Claim) (attempt, state, lease string) {
		t.Helper()
		words := strings.Split(r.fields(t, c)["r"], " ")
		if len(words) != 4 {
			t.Fatalf("the record is %q", r.fields(t, c)["r"])
		}
		return words[1], words[2], words[3]
	}
	t.Run("record and value are two fields", func(t *testing.T) {
		c := begins(claimed(), "begun")
		acquire(t, r.direct, c)
		if a, s, l := record(t, c); a != "1" || s != "0" || l != c.Lease {
			t.Errorf("the record is attempt %s, state %s, by %s", a, s, l)
		}
		lives(t, c, time.Hour)
		release(t, r.direct, saves(c, "answer", 1, true))
		if a, s, l := record(t, c); a != "1" || s != "1" || l != c.Lease {
			t.Errorf("the record is attempt %s, state %s, by %s", a, s, l)
		}
		f := r.fields(t, c)
		delete(f, "t") // deleted once the clock has passed the tokens
		if len(f) != 2 || f["v"] != "answer" {
			t.Errorf("the fields are %v", f)
		}
		lives(t, c, time.Hour)
	})
	t.Run("another lease saves nothing", func(t *testing.T) {
		c := begins(claimed(), "begun")
		c.Last = acquire(t, r.direct, c).Token
		time.Sleep(time.Millisecond) // the clock passes the tokens of the grant
		other := claimOf(c.Key)
		other.Last, other.TTL = c.Last, 0 // so the release leaves no tombstone
		wantIs(t, "release", r.direct.Release(t.Context(), saves(other, "other", 1, true)), store.ErrLost)
		if f := r.fields(t, c); f["v"] != "begun" || f["h:"+c.Lease] == "" {
			t.Errorf("the fields are %v", f)
		}
		release(t, r.direct, saves(c, "answer", 1, true))
		if f := r.fields(t, c); f["v"] != "answer" || !strings.HasPrefix(f["r"], "0 1 1 ") {
			t.Errorf("test setup: the fields are %v, which was not done by the shortcut", f)
		}
	})
	t.Run("extension keeps the record", func(t *testing.T) {
		c := begins(claimed(), "begun")
		acquire(t, r.direct, c)
		c.TTL = 2 * time.Minute
		if err := extend(r.direct, c); err != nil {
			t.Fatal(err)
		}
		lives(t, c, time.Hour)
		c.TTL = 2 * time.Hour
		if err := extend(r.direct, c); err != nil {
			t.Fatal(err)
		}
		lives(t, c, 2*time.Hour)
	})
	t.Run("lock beside a record", func(t *testing.T) {
		c, plain := begins(claimed(), "begun"), store.Claim{}
		acquire(t, r.direct, c)
		release(t, r.direct, saves(c, "answer", 1, true))
		for range 3 {
			plain = claimOf(c.Key)
			acquire(t, r.direct, plain)
			release(t, r.direct, plain)
		}
		lives(t, c, time.Hour)
		wantRecord(t, acquire(t, r.direct, begins(claimOf(c.Key), "again")), "answer", 1, true)
	})
	t.Run("expired record is dropped", func(t *testing.T) {
		c, beside := begins(claimed(), "begun"), store.Claim{}
		c.Weight = 1
		beside = claimOf(c.Key)
		beside.Weight = 1
		acquire(t, r.direct, beside)
		acquire(t, r.direct, c)
		last := saves(c, "answer", 1, true)
		last.Record.Retain = time.Millisecond
		release(t, r.direct, last)
		time.Sleep(5 * time.Millisecond)
		acquire(t, r.direct, nested(beside))
		if f := r.fields(t, c); len(f) != 2 {
			t.Errorf("the fields are %v", f)
		}
	})
	t.Run("finished record empties the queue", func(t *testing.T) {
		c := begins(claimed(), "begun")
		acquire(t, r.direct, c)
		var all []store.Claim
		for i := range 6 {
			w := claimOf(c.Key)
			if i%3 > 0 {
				w = begins(w, "again")
			}
			w.Wait, w.Fair = true, i%3 > 1
			_, err := r.direct.Acquire(t.Context(), w)
			wantIs(t, "acquire", err, store.ErrBusy)
			all = append(all, w)
		}
		release(t, r.direct, saves(c, "answer", 1, true))
		list := r.fields(t, c)["w"]
		for i, w := range all {
			if strings.Contains(list, w.Lease) && w.Record != nil {
				t.Errorf("waiter %d is still in line", i)
			}
		}
	})
}

// TestRecordMemory checks that a record takes little more memory than its value.
func TestRecordMemory(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s, asks := newStore(t, testclient.Redis(t, server.Addr)), testclient.Redis(t, server.Addr)
	for _, size := range []int{0, 40, 1000, 100_000} {
		c := begins(claimed(), "begun")
		acquire(t, s, c)
		release(t, s, saves(c, strings.Repeat("x", size), 1, true))
		used := asks.MemoryUsage(t.Context(), stored(c)).Val()
		if used > int64(size+size/4+400) {
			t.Errorf("an answer of %d bytes takes %d", size, used)
		}
	}
}
