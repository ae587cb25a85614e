package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// walk returns the states of all keys that List returns, and the number of pages.
func walk(t testing.TB, s *redisstore.Store, most int) (all []store.State, pages int) {
	t.Helper()
	for from, after := "", ""; ; pages++ {
		page, err := asked(func() (page []store.State, err error) {
			page, after, err = s.List(t.Context(), from, most)
			return page, err
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if from = after; after == "" {
			return all, pages + 1
		}
	}
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func TestInspector_NoRecordValues(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	writes := newStore(t, testclient.Redis(t, server.Addr))
	const keys = 20
	for i := range keys {
		c := claimOf(fmt.Sprintf("test:%d", i))
		c.Record = &store.Record{Value: bytes.Repeat([]byte("v"), 64<<10), Retain: time.Hour}
		acquire(t, writes, c)
		if i%2 == 0 {
			c.Record.Done, c.Record.Attempt = true, 1
			release(t, writes, c)
		}
	}
	var read atomic.Int64
	s := newStore(t, testclient.Redis(t, server.Addr, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countingConn{conn, &read}, err
		}
	}))
	for i := range keys {
		state, err := s.Look(t.Context(), fmt.Sprintf("test:%d", i))
		if err != nil || state.Run == nil || state.Run.Done != (i%2 == 0) {
			t.Fatalf("got %+v and %v", state, err)
		}
	}
	if all, _ := walk(t, s, 10); len(all) != keys {
		t.Errorf("%d keys are listed, want %d", len(all), keys)
	}
	if n := read.Load(); n == 0 || n > 2*keys*1000+20_000 {
		t.Errorf("%d bytes were read of %d keys", n, keys)
	}
}

// TestRightsOfAnInspector checks that the documented rights of operators are
// sufficient, and that errors name a missing right.
func TestRightsOfAnInspector(t *testing.T) {
	t.Parallel()
	_, further := documentedRights(t)
	server := testserver.StartRedis(t, fit...)
	user := func(name string, rights []string, opts ...redisstore.Option) *redisstore.Store {
		return newStore(t, testclient.Redis(t, server.Addr, login(t, server, name, rights...)), opts...)
	}
	without := func(missing string) *redisstore.Store {
		return user("no-"+missing, slices.Concat(further["operator"], []string{"-" + missing}))
	}
	s := user("operator", further["operator"])
	for what, form := range forms {
		c := form()
		acquire(t, s, c)
		if state, err := s.Look(t.Context(), c.Key); err != nil || len(state.Holds) != 1 {
			t.Errorf("%s: look: %+v and %v", what, state, err)
		}
		if all, _ := walk(t, s, 10); len(all) == 0 {
			t.Errorf("%s: list shows nothing", what)
		}
		if err := s.Revoke(t.Context(), c.Key, store.HoldID(c.Lease), time.Second); err != nil {
			t.Errorf("%s: revoke: %v", what, err)
		}
	}
	if err := s.Put(t.Context(), store.Card{Process: "p"}, time.Second); err != nil {
		t.Error(err)
	}
	if cards, err := s.Cards(t.Context()); err != nil || len(cards) != 1 {
		t.Errorf("cards: %v and %v", cards, err)
	}
	p := user("plain", slices.Concat([]string{"~lk1:*"}, further["plain"], further["plain operator"]), redisstore.WithPlainKeys())
	c := claimed()
	acquire(t, p, c)
	if state, err := p.Look(t.Context(), c.Key); err != nil || len(state.Holds) != 1 {
		t.Errorf("plain: look: %+v and %v", state, err)
	}
	if err := p.Revoke(t.Context(), c.Key, store.HoldID(c.Owner), time.Second); err != nil {
		t.Errorf("plain: revoke: %v", err)
	}
	less := user("plain-no-get", slices.Concat([]string{"~lk1:*"}, further["plain"], further["plain operator"], []string{"-get"}), redisstore.WithPlainKeys())
	_, lookErr := less.Look(t.Context(), c.Key)
	_, _, listErr := less.List(t.Context(), "", 10)
	for _, err := range []error{lookErr, listErr} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "the user lacks +get:") && !strings.Contains(fmt.Sprint(err), "'get'") {
			t.Errorf("plain, without the right to get: got %v, want %v that names it alone", err, store.ErrUnavailable)
		}
	}
	held := forms["hash fields"]()
	acquire(t, s, held)
	for _, missing := range []string{"scan", "mget"} {
		less := without(missing)
		_, err := less.Look(t.Context(), held.Key)
		if missing == "scan" {
			_, _, err = less.List(t.Context(), "", 10)
		}
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(strings.ToLower(fmt.Sprint(err)), missing) {
			t.Errorf("without the right to %s: got %v, want %v that names it", missing, err, store.ErrUnavailable)
		}
	}
	for missing, do := range map[string]func(s *redisstore.Store) error{
		"set": func(s *redisstore.Store) error {
			return s.Revoke(t.Context(), held.Key, store.HoldID(held.Lease), time.Second)
		},
		"hset":    func(s *redisstore.Store) error { return s.Put(t.Context(), store.Card{Process: "p"}, time.Second) },
		"hgetall": func(s *redisstore.Store) error { _, err := s.Cards(t.Context()); return err },
	} {
		if missing == "set" {
			held = claimed() // a string
			acquire(t, s, held)
		}
		err := do(without(missing))
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "the user lacks +"+missing+":") && !strings.Contains(fmt.Sprint(err), "'"+missing+"'") {
			t.Errorf("without the right to %s: got %v, want %v that names it alone", missing, err, store.ErrUnavailable)
		}
	}
	if err := extend(s, held); err != nil {
		t.Error(err)
	}
}

