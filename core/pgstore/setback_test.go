package pgstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// setBack changes the row of c as if the server's clock had been set back. It moves all
// times in the row into the future by the same duration.
func setBack(t *testing.T, server *testserver.Postgres, c store.Claim, by time.Duration) {
	t.Helper()
	n := by.Microseconds()
	row := server.Exec("SELECT convert_from(coalesce(state, ''), 'UTF8') FROM lockkit.locks WHERE name = '" + c.Key + "'")
	if len(row) != 1 {
		t.Fatal("test setup: nothing is stored")
	}
	state := moments.ReplaceAllStringFunc(row[0], func(field string) string {
		name, value, _ := strings.Cut(field, ":")
		at, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return name + ":" + strconv.FormatInt(at+n, 10)
	})
	server.Exec(fmt.Sprintf(`UPDATE lockkit.locks SET token = token + %[2]d, written = written + %[2]d,
		since = CASE since WHEN 0 THEN 0 ELSE since + %[2]d END, until = CASE until WHEN 0 THEN 0 ELSE until + %[2]d END,
		state = CASE WHEN state IS NOT NULL THEN convert_to('%[3]s', 'UTF8') END WHERE name = '%[1]s'`, c.Key, n, state))
}

// moments matches the fields of a state that are times or tokens.
var moments = regexp.MustCompile(`"(written|token|since|until)":\d+`)

// granted repeats the acquire until the claim is granted, as a waiter does.
func granted(t *testing.T, s store.Store, c store.Claim) store.Grant {
	t.Helper()
	var g store.Grant
	testserver.Eventually(t, patience, "the key is free", func() bool {
		var err error
		if g, err = s.Acquire(t.Context(), c); err != nil {
			wantIs(t, "acquire", err, store.ErrBusy)
		}
		return err == nil
	})
	return g
}

func busyFor(t *testing.T, s store.Store, c store.Claim, least, most time.Duration) {
	t.Helper()
	_, err := s.Acquire(t.Context(), exclusive(c.Key))
	var busy *store.BusyError
	ok := errors.As(err, &busy)
	if !ok || busy.RetryAfter < least || busy.RetryAfter > most {
		t.Fatalf("acquire: got %#v, want busy for %v to %v", err, least, most)
	}
}

