package redisstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func wantRecord(t testing.TB, g store.Grant, value string, attempt int, done bool) {
	t.Helper()
	r := g.Record
	if r == nil || string(r.Value) != value || r.Attempt != attempt || r.Done != done {
		t.Fatalf("got record %.200v, want attempt %d with %.40q, done %v", r, attempt, value, done)
	}
}

// TestRecordValues checks that values are returned unchanged. It is not parallel,
// because with other tests a long value can take the server longer than a call may
// last.
func TestRecordValues(t *testing.T) {
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	for name, value := range map[string][]byte{
		"empty": {}, "a zero byte": {0}, "RESP": []byte("$-1\r\n*0\r\n"), "Lua": []byte("]]%d%%s\\0"), "2 MiB of noise": noise,
		"fields": []byte("\th:a 1 2 b\tv c\tt 3"),
	} {
		for _, begun := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s begun %v", name, begun), func(t *testing.T) {
				c, second := claimed(), claimed()
				second.Key = c.Key
				if begun {
					first := acquire(t, s, begins(c, string(value)))
					if first.Record == nil || !bytes.Equal(first.Record.Value, value) {
						t.Error("the first run does not begin with its value")
					}
				} else {
					acquire(t, s, c) // so that the key is a string
				}
				release(t, s, saves(c, string(value), 1, false))
				wantRecord(t, acquire(t, s, begins(second, "again")), string(value), 2, false)
				if err := extend(s, second); err != nil {
					t.Error(err)
				}
				for range 2 {
					release(t, s, saves(second, string(value), 2, true))
				}
				wantRecord(t, acquire(t, s, begins(claimOf(c.Key), "again")), string(value), 2, true)
				plain := claimOf(c.Key)
				acquire(t, s, plain)
				release(t, s, plain)
			})
		}
	}
	everyKeyExpires(t, server)
}

func TestRecordRefusals(t *testing.T) {
	t.Parallel()
	tooMany := math.MaxInt32
	tooMany++ // negative if an int has 32 bits
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	held := begins(claimed(), "begun")
	acquire(t, s, held)
	for name, c := range map[string]struct {
		record  store.Record
		acquire bool // acquire refuses it too
	}{
		"a value above 64 MiB": {store.Record{Value: make([]byte, 64<<20+1), Retain: time.Hour}, true},
		"a negative retention": {store.Record{Retain: -time.Hour}, true},
		"a negative count":     {store.Record{Attempt: -1, Retain: time.Hour}, false},
		"a count without end":  {store.Record{Attempt: tooMany, Retain: time.Hour}, false},
	} {
		begin, last := claimed(), held
		begin.Record, last.Record = &c.record, &c.record
		if _, err := s.Acquire(t.Context(), begin); c.acquire != errors.Is(err, store.ErrInvalid) {
			t.Errorf("acquire with %s: got %v", name, err)
		}
		wantIs(t, "release with "+name, s.Release(t.Context(), last), store.ErrInvalid)
	}
	brief := claimed()
	brief.Record = &store.Record{Retain: time.Microsecond}
	_, err := s.Acquire(t.Context(), brief)
	wantIs(t, "acquire with hardly any retention", err, store.ErrInvalid)
	plain := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys())
	_, err = plain.Acquire(t.Context(), held)
	wantIs(t, "plain acquire", err, store.ErrUnsupported)
	wantIs(t, "plain release", plain.Release(t.Context(), saves(held, "answer", 1, true)), store.ErrUnsupported)
	release(t, s, saves(held, "answer", 1, true))
}