// scans is a hook that records the steps of a walk.
type scans struct {
	dialHook
	mu     sync.Mutex
	counts []int64
	then   func(n int)
}

type dialHook struct{}

func (dialHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" {
			s.mu.Lock()
			s.counts = append(s.counts, cmd.Args()[len(cmd.Args())-1].(int64))
			n := len(s.counts)
			s.mu.Unlock()
			if s.then != nil {
				s.then(n)
			}
		}
		return next(ctx, cmd)
	}
}

func TestList_KeysWithoutLocks(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	const foreign = 120_000
	server.Do("EVAL", fmt.Sprintf("for i = 1, %d do redis.call('SET', 'other:' .. i, 'x') end", foreign), "0")
	const prefix = `l[o]c*k?\s:`
	s := newStore(t, client, redisstore.WithPrefix(prefix))
	want := make(map[string]bool)
	for i := range 30 {
		c := claimOf(fmt.Sprintf("order:%d", i))
		want[c.Key] = true
		acquire(t, s, c)
	}
	// These keys are not locks. The first one matches only if the prefix is read as a
	// pattern.
	server.Do("SET", "locks:lk2:{not ours}", "1 2 a b")
	server.Do("SET", prefix+"lk2:{order:text}", "hello")
	server.Do("RPUSH", prefix+"lk2:{order:list}", "a")
	server.Do("HSET", prefix+"lk2:{order:hash}", "a", "b")
	server.Do("SET", prefix+"lk2:{}", "1 2 a b")
	server.Do("SET", prefix+"lk2:{order:{braces}}", "1 2 a b")
	hook := new(scans)
	client.AddHook(hook)
	all, pages := walk(t, s, 5)
	for _, state := range all {
		if !want[state.Key] {
			t.Errorf("%q is listed", state.Key)
		}
		delete(want, state.Key)
	}
	if len(want) > 0 {
		t.Errorf("%v are not listed", want)
	}
	if len(hook.counts) > foreign/500 || slices.Max(hook.counts) > 1000 {
		t.Errorf("there were %d steps, of up to %d", len(hook.counts), slices.Max(hook.counts))
	}
	if pages < 3 { // one call does not walk over all of them
		t.Errorf("there were %d pages", pages)
	}
	// The walk stops when its context is done.
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	hook.then = func(n int) { cancel(stop) }
	_, _, err := s.List(ctx, "", 1000)
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, stop) {
		t.Errorf("got %v, want %v and the cause", err, store.ErrUnavailable)
	}
	if _, err := s.Look(t.Context(), "order:text"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("look at what is not ours: got %v, want %v", err, store.ErrUnavailable)
	}
}

