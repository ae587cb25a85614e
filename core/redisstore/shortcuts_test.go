package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

const (
	moment = time.Millisecond     // the lifetime of an entry that has expired after a step
	after  = 4 * time.Millisecond // a sleep that is longer than moment
	swift  = time.Second          // the limit of a sequence whose times are compared

	// patient is the limit of a crowd's sequence. No waiter expires before it, which
	// could happen to one twin before a step and to the other after it.
	patient = store.WaiterLife - time.Second
)

// twin is one of the keys on which the same steps are made.
type twin struct {
	key  string
	slow *redis.Client   // for the twin without shortcuts, whose key has an additional entry
	rule *keystate.State // for the twin that is not in Redis
	woke []string        // by the rule: the leases that the last step has woken
	last uint64          // the last token that was seen

	owners map[string]bool // the owners of the holds that were seen last
}

// near is the maximum difference in us between a short string's token in the answers
// and in the stored text. A MinToken is further ahead than far.
const near, far = 1_000_000, 60_000_000

// beside is the name of an expired tombstone.
const beside = "d:beside"

func (k *twin) of(c store.Claim) store.Claim {
	c.Key = k.key
	return c
}

// fill adds the additional entry if the twin has to have one, so that a script cannot
// use its shortcuts.
func (k *twin) fill(ctx context.Context, asks *redis.Client) error {
	if k.slow == nil {
		return nil
	}
	name := stored(store.Claim{Key: k.key})
	if n, err := asks.Exists(ctx, name).Result(); n > 0 || err != nil {
		return cmp.Or(err, testclient.SetField(ctx, asks, name, beside, "1 1"), expireFirst(ctx, asks, name))
	}
	return asks.Set(ctx, name, "f\t"+beside+" 1 1", time.Minute).Err()
}

// expireFirst makes the numbers of a hash show an expired lease. It does nothing to a
// string.
func expireFirst(ctx context.Context, asks *redis.Client, name string) error {
	n, err := asks.HGet(ctx, name, "n").Result()
	if err == redis.Nil || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil
	}
	words := strings.Fields(n)
	if err != nil || len(words) != 6 {
		return cmp.Or(err, fmt.Errorf("the numbers of a hash are %q", n))
	}
	words[1] = "1"
	return testclient.SetField(ctx, asks, name, "n", strings.Join(words, " "))
}

// seen is the visible state of a key after a step. The texts must be the same for both
// twins, and the times nearly the same.
type seen struct {
	says  string
	live  []string         // the entries that have not expired, with their lifetimes
	token bool             // the token is new
	queue int              // the number of waiters in a busy answer
	times [3]time.Duration // the remaining times of the key, the answer and its record
	there bool
	holds []int  // the holders, as the numbers of their leases
	fault string // a state that no key may have
}

func (s seen) whole() string {
	return fmt.Sprintf("%s, %d wait, live %q, a new token: %v", s.says, s.queue, s.live, s.token)
}

// current returns the part of the state that the rule in Go shows too. Redis only
// estimates the number of waiters, and keeps tokens for longer.
func (s seen) current() string {
	return fmt.Sprintf("%s, some wait: %v, live %q", s.says, s.queue > 0, s.live)
}

