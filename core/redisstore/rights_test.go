package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
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

// usualRights contains the documented rights of a service, except pubsub|numsub. Without
// that right a release only wakes waiters.
const usualRights = "eval evalsha mget set hmget hset hdel hgetall del time pexpire pttl publish subscribe unsubscribe ping info"

// login makes a user with these rights, and returns an edit of a client's options for
// that user.
func login(t testing.TB, server *testserver.Redis, name string, rights ...string) func(*redis.Options) {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">secret"}
	for _, r := range rights {
		args = append(args, r)
	}
	server.Do(args...)
	return func(o *redis.Options) { o.Username, o.Password = name, "secret" }
}

// lacking makes a user with all rights except the rights to these commands, see login.
func lacking(t testing.TB, server *testserver.Redis, commands ...string) func(*redis.Options) {
	t.Helper()
	rights := []string{"~*", "&*", "+@all"}
	for _, c := range commands {
		rights = append(rights, "-"+c)
	}
	return login(t, server, "lacks-"+strings.Join(commands, "-"), rights...)
}

// TestRights checks that usualRights, and the rights for plain keys, are sufficient. Each
// right is needed, except ping and unsubscribe, which a short test does not use.
func TestRights(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, fit...)
	all := map[bool][]string{
		false: strings.Fields(usualRights),
		true:  strings.Fields("eval evalsha get set del pexpire pttl info"),
	}
	user := func(t *testing.T, name string, plain bool, without string) *redisstore.Store {
		t.Helper()
		server := server
		if without == "eval" {
			server = testserver.StartRedis(t, fit...) // a server that does not know the scripts
		}
		rights := []string{"~lk1:*", "~lk2:*", "resetchannels", "&lk2:wake:*"}
		for _, right := range all[plain] {
			if right != without {
				rights = append(rights, "+"+right)
			}
		}
		var opts []redisstore.Option
		if plain {
			opts = append(opts, redisstore.WithPlainKeys())
		}
		return newStore(t, testclient.Redis(t, server.Addr, login(t, server, name, rights...)), opts...)
	}
	for plain, rights := range all {
		t.Run(fmt.Sprintf("all of them plain %v", plain), func(t *testing.T) {
			t.Parallel()
			s := user(t, fmt.Sprintf("all-%v", plain), plain, "")
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			if plain {
				c := claimed()
				acquire(t, s, c)
				release(t, s, c)
				return
			}
			for _, st := range append(scene(s, "rights", false), scene(s, "rights:fields", true)...) {
				if err := st.do(); st.want != nil && err == nil || st.want == nil && err != nil {
					t.Errorf("%s: got %v, want %v", st.name, err, st.want)
				}
			}
			handedOver(t, s, s)
		})
		for _, right := range rights {
			if right == "ping" || right == "unsubscribe" {
				continue // not used during a trial of a few seconds
			}
			t.Run(fmt.Sprintf("without %s plain %v", right, plain), func(t *testing.T) {
				t.Parallel()
				s := user(t, fmt.Sprintf("no-%s-%v", right, plain), plain, right)
				err := s.Check(t.Context())
				if err == nil || !strings.Contains(err.Error(), "+"+right) {
					t.Errorf("check: got %v, want one that names +%s", err, right)
				}
				if strings.HasPrefix(right, "h") && !strings.Contains(fmt.Sprint(err), "the user lacks +"+right+" (") {
					t.Errorf("check: got %v, want one that says that +%s is missing", err, right)
				}
				c := claimed()
				switch _, err := s.Acquire(t.Context(), c); {
				case right == "time": // the SET was done
					unknown(t, "acquire", err)
				case err != nil:
					wantIs(t, "acquire", err, store.ErrUnavailable)
				}
			})
		}
	}
	t.Cleanup(func() { everyKeyExpires(t, server) })
}