// TestRecordsOutOfMemory checks that a server out of memory begins no run, but saves
// and returns records (hazard 27).
func TestRecordsOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	answered, held, failed := claimed(), claimed(), claimed()
	for _, c := range []store.Claim{answered, held, failed} {
		acquire(t, s, begins(c, "begun"))
	}
	release(t, s, saves(answered, "answer", 1, true))
	release(t, s, saves(failed, "failed", 1, false))
	waits := begins(claimOf(held.Key), "again")
	waits.Wait = true
	_, err := s.Acquire(t.Context(), waits)
	wantIs(t, "acquire", err, store.ErrBusy)

	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	for what, c := range map[string]store.Claim{"a first run": claimed(), "a second run": claimOf(failed.Key)} {
		_, err := s.Acquire(t.Context(), begins(c, "again"))
		wantIs(t, what, err, store.ErrUnavailable)
	}
	wantRecord(t, acquire(t, s, begins(claimOf(answered.Key), "again")), "answer", 1, true)
	long := strings.Repeat("long ", 100_000)
	for range 2 {
		release(t, s, saves(held, long, 1, true))
	}
	wantRecord(t, acquire(t, s, waits), long, 1, true)
	everyKeyExpires(t, server)
	server.Do("CONFIG", "SET", "maxmemory", "0")
	wantRecord(t, acquire(t, s, begins(claimOf(failed.Key), "again")), "failed", 2, false)
}

// TestRecordRoundTrips checks that a replay takes one command, and a run two.
func TestRecordRoundTrips(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	first := begins(claimed(), "begun") // afterwards the server knows the scripts
	acquire(t, r.store, first)
	release(t, r.store, first)
	r.proxy.Forget()
	c := begins(claimed(), "begun")
	acquire(t, r.store, c)
	release(t, r.store, saves(c, "answer", 1, true))
	if n := len(r.proxy.Requests()); n != 2 {
		t.Errorf("a run is %d commands, want 2", n)
	}
	r.proxy.Forget()
	wantRecord(t, acquire(t, r.store, begins(claimOf(c.Key), "again")), "answer", 1, true)
	if n := len(r.proxy.Requests()); n != 1 {
		t.Errorf("a replay is %d commands, want 1", n)
	}
}

// TestRecordFaults loses requests and replies. A record is saved once, by the lease
// that holds the key (hazard 58).
func TestRecordFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	lost := map[string]testserver.Action{
		"the request": testserver.CloseRequest, "the reply": testserver.CloseReply,
	}
	for what, action := range lost {
		t.Run(what+" of an acquire is lost", func(t *testing.T) {
			for range trials {
				c := begins(claimed(), "begun")
				r.proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Lease}, action)
				_, err := r.store.Acquire(t.Context(), c)
				unknown(t, "acquire", err)
				wantRecord(t, acquire(t, r.store, c), "begun", 1, false)
				release(t, r.store, saves(c, "answer", 1, true))
			}
		})
		t.Run(what+" of a release is lost", func(t *testing.T) {
			for i := range trials {
				c := begins(claimed(), "begun")
				acquire(t, r.store, c)
				last := saves(c, fmt.Sprint("answer ", i), 1, i%2 == 0)
				r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, action)
				unknown(t, "release", r.store.Release(t.Context(), last))
				release(t, r.store, last)
				if i%2 == 0 {
					wantRecord(t, acquire(t, r.store, begins(claimOf(c.Key), "again")), fmt.Sprint("answer ", i), 1, true)
				} else {
					wantRecord(t, acquire(t, r.store, begins(claimOf(c.Key), "again")), fmt.Sprint("answer ", i), 2, false)
				}
			}
		})
	}
	t.Run("late answer during the next run", func(t *testing.T) {
		c, next := begins(claimed(), "begun"), store.Claim{}
		acquire(t, r.store, c)
		late := saves(c, "late", 1, true)
		f := r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, testserver.HoldRequest)
		unknown(t, "release", whenFired(t, f, 0, func(ctx context.Context) error { return r.store.Release(ctx, late) }))
		plain := c
		plain.Record = nil
		release(t, r.direct, plain)
		next = begins(claimOf(c.Key), "again")
		wantRecord(t, acquire(t, r.direct, next), "begun", 2, false)
		f.Deliver()
		f.AwaitAnswer(t)
		release(t, r.direct, saves(next, "answer", 2, true))
		wantRecord(t, acquire(t, r.direct, begins(claimOf(c.Key), "again")), "answer", 2, true)
	})
}