// TestClockSetBack checks that a clock that is set back does not prolong holds (hazard
// 20). The holds' deadlines are then too far in the future.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	server := database(t, "TimeZone = 'America/St_Johns'") // where days differ in length
	s := newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=12")))
	const ttl, slack = 400 * time.Millisecond, 20 * time.Millisecond
	const back = 200 * 24 * time.Hour

	// A dead holder's key is free after its TTL, and the token grows.
	t.Run("dead holder", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.TTL = ttl
		before := acquire(t, s, c)
		setBack(t, server, c, back)
		start := time.Now()
		busyFor(t, s, c, time.Millisecond, ttl)
		next := exclusive(c.Key)
		after := granted(t, s, next)
		if took := time.Since(start); took < ttl-slack {
			t.Errorf("the key was free after %v, which is less than the TTL", took)
		}
		if floor := before.Token + uint64(back.Microseconds()); after.Token <= floor {
			t.Errorf("the token is %d after %d", after.Token, floor)
		}
		release(t, s, next)
		if again := acquire(t, s, exclusive(c.Key)); again.Token <= after.Token {
			t.Errorf("the token is %d after %d", again.Token, after.Token)
		}
	})
	// A live holder keeps the key, whether its hold is extended alone or in a batch.
	t.Run("live holder", func(t *testing.T) {
		t.Parallel()
		for _, batch := range []int{0, 1} {
			c := claimed()
			c.TTL = 2 * time.Second
			acquire(t, s, c)
			setBack(t, server, c, back)
			claims := append(make([]store.Claim, 0, 2), c)
			for range batch {
				claims = append(claims, claimed())
			}
			for end := time.Now().Add(2 * c.TTL); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if x := s.Extend(t.Context(), claims); x[0].Err != nil {
					t.Fatalf("extend: %v", x[0].Err)
				}
				busyFor(t, s, c, time.Millisecond, c.TTL)
			}
			release(t, s, c)
		}
	})
	// If a hold is extended or claimed again for a longer time than before, it lasts for
	// that time.
	t.Run("longer TTL", func(t *testing.T) {
		t.Parallel()
		for _, again := range []func(c store.Claim) error{
			func(c store.Claim) error { return s.Extend(t.Context(), []store.Claim{c})[0].Err },
			func(c store.Claim) error { return second(s.Acquire(t.Context(), c)) },
		} {
			c := claimed()
			c.TTL = ttl
			acquire(t, s, c)
			setBack(t, server, c, back)
			c.TTL = time.Minute
			if err := again(c); err != nil {
				t.Fatal(err)
			}
			busyFor(t, s, c, 30*time.Second, time.Minute)
			setBack(t, server, c, back)
			busyFor(t, s, c, 30*time.Second, time.Minute)
		}
	})
	// Each of several readers expires after its own TTL, even if others are extended.
	t.Run("several readers", func(t *testing.T) {
		t.Parallel()
		short := claimed()
		short.Weight, short.TTL = 1, ttl
		long := exclusive(short.Key)
		long.Weight = 1
		acquire(t, s, short)
		acquire(t, s, long)
		setBack(t, server, short, back)
		extend := func(c store.Claim) error { return s.Extend(t.Context(), []store.Claim{c})[0].Err }
		if err := extend(long); err != nil {
			t.Errorf("extend: %v", err)
		}
		testserver.Eventually(t, patience, "the short reader's hold is over", func() bool {
			state, err := s.Look(t.Context(), short.Key)
			return err == nil && len(state.Holds) == 1
		})
		wantIs(t, "extend", extend(short), store.ErrLost)
		busyFor(t, s, long, time.Second, long.TTL)
		release(t, s, long)
		acquire(t, s, exclusive(long.Key))
	})
	t.Run("kept key", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.Keep = ttl
		acquire(t, s, c)
		release(t, s, c)
		setBack(t, server, c, back)
		granted(t, s, exclusive(c.Key))
	})
	// A dead waiter at the head of the queue does not delay others for long, and a live
	// waiter keeps its place.
	t.Run("head of the queue", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		acquire(t, s, c)
		dead, live, next := exclusive(c.Key), exclusive(c.Key), exclusive(c.Key)
		dead.TTL = ttl
		for _, w := range []*store.Claim{&dead, &live, &next} {
			w.Fair, w.Wait = true, true
			wantIs(t, "acquire", second(s.Acquire(t.Context(), *w)), store.ErrBusy)
		}
		setBack(t, server, c, back)
		release(t, s, c)
		granted(t, s, live)
		release(t, s, live)
		acquire(t, s, next)
	})
	// An acquire that arrives after its release is refused.
	t.Run("straggler after its release", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		wantIs(t, "release of an unknown lease", s.Release(t.Context(), c), store.ErrLost)
		setBack(t, server, c, back)
		for range 2 {
			wantIs(t, "the straggler", second(s.Acquire(t.Context(), c)), store.ErrLost)
			held(t, s, c, false)
		}
	})
	// An answer stays for the whole time of its Retain.
	t.Run("kept answer", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
		acquire(t, s, c)
		last := c
		last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Minute}
		release(t, s, last)
		setBack(t, server, c, back)
		held(t, s, c, false)
		again := exclusive(c.Key)
		again.Record = c.Record
		if r := acquire(t, s, again).Record; r == nil || string(r.Value) != "answer" || r.Retain > time.Minute || r.Retain < 30*time.Second {
			t.Errorf("got %+v, want the answer for a minute", r)
		}
	})
}