func (k *twin) look(ctx context.Context, asks *redis.Client, g store.Grant, err error) (s seen) {
	before, says, busy := k.last, new(strings.Builder), (*store.BusyError)(nil)
	switch {
	case err == nil:
		now := g.Token
		isNew := now > k.last+far
		if !k.owners[g.Owner] {
			if isNew = now > k.last; now > 0 && now < k.last+store.TokenStep {
				s.fault = fmt.Sprintf("token %d after %d", now, k.last)
			}
		}
		fmt.Fprintf(says, "owner %q, token %v, new %v", g.Owner, now > 0, isNew)
		k.last = max(k.last, now)
		if r := g.Record; r != nil {
			fmt.Fprintf(says, ", record %q %d %v", r.Value, r.Attempt, r.Done)
			s.times[2] = r.Retain
		}
	case errors.As(err, &busy):
		says.WriteString("busy")
		s.queue, s.times[1] = busy.Waiting, busy.RetryAfter
	case errors.Is(err, store.ErrLost):
		says.WriteString("lost")
	case errors.Is(err, store.ErrInvalid):
		says.WriteString("invalid")
	default:
		s.fault = err.Error()
	}
	fields, left, err := k.fields(ctx, asks)
	if err != nil {
		s.fault = err.Error()
	}
	isNew, owners := false, make(map[string]bool)
	for name, value := range fields {
		if words := strings.Split(value, " "); strings.HasPrefix(name, "h:") {
			owners[words[2]] = owners[words[2]] || lasting(value) > 0
			isNew = isNew || !k.owners[words[2]]
		}
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "h:")); err == nil {
			s.holds = append(s.holds, i)
		}
		if k.rule == nil && strings.Contains("hkd", name[:1]) && lasting(value) > max(left, 0)+5*time.Millisecond {
			s.fault = fmt.Sprintf("the key lasts for %v, and has %s for %v", left, name, lasting(value))
		}
	}
	slices.Sort(s.holds)
	if s.there = len(fields) > 0; s.there {
		s.times[0] = left
		value, err := asks.Get(ctx, stored(store.Claim{Key: k.key})).Result()
		token, short := last(fields), k.rule == nil && err == nil && !strings.HasPrefix(value, "f")
		if short || token == 0 && k.last < uint64(time.Now().UnixMicro()) {
			token = k.last // the short string does not contain it, and a new state need not
		}
		switch {
		case s.times[0] <= 0:
			s.fault = fmt.Sprintf("the key has a TTL of %v", s.times[0])
		case k.slow != nil && short:
			s.fault = "test setup: the key is the short string"
		case token+near < k.last:
			s.fault = fmt.Sprintf("stored is token %d, after %d", token, k.last)
		}
		k.last = max(k.last, token)
		s.live = live(fields)
	}
	k.owners = owners
	s.token = k.last > before && isNew || k.last > before+far
	s.says = says.String()
	return s
}

// fields returns the stored fields of the key, and the key's remaining time. If the key
// has only tokens, and the clock passes them within 5 ms, fields waits for that.
func (k *twin) fields(ctx context.Context, asks *redis.Client) (fields map[string]string, left time.Duration, err error) {
	if k.rule != nil {
		return ruled(k.rule), time.Minute, nil
	}
	name := stored(store.Claim{Key: k.key})
	if raw, err := asks.HGetAll(ctx, name).Result(); err == nil && len(raw) > 0 {
		if fault := crowdFault(raw); fault != "" {
			return nil, 0, errors.New(fault)
		}
	}
	for {
		fields, err = testclient.Fields(ctx, asks, name)
		delete(fields, beside)
		left = asks.PTTL(ctx, name).Val()
		if _, only := fields["t"]; len(fields) != 1 || !only || left > 5*time.Millisecond {
			return fields, left, err
		}
		time.Sleep(time.Millisecond)
	}
}

// waiting matches a line of the wait list: a lease, a deadline, the claim and a
// channel.
var waiting = regexp.MustCompile(`(?m)^(\S+) \d+ (.*) \S+$`)

// timeless returns the texts of fields without times, tokens and channels.
func timeless(fields map[string]string) []string {
	var all []string
	for name, value := range fields {
		words := strings.Split(value, " ")
		switch name[0] {
		case 't':
			continue
		case 'v':
		case 'r':
			if len(words) > 4 { // the deadline of the record that the run has found
				words[4] = ""
			}
			value = strings.Join(words[1:], " ")
		case 'w':
			value = waiting.ReplaceAllString(value, "$1 $2")
		default:
			value = strings.Join(words[2:], " ")
		}
		all = append(all, name+" "+value)
	}
	if last(fields) > 0 {
		all = append(all, "t")
	}
	slices.Sort(all)
	return all
}

