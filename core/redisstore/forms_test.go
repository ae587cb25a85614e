package redisstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestFormsAgree compares a key that is always a string with a key that becomes a hash
// when it has more than two or eight leases. Two thirds of the sequences also compare
// the keys with the rule in Go. All must decide the same, whatever expires between two
// calls. The test sets the time itself, so it never sleeps.
func TestFormsAgree(t *testing.T) {
	t.Parallel()
	testserver.RequireLua(t)
	batch := uint64(tally.AllTrials(100))
	seeds := batch
	if os.Getenv("LONG") == "1" {
		seeds *= 200
	}
	for first := uint64(0); first < seeds; first += batch {
		var steps bytes.Buffer
		for _, script := range []string{"acquire", "extend", "release"} {
			text := ""
			for _, name := range scriptFiles(t)[script] {
				text += luaText(t, name)
			}
			fmt.Fprintf(&steps, "script(%s, %s)\n", luaLiteral(script), luaLiteral(text))
		}
		fmt.Fprint(&steps, "server('string', 1000000)\nserver('two', 2)\nserver('eight', 8)\n")
		for seed := range batch {
			newFormsFuzz(first + seed).write(&steps)
		}
		cmd := exec.CommandContext(t.Context(), "lua5.1", "testdata/forms.lua")
		cmd.Stdin = &steps
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%d sequences from %d on: %s", batch, first, out)
	}
}

// formsFuzz draws the steps of a sequence at random, and applies them by the rule.
type formsFuzz struct {
	*rand.Rand
	seed   uint64
	ruled  bool // if not set, some claims are granted by message, which the rule does not know
	now    time.Time
	rule   keystate.State
	claims []store.Claim
}

func newFormsFuzz(seed uint64) *formsFuzz {
	f := &formsFuzz{Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, ruled: seed%3 > 0, now: time.UnixMilli(1764088662123)}
	for i := range 8 + 20*f.IntN(2) {
		f.claims = append(f.claims, store.Claim{
			Lease: fmt.Sprint("L", i), Owner: f.owner(), Weight: 1, Limit: store.All, Fair: f.one(3),
		})
		c := &f.claims[i]
		if f.one(2) {
			c.Owner = c.Lease
		}
		switch f.IntN(8) {
		case 0:
			c.Weight = store.All
		case 1, 2:
			c.Weight, c.Limit = int64(1+f.IntN(3)), 12
		case 3:
			c.Via = f.owner()
		}
		if f.one(20) {
			c.Record = &store.Record{Value: []byte(fmt.Sprint("value", i))}
		}
	}
	return f
}

func (f *formsFuzz) one(in int) bool { return f.IntN(in) == 0 }

// owner draws an owner, which can have the name of a lease.
func (f *formsFuzz) owner() string { return fmt.Sprint([]string{"O", "L"}[f.IntN(2)], f.IntN(7)) }

func (f *formsFuzz) lasts() time.Duration {
	all := []int{1, 5, 50, 700, 3_000, 9_000, 30_000, 60_000, 60_000, 300_000}
	return time.Duration(all[f.IntN(len(all))]) * time.Millisecond
}

// holder draws a claim, usually one that is held.
func (f *formsFuzz) holder() store.Claim {
	if n := len(f.rule.Holds); n > 0 && !f.one(3) {
		lease := f.rule.Holds[f.IntN(n)].Lease
		if i := slices.IndexFunc(f.claims, func(c store.Claim) bool { return c.Lease == lease }); i >= 0 {
			return f.claims[i]
		}
	}
	return f.claims[f.IntN(len(f.claims))]
}

func (f *formsFuzz) write(steps *bytes.Buffer) {
	fmt.Fprintf(steps, "sequence(%d, %q)\n", f.seed, []string{"two", "eight"}[f.IntN(2)])
	acquires := 12
	for i := range 60 {
		if i%20 == 0 {
			acquires = 22 - acquires // so the key fills and empties
		}
		pauses := []int{0, 0, 0, 0, 1, 1, 2, 7, 50, 50, 200, 400, 1_100, 1_100, 5_000, 30_000}
		f.now = f.now.Add(time.Duration(pauses[f.IntN(len(pauses))]) * time.Millisecond)
		waiters := len(f.rule.Waiters)
		name, argv, outcome := f.next(acquires)
		if waiters > len(f.rule.Waiters) && strings.HasPrefix(outcome, "done") {
			return // in Redis a replay writes nothing and wakes no claim
		}
		words := make([]string, len(argv))
		for i, word := range argv {
			words[i] = strconv.Quote(fmt.Sprint(word))
		}
		rule := "nil"
		if f.ruled {
			rule = fmt.Sprintf("%q", outcome+" | "+f.shown())
		}
		listeners := []string{"yes", "yes", "no", "late"}[f.IntN(4)]
		if f.ruled {
			listeners = "yes"
		}
		fmt.Fprintf(steps, "step(%d, %q, %q, {%s}, %s)\n", f.now.UnixMilli(), listeners, name, strings.Join(words, ","), rule)
	}
}

// next draws a step. It returns the script, its arguments, and the rule's decision.
func (f *formsFuzz) next(acquires int) (name string, argv []any, outcome string) {
	n := f.IntN(24)
	switch {
	case n < acquires:
		return f.acquire()
	case n == 23 && len(f.rule.Holds) > 0 && f.rule.Holds[0].Until.After(f.now) && f.rule.Holds[0].Owner != "":
		return f.revoke(f.rule.Holds[0])
	case n < acquires+4:
		c := f.holder()
		c.TTL = f.lasts()
		return "extend", []any{"extend", c.Lease, c.TTL.Milliseconds()}, said(store.Grant{}, f.rule.Extend(f.now, c))
	}
	return f.release()
}

