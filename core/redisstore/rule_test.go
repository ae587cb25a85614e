package redisstore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestScripts_Rule compares the scripts with the rule in Go. Both must return the same
// grants and answers, and leave the same holds, waiters, tombstones and records, after
// random steps. Of a token the test compares only whether there is one, and whether it
// is new.
func TestScripts_Rule(t *testing.T) {
	if testing.Short() {
		t.Skip("a busy machine changes no outcome")
	}
	t.Parallel()
	server := testserver.StartRedis(t)
	s, asks := newStore(t, testclient.Redis(t, server.Addr)), testclient.Redis(t, server.Addr)
	if _, err := s.Watch(t.Context(), claimOf("rule")); err != nil {
		t.Fatal(err)
	}
	seeds, steps := uint64(tally.AllTrials(200)), 0
	if os.Getenv("LONG") == "1" {
		seeds *= 10
	}
	for seed := range seeds {
		p := newCast(seed, s, s)
		p.ruled = true
		trace, fault := agree(t.Context(), p, asks, "rule:"+strconv.FormatUint(seed, 10))
		if steps += len(trace); fault != "" {
			t.Fatalf("seed %d: %s\nafter\n%s", seed, fault, strings.Join(trace, "\n"))
		}
	}
	t.Logf("%d sequences with %d steps", seeds, steps)
}

// TestScripts_Crowd makes the same comparison in a crowd, which turns the key
// into a hash and back into a string.
func TestScripts_Crowd(t *testing.T) {
	if testing.Short() {
		t.Skip("a busy machine changes no outcome")
	}
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr))
	asks := testclient.Redis(t, server.Addr, func(o *redis.Options) { o.ReadTimeout = patient })
	if _, err := s.Watch(t.Context(), claimOf("crowd")); err != nil {
		t.Fatal(err)
	}
	seeds, steps, crosses := uint64(tally.AllTrials(20)), 0, 0
	if os.Getenv("LONG") == "1" {
		seeds *= 10
	}
	for seed := range seeds {
		p := newCrowd(seed, s)
		trace, fault := agree(t.Context(), p, asks, "crowd:"+strconv.FormatUint(seed, 10))
		steps, crosses = steps+len(trace), crosses+p.crosses
		if fault != "" {
			t.Fatalf("seed %d: %s\nafter\n%s", seed, fault, strings.Join(trace, "\n"))
		}
	}
	t.Logf("%d sequences with %d steps, in which a key changes its form %d times", seeds, steps, crosses)
	if crosses == 0 {
		t.Error("test setup: the keys keep their form")
	}
}

type deciding interface {
	store.Store
	Revoke(ctx context.Context, key, hold string, keep time.Duration) error
}

// store returns the store for k: s, or the rule in Go for the rule's twin.
func (k *twin) store(s *redisstore.Store) deciding {
	if k.rule == nil {
		return s
	}
	// The state is saved and loaded between the steps.
	text, err := json.Marshal(k.rule)
	k.rule = new(keystate.State)
	if err = cmp.Or(err, json.Unmarshal(text, k.rule)); err != nil {
		panic(err)
	}
	return byRule{k}
}

// byRule is a store of one key that decides by the rule in Go.
type byRule struct{ *twin }

func (k byRule) Acquire(_ context.Context, c store.Claim) (g store.Grant, err error) {
	g, k.woke, err = k.rule.Acquire(time.Now(), c)
	return g, err
}

func (k byRule) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	k.woke = nil
	return []store.Extension{{Err: k.rule.Extend(time.Now(), claims[0])}}
}

func (k byRule) Release(_ context.Context, c store.Claim) (err error) {
	k.woke, err = k.rule.Release(time.Now(), c)
	return err
}

func (k byRule) Revoke(_ context.Context, _, hold string, keep time.Duration) (err error) {
	var found bool
	if k.woke, found = k.rule.Revoke(time.Now(), hold, keep); !found {
		return inspection.Lost("revoke")
	}
	return nil
}