// TestHalfAScript refuses the inner commands of the scripts for the kit's own keys one
// by one. A script that reports a refusal must leave the state unchanged (hazard 28).
// It may remove expired entries.
func TestHalfAScript(t *testing.T) {
	if testing.Short() {
		t.Skip("a busy machine changes no outcome")
	}
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	every := 10 / tally.AllTrials(10) // in the proof each form of key, else one of three
	for i, denied := range strings.Fields("mget set hmget hset hdel hgetall del time pexpire pttl publish") {
		s := newStore(t, testclient.Redis(t, r.server.Addr, lacking(t, r.server, denied)))
		for j, c := range halves {
			for k, form := range []string{"a string", "hash fields", "a hash"} {
				if (i+j+k)%every > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s without %s %s", c.name, denied, form), func(t *testing.T) {
					held := claimed()
					if form == "a hash" {
						plant(r.direct, held.Key)
					} else {
						held = forms[form]()
					}
					do := c.prepare(t, r.direct, s, held)
					before := r.fields(t, held)
					err := do()
					after := r.fields(t, held)
					if before["t"] != "" && after["t"] > before["t"] {
						after["t"] = before["t"] // a token that was not granted is harmless
					}
					if before["t"] == "" && after["t"] == fmt.Sprint(last(before)) {
						delete(after, "t") // the hold's own token is harmless too
					}
					if left := r.asks.PTTL(t.Context(), stored(held)).Val(); left == -1 {
						t.Error("the key has no TTL")
					}
					switch {
					case err == nil, errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrLost):
					case denied == "time" && len(before) == 0: // the SET was done
					case !errors.Is(err, store.ErrUnavailable):
						t.Errorf("got %v", err)
					case !maps.Equal(before, after):
						t.Errorf("got %v, and the state is %v, was %v", err, after, before)
					}
				})
			}
		}
	}
}

// halves lists operations whose script can fail half-way.
var halves = []struct {
	name    string
	prepare func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error
}{
	{"a free key", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		return func() error { _, err := s.Acquire(t.Context(), c); return err }
	}},
	{"a free key with a token", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		c.MinToken = 1
		return func() error { _, err := s.Acquire(t.Context(), c); return err }
	}},
	{"a further hold", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		return func() error { _, err := s.Acquire(t.Context(), nested(c)); return err }
	}},
	{"a longer further hold", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		c.TTL = time.Hour
		return func() error { _, err := s.Acquire(t.Context(), nested(c)); return err }
	}},
	{"a place in line", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		w := claimOf(c.Key)
		w.Wait = true
		return func() error { _, err := s.Acquire(t.Context(), w); return err }
	}},
	{"an extension", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		c.TTL *= 2
		return func() error { return extend(s, c) }
	}},
	{"the last release", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"the release of one of two", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		acquire(t, full, nested(c))
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"a release that wakes a waiter", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		for range 2 {
			w := claimOf(c.Key)
			w.Wait, w.Fair = true, true
			_, _ = full.Acquire(t.Context(), w)
		}
		w := claimOf(c.Key)
		w.Wait = true
		_, _ = full.Acquire(t.Context(), w)
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"a release that keeps the key", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		c.Keep = time.Hour
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"a release that keeps the key briefly", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		c.Keep = 30 * time.Second
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"a release of one of two that keeps it", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		acquire(t, full, nested(c))
		c.Keep = time.Hour
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"a revoke", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		return revoking(t, full, s, c, 0)
	}},
	{"a revoke that keeps the key", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		return revoking(t, full, s, c, time.Hour)
	}},
	{"a first run", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		return func() error { _, err := s.Acquire(t.Context(), begins(c, "begun")); return err }
	}},
	{"a first run beside a reader", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		c = shared(c)
		acquire(t, full, c)
		again := begins(claimOf(c.Key), "begun")
		again = shared(again)
		return func() error { _, err := s.Acquire(t.Context(), again); return err }
	}},
	{"a second run", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, begins(c, "begun"))
		release(t, full, saves(c, "failed", 1, false))
		return func() error { _, err := s.Acquire(t.Context(), begins(claimOf(c.Key), "again")); return err }
	}},
	{"the end of a run", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, begins(c, "begun"))
		w := begins(claimOf(c.Key), "again")
		w.Wait = true
		_, _ = full.Acquire(t.Context(), w)
		return func() error { return s.Release(t.Context(), saves(c, "answer", 1, true)) }
	}},
	{"an answer", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, begins(c, "begun"))
		release(t, full, saves(c, "answer", 1, true))
		return func() error { _, err := s.Acquire(t.Context(), begins(claimOf(c.Key), "again")); return err }
	}},
	{"a tombstone", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		return func() error { return s.Release(t.Context(), c) }
	}},
	{"giving up a place", func(t *testing.T, full, s *redisstore.Store, c store.Claim) func() error {
		acquire(t, full, c)
		w := claimOf(c.Key)
		w.Wait = true
		_, _ = full.Acquire(t.Context(), w)
		return func() error { return s.Release(t.Context(), w) }
	}},
}