func (f *formsFuzz) acquire() (string, []any, string) {
	c := f.claims[f.IntN(len(f.claims))]
	if f.one(10) { // a duplicate claim can differ
		c.Weight = []int64{1, 2, c.Weight}[f.IntN(3)]
		c.Limit = max(c.Limit, c.Weight)
	}
	if f.one(10) {
		c.Owner, c.Via = f.owner(), f.owner()
	}
	c.TTL, c.Wait = f.lasts(), f.one(2)
	if !f.ruled && f.one(2) { // allows a grant by message
		c.TTL, c.Wait, c.Via = 30*time.Second, true, ""
	}
	if c.Wait && f.ruled { // Redis does not always wake a waiter that would join a hold
		c.Owner, c.Via = "owner-of-"+c.Lease, ""
	}
	if r := c.Record; r != nil {
		c.Record = &store.Record{Value: r.Value, Retain: f.lasts()}
	}
	if c.Weight == store.All && f.one(15) {
		c.MinToken = uint64(f.now.Add(5 * time.Minute).UnixMicro())
	}
	flags := ""
	if c.Fair {
		flags += "f"
	}
	if c.Wait {
		flags += "w"
	}
	if !f.ruled && c.Wait && c.Record == nil && c.MinToken == 0 && c.TTL > 9*time.Second {
		flags += "g"
	}
	argv := []any{"acquire " + flags + " C" + c.Lease + " wake:", c.Lease, c.Owner, c.TTL.Milliseconds()}
	if c.Weight < store.All || c.MinToken > 0 || c.Via != "" || c.Record != nil {
		argv = append(argv, c.Weight, c.Limit, c.Via, c.MinToken)
	}
	if c.Record != nil {
		argv = append(argv, string(c.Record.Value), c.Record.Retain.Milliseconds())
	}
	g, _, err := f.rule.Acquire(f.now, c)
	return "acquire", argv, said(g, err)
}

func (f *formsFuzz) release() (string, []any, string) {
	c := f.holder()
	begun := c.Record != nil
	c.Record, c.TTL = nil, []time.Duration{0, f.lasts(), f.lasts()}[f.IntN(3)]
	if f.one(5) {
		c.Keep = f.lasts()
	}
	if begun && f.one(3) || f.one(12) {
		c.Undo = true
	} else if begun || f.one(20) {
		c.Record = &store.Record{Value: []byte(fmt.Sprint("saved", f.IntN(2))), Attempt: 1 + f.IntN(2), Done: f.one(2), Retain: f.lasts()}
	}
	flags, last := "", any("")
	if c.Undo {
		flags = "u"
	}
	if f.one(2) && f.rule.Token > 0 {
		last = min(f.rule.Token, uint64(f.now.UnixMicro()))
	}
	argv := []any{"release " + flags + "  wake:", c.Lease, c.TTL.Milliseconds(), last}
	if c.Keep > 0 || c.Undo || c.Record != nil {
		argv = append(argv, c.Keep.Milliseconds())
	}
	if r := c.Record; r != nil {
		state, token := 2, ""
		if r.Done {
			state = 1
		}
		if last != "" {
			token = fmt.Sprintf("\tt %d", last)
		}
		argv = append(argv, r.Attempt, state, r.Retain.Milliseconds(),
			fmt.Sprintf("f\tr 0 %d %d %s%s\tv %s", r.Attempt, state, c.Lease, token, r.Value))
	}
	_, err := f.rule.Release(f.now, c)
	return "release", argv, said(store.Grant{}, err)
}

// revoke returns the step that revokes an existing hold.
func (f *formsFuzz) revoke(h keystate.Hold) (string, []any, string) {
	keep := []time.Duration{0, f.lasts()}[f.IntN(2)]
	_, found := f.rule.Revoke(f.now, store.HoldID(h.Lease), keep)
	outcome := "ok"
	if !found {
		outcome = "lost"
	}
	return "release", []any{"release l  wake:", h.Lease, 0, f.now.UnixMicro(), keep.Milliseconds()}, outcome
}

// said returns the same text for an answer as testdata/forms.lua.
func said(g store.Grant, err error) string {
	switch r := g.Record; {
	case errors.Is(err, store.ErrBusy):
		return "busy"
	case errors.Is(err, store.ErrLost):
		return "lost"
	case err != nil:
		return "heavy"
	case r != nil && r.Done:
		return fmt.Sprint("done ", r.Attempt, string(r.Value))
	case r != nil:
		return fmt.Sprintf("granted %s %d %s", g.Owner, r.Attempt, r.Value)
	case g.Owner != "":
		return "granted " + g.Owner
	}
	return "ok"
}

// shown returns the same text for a key as testdata/forms.lua.
func (f *formsFuzz) shown() string {
	holds, waiters := make(map[string]bool), []string(nil)
	for _, h := range f.rule.Holds {
		if kind := "h:"; h.Until.After(f.now) {
			if h.Owner == "" {
				kind = "k:"
			}
			holds[fmt.Sprintf("%s%s %s %d %d", kind, h.Lease, h.Owner, h.Weight, h.Until.Sub(f.now).Milliseconds())] = true
		}
	}
	all := slices.Sorted(maps.Keys(holds))
	for _, w := range f.rule.Waiters {
		kind := 0
		if w.Fair {
			kind++
		}
		if w.Run {
			kind += 2
		}
		if w.Until.After(f.now) {
			waiters = append(waiters, fmt.Sprintf("w %s %d %d %d %d %s C%[1]s", w.Lease, w.Until.Sub(f.now).Milliseconds(), kind, w.Weight, w.Limit, w.Owner))
		}
	}
	return strings.Join(append(all, waiters...), "; ")
}