// cast contains the claims that take part in a sequence, and draws the steps.
type cast struct {
	*rand.Rand
	claims []store.Claim
	now    seen   // the state after the last step
	pushed []bool // by claim: it has asked for a grant by message
	// listens is the store for claims that can be granted by message. Each claim uses
	// listens once, so that no message can replace the server's answer. calls is the
	// store for all other calls.
	calls, listens *redisstore.Store
	// ruled is set if the rule in Go takes part, which grants nothing by message.
	ruled bool
	// crowd is set if there are so many claims that a key is a hash at times. At other
	// times the key is a string again.
	crowd   bool
	crosses int // the number of such changes
	steps   int
	hash    bool
}

func (p *cast) one(in int) bool { return p.IntN(in) == 0 }

func (p *cast) holder() int {
	if len(p.now.holds) > 0 && !p.one(3) {
		return p.now.holds[p.IntN(len(p.now.holds))]
	}
	return p.IntN(len(p.claims))
}

// newCast returns claims of three owners. The first four claims are exclusive, and
// further claims are of random kinds.
func newCast(seed uint64, calls, listens *redisstore.Store) *cast {
	p := &cast{Rand: rand.New(rand.NewPCG(seed, 0)), pushed: make([]bool, 10), calls: calls, listens: listens}
	for i := range 4 + p.IntN(2)*p.IntN(7) {
		c := store.Claim{Owner: "owner" + strconv.Itoa(i%3), Lease: strconv.Itoa(i), Weight: store.All, Limit: store.All, Fair: p.one(2)}
		if i > 3 {
			switch p.IntN(6) {
			case 0:
				c.Weight = 1
			case 1:
				c.Weight, c.Limit = int64(1+p.IntN(2)), 2
			case 2, 3, 4:
				c.Record = &store.Record{Value: p.value()}
			}
			if p.one(4) {
				c.Via = "owner" + strconv.Itoa(p.IntN(3))
			}
		}
		p.claims = append(p.claims, c)
	}
	return p
}

// newCrowd returns readers and permits of many owners, and some claims of other kinds.
func newCrowd(seed uint64, s *redisstore.Store) *cast {
	p := newCast(seed, s, s)
	p.ruled, p.crowd = true, true
	for i := len(p.claims); i < 30; i++ {
		c := store.Claim{Owner: strconv.Itoa(i), Lease: strconv.Itoa(i), Weight: 1, Limit: store.All, Fair: p.one(3)}
		switch p.IntN(6) {
		case 0:
			c.Weight, c.Limit = int64(1+p.IntN(2)), 12
		case 1:
			c.Via = "owner" + strconv.Itoa(p.IntN(30))
		case 2:
			c.Owner = "owner" + strconv.Itoa(20+p.IntN(10))
		}
		p.claims = append(p.claims, c)
	}
	p.pushed = make([]bool, len(p.claims))
	return p
}

// crossed records whether the key has become a hash, or a string.
func (p *cast) crossed(ctx context.Context, asks *redis.Client, k *twin) {
	kind := asks.Type(ctx, stored(store.Claim{Key: k.key})).Val()
	if hash := kind == "hash"; hash != p.hash && kind != "none" {
		p.hash = hash
		p.crosses++
	}
}

func (p *cast) value() []byte {
	return []byte([]string{"", "plain", "with spaces ", "\tv \tr 1 1 1 x", "\n\x00\xff\t"}[p.IntN(5)])
}

// lasts draws the lifetime of an entry. It sets brief if the lifetime is only a moment.
// If the parameter none is not 0, on average one in none lifetimes is 0.
func (p *cast) lasts(brief *bool, none int) time.Duration {
	switch {
	case none > 0 && p.one(none):
		return 0
	case p.one(30):
		*brief = true
		return moment
	}
	return time.Duration(1+p.IntN(4)) * time.Hour
}