// TestLook_NamesOfLocksAlone reads a lock of Redisson as a user that may use the names of
// some locks alone. The error names no right to a command that the user may run.
func TestLook_NamesOfLocksAlone(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	as := login(t, server, "orders", "resetkeys", "~orders:*", "+@all", "-hlen")
	s := newStore(t, testclient.Redis(t, server.Addr, as), redisstore.WithRedisson())
	_, err := s.Look(t.Context(), "orders:1")
	wantIs(t, "look", err, store.ErrUnavailable)
	// Servers since 7.2 name the command themselves.
	if text := err.Error(); strings.Contains(text, "lacks") && !strings.Contains(text, "the user lacks +hlen: ") {
		t.Errorf("got %v, want +hlen as the only missing right", err)
	}
}

func revoking(t *testing.T, full, s *redisstore.Store, c store.Claim, keep time.Duration) func() error {
	t.Helper()
	acquire(t, full, c)
	state, err := full.Look(t.Context(), c.Key)
	if err != nil || len(state.Holds) != 1 {
		t.Fatalf("look: got %+v, %v", state, err)
	}
	return func() error { return s.Revoke(t.Context(), c.Key, state.Holds[0].ID, keep) }
}

// TestHalfAScript_ForeignKeys is TestHalfAScript for plain keys and for Redisson's
// locks. It refuses the inner commands one by one and in pairs, of which the proof tests
// all. After an error the key has the same holds for the same time as before, and the
// same call fails again.
func TestHalfAScript_ForeignKeys(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	for form, f := range map[string]struct {
		prefix, commands string
		opt              redisstore.Option
	}{
		"plain":    {"lk1:", "get set del pttl pexpire", redisstore.WithPlainKeys()},
		"Redisson": {"", "hget hset hdel hgetall hlen get set del time lindex pttl pexpire publish", redisstore.WithRedisson()},
	} {
		full := newStore(t, testclient.Redis(t, server.Addr), f.opt)
		stored := func(c store.Claim) (value any, ttl time.Duration) {
			name := f.prefix + c.Key
			if value = asks.Get(t.Context(), name).Val(); form == "Redisson" {
				value = asks.HGetAll(t.Context(), name).Val()
			}
			return value, asks.PTTL(t.Context(), name).Val()
		}
		commands := strings.Fields(f.commands)
		most := tally.AllTrials(len(commands))
		for i, denied := range commands {
			// denied itself is the first
			for _, also := range commands[i:min(i+most, len(commands))] {
				s := newStore(t, testclient.Redis(t, server.Addr, lacking(t, server, denied, also)), f.opt)
				for _, c := range halves {
					want, foreign := foreignHalves[c.name]
					if !foreign {
						continue
					}
					t.Run(fmt.Sprintf("%s without %s and %s %s", form, denied, also, c.name), func(t *testing.T) {
						held := claimed()
						do := c.prepare(t, full, s, held)
						before, lived := stored(held)
						err := do()
						after, lives := stored(held)
						if lives == -1 {
							t.Error("the key has no expiry")
						}
						switch {
						case errors.Is(err, store.ErrUnsupported):
							t.Skip(err)
						case err != nil:
							wantIs(t, "call", err, store.ErrUnavailable)
							if !reflect.DeepEqual(before, after) || (lived-lives).Abs() > 20*time.Second {
								t.Errorf("got %v, and the key is %v for %v, was %v for %v", err, after, lives, before, lived)
							}
							wantIs(t, "second call", do(), store.ErrUnavailable)
						case lives < want.lasts-20*time.Second:
							t.Errorf("the key lasts for %v, want %v", lives, want.lasts)
						case want.ends:
							wantIs(t, "second release", full.Release(t.Context(), held), store.ErrLost)
						}
					})
				}
			}
		}
	}
}

// foreignHalves contains the cases of halves for plain keys and Redisson's locks. After
// the call the key lasts at least for lasts. The call ends the first hold if ends is set.
var foreignHalves = map[string]struct {
	lasts time.Duration
	ends  bool
}{
	"a free key":                            {lasts: time.Minute},
	"a free key with a token":               {lasts: time.Minute},
	"a further hold":                        {lasts: time.Minute},
	"a longer further hold":                 {lasts: time.Hour},
	"an extension":                          {lasts: 2 * time.Minute},
	"the last release":                      {ends: true},
	"the release of one of two":             {ends: true},
	"a release that keeps the key":          {lasts: time.Hour, ends: true},
	"a release of one of two that keeps it": {lasts: time.Hour, ends: true},
	"a release that keeps the key briefly":  {lasts: 30 * time.Second, ends: true},
	"a revoke":                              {ends: true},
	"a revoke that keeps the key":           {lasts: time.Hour, ends: true},
}
