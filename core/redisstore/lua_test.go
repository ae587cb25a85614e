package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// luaRecorder records the calls of scripts to a server. It repeats each call on a copy
// of the key.
type luaRecorder struct {
	t     *testing.T
	proxy *testserver.Proxy
	asks  *redis.Client
	texts map[string]string // the texts of the scripts
	cases bytes.Buffer      // for replay.lua
	count map[string]int    // the number of cases by script
	size  int               // the size of the last case's calls and answers in bytes
}

func newLuaRecorder(t *testing.T, addr string) *luaRecorder {
	r := &luaRecorder{
		t: t, proxy: testserver.NewRedisProxy(t, addr), asks: testclient.Redis(t, addr),
		texts: make(map[string]string), count: make(map[string]int),
	}
	for script, files := range scriptFiles(t) {
		for _, name := range files {
			r.texts[script] += luaText(t, name)
		}
		fmt.Fprintf(&r.cases, "script(%s, %s)\n", luaLiteral(script), luaLiteral(r.texts[script]))
	}
	return r
}

func luaLiteral(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03d`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// step runs do, which calls scripts on a key, and records each call.
func (r *luaRecorder) step(prefix, key string, do func()) {
	r.t.Helper()
	ctx, second := context.Background(), "copy:"+key
	if err := r.asks.Del(ctx, second).Err(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.asks.Copy(ctx, key, second, 0, true).Err(); err != nil {
		r.t.Fatal(err)
	}
	r.proxy.Forget()
	do()
	for _, q := range r.proxy.Requests() {
		if i := slices.Index(q.Args, key); i > 0 {
			q.Args[i] = second
			r.note(prefix, q.Args)
		}
	}
}

// note sends a request again on the copy, and records it if it calls a script.
func (r *luaRecorder) note(prefix string, args []string) {
	r.t.Helper()
	ctx := context.Background()
	if args[0] = strings.ToLower(args[0]); args[0] != "evalsha" && args[0] != "eval" {
		var words []any
		for _, a := range args {
			words = append(words, a)
		}
		if err := r.asks.Do(ctx, words...).Err(); err != nil && err != redis.Nil {
			r.t.Fatal(err)
		}
		return
	}
	most, err := strconv.Atoi(args[2])
	if err != nil {
		r.t.Fatal(err)
	}
	keys, args := args[3:3+most], args[3+most:]
	verb, _, _ := strings.Cut(args[0], " ")
	verb = strings.Replace(verb, "revoke", "release", 1)
	name := prefix + verb
	if r.texts[name] == "" { // shared with the default, or the script for cards
		if name = verb; r.texts[name] == "" {
			name = "card"
		}
	}
	recorder, err := os.ReadFile("testdata/record.lua")
	if err != nil {
		r.t.Fatal(err)
	}
	var argv, literals []any
	for _, a := range args {
		argv, literals = append(argv, a), append(literals, luaLiteral(a))
	}
	noted, err := r.asks.Eval(ctx, strings.Replace(string(recorder), "\nSCRIPT\n", "\n"+r.texts[name]+"\n", 1), keys, argv...).Text()
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(literals)), ","), "[]")
	var names []string
	for _, k := range keys {
		names = append(names, luaLiteral(k))
	}
	fmt.Fprintf(&r.cases, "case(%s, {%s}, {%s}, %s)\n", luaLiteral(name), strings.Join(names, ", "), list, noted)
	r.count[name]++
	r.size = len(noted)
}

// luaStarts returns values of a key with which a sequence can begin.
func luaStarts() []string {
	us := time.Now().UnixMicro()
	ahead, crowd := us+60_000_000, fmt.Sprintf("f\th:0 %d 60000 owner0 1", us)
	for i := range 40 {
		crowd += fmt.Sprintf("\th:reader%d %d 60000 owner%d 1", i, us, i)
	}
	return []string{
		"", crowd,
		fmt.Sprintf("f\th:0 %d 60000 owner0 2147483647\tt %d", us, us-100),
		fmt.Sprintf("f\th:0 %d 60000 owner0 2147483647\tt %d", ahead, us),
		fmt.Sprintf("f\tr %d 2 3 0 0 2 x\th:0 %d 60000 owner0 2147483647\tt %d\tv begun", us/1000+60_000, us, us),
		"", "f\tr 0 1 1 x\tv answer", "f\tr 0 1 2 x\tv failed",
	}
}

// TestScriptsInLua54 runs the scripts in Lua 5.1, which Redis uses, and in Lua 5.4. Lua
// 5.4 has integers, and its math.max does not compare a number with a string. Both
// versions must send the same commands, store the same texts and return the same
// answers.
func TestScriptsInLua54(t *testing.T) {
	if testing.Short() {
		t.Skip("a busy machine changes no outcome")
	}
	t.Parallel()
	testserver.RequireLua(t)
	server := testserver.StartRedis(t)
	r := newLuaRecorder(t, server.Addr)
	calls, listens := newStore(t, testclient.Redis(t, r.proxy.Addr)), newStore(t, testclient.Redis(t, r.proxy.Addr))
	plain := newStore(t, testclient.Redis(t, r.proxy.Addr), redisstore.WithPlainKeys(), redisstore.WithPrefix(""))
	for _, s := range []*redisstore.Store{calls, listens} {
		if _, err := s.Watch(t.Context(), claimOf("lua")); err != nil {
			t.Fatal(err)
		}
	}
	card := func() {
		if err := calls.Put(t.Context(), store.Card{Process: "p" + strconv.Itoa(r.count["card"])}, 10*time.Millisecond); err != nil {
			t.Error(err)
		}
	}
	c := claimed()
	for _, st := range scene(calls, c.Key, false) {
		_ = st.do() // afterwards the server knows the scripts
	}
	for _, fields := range []bool{false, true} {
		c = claimed()
		for _, st := range scene(calls, c.Key, fields) {
			r.step("", stored(c), func() { _ = st.do() })
		}
	}
	silent := newStore(t, testclient.Redis(t, r.proxy.Addr), redisstore.WithoutScriptedWakeUps())
	c = claimed()
	for _, st := range scene(silent, c.Key, false) {
		_ = st.do()
	}
	for range 8 {
		c = claimed()
		w := claimOf(c.Key)
		w.Wait, w.Fair = true, true
		for _, do := range []func(){
			func() { _, _ = silent.Acquire(t.Context(), c) },
			func() { _, _ = silent.Acquire(t.Context(), w) },
			func() { _, _ = silent.Acquire(t.Context(), shared(claimOf(c.Key))) },
			func() { _, _ = silent.Look(t.Context(), c.Key) },
			func() { _ = silent.Release(t.Context(), c) },
			func() { _, _ = silent.Acquire(t.Context(), w) },
			func() { _ = silent.Release(t.Context(), w) },
		} {
			r.step("silent_", stored(c), do)
		}
	}
	for range 3 { // rare in random sequences
		c, run, read := claimed(), claimed(), claimed()
		r.step("", stored(c), func() { _, _ = calls.Acquire(t.Context(), c) })
		c.Last = uint64(time.Now().Add(time.Second).UnixMicro())
		r.step("", stored(c), func() { _ = calls.Release(t.Context(), c) })
		run.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
		r.step("", stored(run), func() {
			g, _ := calls.Acquire(t.Context(), run)
			run.Last = g.Token
		})
		run.Record = &store.Record{Value: []byte("answer\x00\n\xff"), Attempt: 1, Done: true, Retain: time.Minute}
		r.step("", stored(run), func() { _ = calls.Release(t.Context(), run) })
		read.Lease, read.TTL = "0", 2*time.Minute
		if err := r.asks.Set(t.Context(), stored(read), luaStarts()[1], time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		r.step("", stored(read), func() { _ = extend(calls, read) })
	}
	plainly := claimed()
	other, keeps := claimOf(plainly.Key), plainly
	keeps.Keep = time.Millisecond
	_, _ = plain.Acquire(t.Context(), plainly)
	starts := luaStarts()
	for seed := range uint64(tally.AllTrials(80)) {
		p := newCast(seed, calls, listens)
		k := &twin{key: "lua:" + strconv.FormatUint(seed, 10)}
		key := stored(store.Claim{Key: k.key})
		if start := starts[seed%uint64(len(starts))]; start != "" {
			if err := r.asks.Set(t.Context(), key, start, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			p.now = k.look(t.Context(), r.asks, store.Grant{}, nil)
		}
		for range 16 {
			m := p.next()
			if seed%2 == 1 && len(p.now.holds) > 0 && p.one(6) {
				m = p.revokes(p.holder())
			}
			var g store.Grant
			var err error
			r.step("", key, func() { g, err = m.do(k) })
			if m.brief {
				time.Sleep(after)
			}
			p.now = k.look(t.Context(), r.asks, g, err)
		}
	}
	for range 10 {
		r.step("", "lk2:{}cards", card)
		r.step("", "lk2:{}cards", func() { _, _ = calls.Cards(t.Context()) })
		for _, do := range []func(){
			func() { _, _ = plain.Acquire(t.Context(), plainly) },
			func() { _, _ = plain.Acquire(t.Context(), plainly) },
			func() { _ = extend(plain, other) },
			func() { _ = extend(plain, plainly) },
			func() { _, _ = plain.Acquire(t.Context(), other) },
			func() { _, _ = plain.Look(t.Context(), plainly.Key) },
			func() { _ = plain.Release(t.Context(), keeps) },
			func() { _ = plain.Release(t.Context(), other) },
		} {
			r.step("plain_", plainly.Key, do)
		}
		time.Sleep(after)
	}
	recordRedisson(t, r)
	t.Logf("cases: %v", r.count)
	for script := range r.texts {
		if r.count[script] < 10 {
			t.Errorf("%d cases of %s", r.count[script], script)
		}
	}
	for _, lua := range []string{"lua5.1", "lua5.4"} {
		cmd := exec.CommandContext(t.Context(), lua, "testdata/replay.lua")
		cmd.Stdin = bytes.NewReader(r.cases.Bytes())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", lua, err, out)
		}
	}
}

func recordRedisson(t *testing.T, r *luaRecorder) {
	t.Helper()
	s := newStore(t, testclient.Redis(t, r.proxy.Addr), redisstore.WithRedisson())
	for n := range 10 {
		c, theirs := claimed(), claimed()
		c.Key, theirs.Key = "redisson:"+strconv.Itoa(n), "theirs:"+strconv.Itoa(n)
		inner, fenced, other, keeps := nested(c), nested(c), claimOf(c.Key), c
		fenced.MinToken, fenced.TTL, keeps.Keep = 1, 2*time.Minute, time.Millisecond
		field := "285475da-9152-4c83-822a-67ee2f116a79:" + strconv.Itoa(n)
		if err := r.asks.HSet(t.Context(), theirs.Key, field, "2").Err(); err != nil {
			t.Fatal(err)
		}
		for _, do := range []func(){
			func() { _, _ = s.Acquire(t.Context(), c) },
			func() { _, _ = s.Acquire(t.Context(), inner) },
			func() { _, _ = s.Acquire(t.Context(), fenced) },
			func() { _, _ = s.Acquire(t.Context(), other) },
			func() { _ = extend(s, c) },
			func() { _ = extend(s, other) },
			func() { _, _ = s.Look(t.Context(), c.Key) },
			func() { _ = s.Release(t.Context(), fenced) },
			func() { _ = s.Release(t.Context(), other) },
			func() { _ = s.Release(t.Context(), keeps) },
			func() { _, _ = s.Acquire(t.Context(), c) },
			func() { _ = s.Revoke(t.Context(), c.Key, store.HoldID(inner.Lease), time.Second*time.Duration(n%2)) },
		} {
			r.step("redisson_", c.Key, do)
		}
		for _, do := range []func(){
			func() { _, _ = s.Acquire(t.Context(), theirs) },
			func() { _ = s.Release(t.Context(), theirs) },
			func() { _, _ = s.Look(t.Context(), theirs.Key) },
			func() { _ = s.Revoke(t.Context(), theirs.Key, store.HoldID(field), time.Second*time.Duration(n%2)) },
		} {
			r.step("redisson_", theirs.Key, do)
		}
		time.Sleep(after)
	}
}