type move struct {
	name  string
	brief bool // one of its entries expires at once
	do    func(k *twin) (store.Grant, error)
}

func (p *cast) acquires(i int, free bool) (m move) {
	c, s := p.claims[i], p.calls
	c.TTL, c.Wait = p.lasts(&m.brief, 0), p.one(2)
	if r := c.Record; r != nil {
		c.Record = &store.Record{Value: r.Value, Retain: p.lasts(&m.brief, 0)}
	}
	if c.Weight == store.All && !free && p.one(12) {
		c.MinToken = uint64(time.Now().Add(5 * time.Minute).UnixMicro())
	}
	c.Push = !p.ruled && !free && c.Wait && c.Record == nil && c.Via == "" && c.TTL > moment && c.MinToken == 0 && p.one(2) && !p.pushed[i]
	if c.Push {
		p.pushed[i], s = true, p.listens
	}
	m.name = fmt.Sprintf("acquire %+v with %+v", c, c.Record)
	m.do = func(k *twin) (store.Grant, error) {
		c, ctx := k.of(c), context.Background()
		if c.Push {
			watched, cancel := context.WithCancel(ctx)
			defer cancel()
			if _, err := s.Watch(watched, c); err != nil {
				return store.Grant{}, err
			}
		}
		return k.store(s).Acquire(ctx, c)
	}
	return m
}

func (p *cast) releases(i int) (m move) {
	c := p.claims[i]
	c.Record, c.TTL = nil, p.lasts(&m.brief, 3)
	if p.one(5) {
		c.Keep = p.lasts(&m.brief, 0)
	}
	switch {
	case p.claims[i].Record != nil && p.one(4), p.one(12):
		c.Undo = true
	case p.claims[i].Record != nil && !p.one(4), p.one(12):
		c.Record = &store.Record{Value: p.value(), Attempt: 1 + p.IntN(2), Done: p.one(2), Retain: p.lasts(&m.brief, 4)}
	}
	known := p.one(2)
	m.name = fmt.Sprintf("release %+v with %+v, the token known: %v", c, c.Record, known)
	m.do = func(k *twin) (store.Grant, error) {
		c := k.of(c)
		if known {
			c.Last = k.last
		}
		return store.Grant{}, k.store(p.calls).Release(context.Background(), c)
	}
	return m
}

func (p *cast) extends(i int) (m move) {
	c := p.claims[i]
	c.TTL = p.lasts(&m.brief, 0)
	m.name = fmt.Sprintf("extend %s for %v", c.Lease, c.TTL)
	m.do = func(k *twin) (store.Grant, error) {
		if k.slow != nil {
			return store.Grant{}, k.extend(k.of(c))
		}
		return store.Grant{}, extend(k.store(p.calls), k.of(c))
	}
	return m
}

// slowExtend is the extend script without its shortcuts. An additional entry in the key
// would not prevent these shortcuts.
var slowExtend = sync.OnceValue(func() *redis.Script {
	text := ""
	for _, name := range []string{"clock", "crowd", "state", "extend"} {
		part, err := os.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		if text += string(part); name == "clock" {
			text += "local value = redis.call('MGET', KEYS[1])[1]\n"
		}
	}
	return redis.NewScript(text)
})

func (k *twin) extend(c store.Claim) error {
	got, err := slowExtend().Run(context.Background(), k.slow, []string{stored(c)}, "extend", c.Lease, c.TTL.Milliseconds()).Result()
	if _, isLost := got.([]any); isLost {
		return store.ErrLost
	}
	return err
}

func (p *cast) revokes(i int) (m move) {
	id, keep := store.HoldID(p.claims[i].Lease), p.lasts(&m.brief, 3)
	m.brief = false // the rest of the hold is longer
	m.name = fmt.Sprintf("revoke %s, keep %v", p.claims[i].Lease, keep)
	m.do = func(k *twin) (store.Grant, error) {
		return store.Grant{}, k.store(p.calls).Revoke(context.Background(), k.key, id, keep)
	}
	return m
}