// ruled returns the fields that Redis would have for s, including expired ones.
func ruled(s *keystate.State) map[string]string {
	fields, now := make(map[string]string), time.Now()
	lasts := func(until time.Time) string {
		return fmt.Sprint(now.UnixMicro(), until.Sub(now).Milliseconds())
	}
	for _, h := range s.Holds {
		kind := "h:"
		if h.Owner == "" {
			kind = "k:"
		}
		fields[kind+h.Lease] = fmt.Sprintf("%s %s %d", lasts(h.Until), h.Owner, h.Weight)
	}
	for _, d := range s.Tombs {
		fields["d:"+d.Lease] = lasts(d.Until)
	}
	for _, w := range s.Waiters {
		kind := 0
		if w.Fair {
			kind++
		}
		if w.Run {
			kind += 2
		}
		fields["w"] += fmt.Sprintf("%s %d %d %d %d %s C\n", w.Lease, w.Until.UnixMilli(), kind, w.Weight, w.Limit, w.Owner)
	}
	if s.Token > 0 {
		fields["t"] = strconv.FormatUint(s.Token, 10)
	}
	if r := s.Record; r != nil {
		state, by := recordState(r)
		fields["r"] = fmt.Sprintf("%d %d %d %s", r.Until.UnixMilli(), r.Attempt, state, by)
		if b := r.Before; b != nil {
			state, by := recordState(b)
			fields["r"] += fmt.Sprintf(" %d %d %s", b.Until.UnixMilli(), state, by)
		}
		fields["v"] = string(r.Value)
	}
	return fields
}

// recordState returns the state and the lease of a record, as Redis stores them.
func recordState(r *keystate.Record) (state int, by string) {
	switch {
	case r.Beginner != "" && r.Fresh:
		return 0, r.Beginner
	case r.Beginner != "":
		return 3, r.Beginner
	case r.Done:
		return 1, r.Saver
	}
	return 2, r.Saver
}

func lasting(text string) time.Duration {
	var since, ms int64
	if _, err := fmt.Sscan(text, &since, &ms); err != nil {
		panic(err)
	}
	return time.Until(time.UnixMicro(since).Add(time.Duration(ms) * time.Millisecond))
}

// live returns the fields that have not expired. It adds the hours for which a hold
// or a tombstone lasts, and shows the token only if it is far ahead of the clock.
func live(fields map[string]string) (all []string) {
	current, now := make(map[string]string), time.Now()
	for name, value := range fields {
		switch name[0] {
		case 'r':
			deadline, _, _ := strings.Cut(value, " ")
			if ms, _ := strconv.ParseInt(deadline, 10, 64); ms > 0 && ms <= now.UnixMilli() {
				delete(current, "v")
				continue
			}
		case 'w':
			kept := ""
			for line := range strings.Lines(value) {
				var lease string
				var ms int64
				if n, _ := fmt.Sscan(line, &lease, &ms); n == 2 && ms > now.UnixMilli() {
					kept += line
				}
			}
			value = kept
		case 'h', 'k', 'd':
			left := lasting(value)
			if left <= 0 {
				continue
			}
			if kept := fields["k:"+name[2:]]; name[0] == 'd' && kept != "" && lasting(kept)+time.Second > left {
				continue // the kept hold refuses the lease for as long
			}
			name = fmt.Sprintf("%s for %.0f h", name, left.Hours())
		case 't':
			if last(fields) < uint64(now.Add(time.Minute).UnixMicro()) {
				continue
			}
		}
		if value != "" || name == "v" {
			current[name] = value
		}
	}
	if _, recorded := current["r"]; !recorded {
		delete(current, "v")
	}
	all = timeless(current)
	slices.Sort(all)
	return all
}

// without returns live without the places of these leases in the wait list.
func without(live, leases []string) (rest []string) {
	for _, text := range live {
		list, waiters := strings.CutPrefix(text, "w ")
		if waiters {
			text = ""
			for line := range strings.Lines(list) {
				if lease, _, _ := strings.Cut(line, " "); !slices.Contains(leases, lease) {
					text += line
				}
			}
			if text == "" {
				continue
			}
			text = "w " + text
		}
		rest = append(rest, text)
	}
	return rest
}