func TestList_EveryMaster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, false)
	s := newStore(t, testclient.Cluster(t, cluster))
	want := make(map[string]bool)
	for i := range 60 {
		c := claimOf(fmt.Sprintf("order:%d", i))
		want[c.Key] = true
		acquire(t, s, c)
		if err := s.Put(t.Context(), store.Card{Process: fmt.Sprintf("p%d", i%3)}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := walk(t, s, 7)
	for _, state := range all {
		if len(state.Holds) == 1 {
			delete(want, state.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d keys are not listed", len(want))
	}
	if cards, err := s.Cards(t.Context()); err != nil || len(cards) != 3 {
		t.Errorf("got %d cards and %v", len(cards), err)
	}
	// The master in a cursor may no longer exist.
	if _, _, err := s.List(t.Context(), "127.0.0.1:1 17", 10); err != nil {
		t.Error(err)
	}
	if page, next, err := s.List(t.Context(), "~ 17", 10); err != nil || next != "" || len(page) > 0 {
		t.Errorf("after the last master: %d keys, %q, %v", len(page), next, err)
	}
}

// TestList_PlainKeysOfOthers lists keys of other programs, which can have
// any value.
func TestList_PlainKeysOfOthers(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys(), redisstore.WithPrefix(""))
	server.Do("SET", "job", "somebody", "PX", 60_000)
	server.Do("SET", "for ever", "somebody")
	server.Do("SET", "long", strings.Repeat("x", 64<<10))
	server.Do("RPUSH", "list", "x")
	all, _ := walk(t, s, 10)
	if len(all) != 2 {
		t.Errorf("%d keys are listed, want 2: %+v", len(all), all)
	}
	id := store.HoldID("somebody")
	state, err := s.Look(t.Context(), "for ever")
	if err != nil || len(state.Holds) != 1 || state.Holds[0].ID != id || state.Holds[0].Left != 0 {
		t.Errorf("got %+v and %v", state, err)
	}
	_, err = s.Look(t.Context(), "list")
	wantIs(t, "look at a list", err, store.ErrUnavailable)
	for _, key := range []string{"job", "for ever"} {
		if err := s.Revoke(t.Context(), key, id, 10*time.Second); err != nil {
			t.Errorf("revoke of %q: %v", key, err)
		}
		if ttl := testclient.Redis(t, server.Addr).PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
			t.Errorf("%q is kept for %v", key, ttl)
		}
	}
}

// FuzzView parses any content of a key without a panic. The result must satisfy the
// contract of store.State.
func FuzzView(f *testing.F) {
	for _, text := range []string{
		"1700000000000000\nh:a\n1700000000000000 1000 o\nt\n1700000000000000",
		"1700000000000000\nh:a\n1700000000000000 1000 o 2147483647\nk:b\n1700000000000001 5  1\nd:c\n1 1",
		"1700000000000000\nr\n1700000001000 2 3 l 1 2 3\nw\n\x01a 1700000001000 5 1 2147483647 o c\x01",
		"1700000000000000\nh:a\n9007199254740993 18446744073709551615 o", "x", "1\nh", "5000\nowner", "-1\nkept:x",
		"9007199254740992\nh:a\n9007199254740992 9007199254740992 o 1",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, plain bool) {
		answer := strings.Split(text, "\n")
		for i := range answer {
			answer[i] = strings.ReplaceAll(answer[i], "\x01", "\n")
		}
		state, ok := redisstore.View(plain, answer)
		if !ok {
			if len(state.Holds)+len(state.Waiters) > 0 || state.Run != nil {
				t.Errorf("%q cannot be read, and shows %+v", text, state)
			}
			return
		}
		for _, h := range append(state.Holds, state.Waiters...) {
			if h.Weight < 1 || h.Weight > store.All || h.Age < 0 || h.Left < 0 || h.ID != "" && len(h.ID) != 11 {
				t.Errorf("%q shows %+v", text, h)
			}
		}
		if r := state.Run; r != nil && (r.Attempt < 0 || r.Left <= 0) {
			t.Errorf("%q shows %+v", text, r)
		}
	})
}

// holdsBackTime acquires c and delays its TIME. It calls meanwhile, makes the next
// holder acquire the key, and then delivers the TIME. It returns the grant of c, and the
// grant of the next holder.
func (r *rig) holdsBackTime(t *testing.T, c store.Claim, meanwhile func()) (granted, next store.Grant) {
	t.Helper()
	f := r.proxy.Inject(testserver.Match{Command: "time"}, testserver.HoldRequest)
	got := make(chan store.Grant, 1)
	go func() {
		g, err := r.store.Acquire(context.Background(), c)
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		got <- g
	}()
	f.Await(t)
	meanwhile()
	next = acquire(t, r.direct, claimOf(c.Key))
	// The token of a hold that a script has read can be 2 ms ahead.
	time.Sleep(20 * time.Millisecond)
	f.Deliver()
	granted = <-got
	wantIs(t, "extend", extend(r.store, c), store.ErrLost)
	return granted, next
}

// TestRevoke_BeforeItsToken revokes a hold while its holder waits for the TIME
// that is its token. The next hold must still have a higher token.
func TestRevoke_BeforeItsToken(t *testing.T) {
	t.Parallel()
	r, c := newRig(t, testserver.StartRedis(t), nil), claimed()
	granted, next := r.holdsBackTime(t, c, func() {
		if err := r.direct.Revoke(t.Context(), c.Key, store.HoldID(c.Lease), 0); err != nil {
			t.Fatalf("revoke: %v", err)
		}
	})
	if granted.Token == 0 || next.Token < granted.Token+store.TokenStep {
		t.Errorf("the next token is %d after %d", next.Token, granted.Token)
	}
}

// TestDeleted_BeforeItsToken shows a limit. If another program deletes the key
// while the TIME is in flight, the deleted hold's token is higher than the next hold's
// token.
func TestDeleted_BeforeItsToken(t *testing.T) {
	t.Parallel()
	r, c := newRig(t, testserver.StartRedis(t), nil), claimed()
	granted, next := r.holdsBackTime(t, c, func() { r.asks.Del(t.Context(), stored(c)) })
	if granted.Token <= next.Token {
		t.Errorf("the token %d is not later than the next one, %d: this is no limit", granted.Token, next.Token)
	}
}