func (p *cast) next() move {
	switch n, i := p.IntN(20), p.IntN(len(p.claims)); {
	case !p.now.there:
		return p.acquires(i, true)
	case p.ruled && p.one(12):
		return p.revokes(p.holder())
	case p.crowd && p.steps/20%2 == 0 && n < 16, n < 9 && !p.crowd, n < 3:
		return p.acquires(i, false)
	case n < 12:
		return p.extends(p.holder())
	default:
		return p.releases(p.holder())
	}
}

// TestShortcutsAgree checks that the shortcuts of the scripts do the same as the other
// parts, after random steps.
func TestShortcutsAgree(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	calls, listens, asks := newStore(t, testclient.Redis(t, server.Addr)), newStore(t, testclient.Redis(t, server.Addr)), testclient.Redis(t, server.Addr)
	ctx := t.Context()
	// Both stores stay subscribed until the end of the test, so a message can reach any
	// waiter.
	for _, s := range []*redisstore.Store{calls, listens} {
		if _, err := s.Watch(ctx, claimOf("shortcuts")); err != nil {
			t.Fatal(err)
		}
	}
	seeds, steps := uint64(tally.AllTrials(200)), 0
	for seed := range seeds {
		name := "shortcuts:" + strconv.FormatUint(seed, 10)
		trace, fault := agree(ctx, newCast(seed, calls, listens), asks, name)
		if steps += len(trace); fault != "" {
			t.Fatalf("seed %d: %s\nafter\n%s", seed, fault, strings.Join(trace, "\n"))
		}
	}
	t.Logf("%d sequences with %d steps", seeds, steps)
}

// agree runs one sequence, and returns its steps and any difference. It stops a
// sequence that takes too long, or in which a call gets no answer in time.
func agree(ctx context.Context, p *cast, asks *redis.Client, name string) (trace []string, fault string) {
	begun := time.Now()
	twins := []*twin{{key: name + ":free"}, {key: name + ":long", slow: asks}}
	if p.ruled {
		twins = append(twins, &twin{key: name, rule: new(keystate.State)})
	}
	steps, limit := 16, swift
	if p.crowd {
		steps, limit = 80, patient
	}
	for p.steps = range steps {
		m := p.next()
		trace = append(trace, m.name)
		all, grants, errs := [3]seen{}, [3]store.Grant{}, [3]error{}
		for i, k := range twins {
			if err := k.fill(ctx, asks); err != nil {
				return trace, err.Error()
			}
			grants[i], errs[i] = m.do(k)
		}
		if m.brief {
			time.Sleep(after)
		}
		for i, k := range twins {
			all[i] = k.look(ctx, asks, grants[i], errs[i])
		}
		if time.Since(begun) > limit || slices.ContainsFunc(errs[:], late) {
			return trace, ""
		}
		if all[0].fault != "" || all[1].fault != "" || all[2].fault != "" {
			return trace, fmt.Sprintf("faults: by a shortcut %q, without %q, by the rule %q", all[0].fault, all[1].fault, all[2].fault)
		}
		if a, b := all[0].whole(), all[1].whole(); a != b {
			return trace, "by a shortcut: " + a + "\nwithout:       " + b
		}
		if a, b := all[0].current(), all[2].current(); p.ruled && a != b {
			// Redis does not always wake a waiter that would join a hold. The waiter
			// then keeps its place.
			if all[0].live = without(all[0].live, twins[2].woke); all[0].current() == b {
				return trace, ""
			}
			return trace, "in Redis:    " + a + "\nby the rule: " + b
		}
		p.now = all[0]
		if p.crowd {
			p.crossed(ctx, asks, twins[0])
			continue // the times in a hash are not exact
		}
		for i, d := range all[0].times {
			if (d - all[1].times[i]).Abs() > slack {
				return trace, fmt.Sprintf("times: by a shortcut %v, without %v", all[0].times, all[1].times)
			}
		}
	}
	return trace, ""
}
