package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestShortcutsAgreeOnWaiters checks that a release with waiters grants the key to the
// first waiter that it can reach, or wakes that waiter.
func TestShortcutsAgreeOnWaiters(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	calls, asks := newStore(t, testclient.Redis(t, server.Addr)), testclient.Redis(t, server.Addr)
	mute := newStore(t, testclient.Redis(t, server.Addr, lacking(t, server, "publish")))
	const exclusive, second = "2147483647 2147483647", int64(1000)
	// state contains the entries of a lease with the name 1, and the waiters. Times are
	// in ms from now.
	type state struct {
		since, lasts int64
		weight       string
		token        int64 // in us from now
		waiting      []string
		at           []int64 // the deadlines of their places
		granted      string  // the lease that is granted by message
		woken        string  // the lease that is woken and has to ask
		overheard    bool    // a subscriber listens to all channels
		mute         bool    // the releasing client must not publish
	}
	for name, c := range map[string]state{
		"waiter that can be granted": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"future token": {
			-second, 60 * second, " 2147483647", 60e6, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"future token and more waiters": {
			-second, 60 * second, " 2147483647", 60e6, []string{"2 % 4 " + exclusive + " o2 ID", "3 % 0 " + exclusive + " o3 ID"}, []int64{9 * second, 9 * second}, "2", "", false, false,
		},
		"fair waiter and one behind": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 5 " + exclusive + " o2 ID", "3 % 4 " + exclusive + " o3 ID"}, []int64{9 * second, 9 * second}, "2", "", false, false,
		},
		"waiter that asked long ago": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{2 * second}, "", "2", false, false,
		},
		"waiter before clock set back": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{15 * second}, "", "2", false, false,
		},
		"gone waiter and one behind": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID", "3 % 4 " + exclusive + " o3 ID"}, []int64{-second, 9 * second}, "3", "", false, false,
		},
		"waiter that has to ask": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 0 " + exclusive + " o2 ID"}, []int64{9 * second}, "", "2", false, false,
		},
		"waiter without message one behind": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 nobody", "3 % 4 " + exclusive + " o3 ID"}, []int64{9 * second, 9 * second}, "3", "", false, false,
		},
		"overheard waiter without message": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 nobody"}, []int64{9 * second}, "", "", true, false,
		},
		"overheard asking waiter without message": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 0 " + exclusive + " o2 nobody", "3 % 0 " + exclusive + " o3 ID"}, []int64{9 * second, 9 * second}, "", "3", true, false,
		},
		"muted release": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "", "", false, true,
		},
		"two readers": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 1 2147483647 o2 ID", "3 % 4 1 2147483647 o3 ID"}, []int64{9 * second, 9 * second}, "2 3", "", false, false,
		},
		"one of two permits": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 2 2 o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"expired hold": {
			-61 * second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"hold before clock set back": {
			60 * second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"shared hold": {
			-second, 60 * second, " 1", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
		"the lease itself": {
			-second, 60 * second, " 2147483647", -second, []string{"2 % 4 " + exclusive + " o2 ID", "1 % 4 " + exclusive + " o1 ID"}, []int64{9 * second, 9 * second}, "2", "", false, false,
		},
		"expired tombstone": {
			-second, 60 * second, " 2147483647\td:3 0 1", -second, []string{"2 % 4 " + exclusive + " o2 ID"}, []int64{9 * second}, "2", "", false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			id := strings.ReplaceAll(name, " ", "-")
			heard := testclient.Redis(t, server.Addr).Subscribe(ctx, "lk2:wake:"+id)
			defer heard.Close()
			if _, err := heard.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			if c.overheard {
				spy := testclient.Redis(t, server.Addr).PSubscribe(ctx, "lk2:wake:*")
				defer spy.Close()
				if _, err := spy.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			s := calls
			if c.mute {
				s = mute
			}
			var all [2]seen
			for i, k := range []*twin{{key: name + ":free"}, {key: name + ":long", slow: asks}} {
				now := asks.Time(ctx).Val().UnixMicro()
				waits := "\n"
				for i, line := range c.waiting {
					line = strings.ReplaceAll(line, "ID", id)
					waits += strings.Replace(line, "%", fmt.Sprint(now/1000+c.at[i]), 1) + "\n"
				}
				k.last = uint64(now + c.token)
				h, d, _ := strings.Cut(fmt.Sprintf("%d %d o1%s", now+c.since*1000, c.lasts, c.weight), "\t")
				fields := []string{"h:1 " + h, "t " + fmt.Sprint(now+c.token), "w " + waits}
				if d != "" {
					fields = append([]string{fields[0], d}, fields[1:]...)
				}
				err := asks.Set(ctx, stored(store.Claim{Key: k.key}), "f\t"+strings.Join(fields, "\t"), time.Minute).Err()
				if err := cmp.Or(err, k.fill(ctx, asks)); err != nil {
					t.Fatal(err)
				}
				err = s.Release(ctx, k.of(store.Claim{Owner: "o1", Lease: "1", Weight: store.All, Limit: store.All}))
				all[i] = k.look(ctx, asks, store.Grant{}, err)
				if got := fmt.Sprint(all[i].holds); got != "["+c.granted+"]" {
					t.Errorf("%s: the holds are %s, want those of %q", k.key, got, c.granted)
				}
				woken, granted := hearAll(ctx, t, heard)
				if granted != c.granted || woken != c.woken {
					t.Errorf("%s: granted by message to %q and woken %q, want %q and %q", k.key, granted, woken, c.granted, c.woken)
				}
			}
			if all[0].fault != "" || all[1].fault != "" {
				t.Errorf("faults: by a shortcut %q, without %q", all[0].fault, all[1].fault)
			}
			if all[0].says != all[1].says {
				t.Errorf("by a shortcut: %s\nwithout: %s", all[0].says, all[1].says)
			}
			if d := all[0].times[0] - all[1].times[0]; d.Abs() > slack {
				t.Errorf("it lasts %v, without a shortcut %v", all[0].times[0], all[1].times[0])
			}
		})
	}
}

// hearAll returns the leases that were woken and have to ask, and those that were
// granted the key.
func hearAll(ctx context.Context, t *testing.T, heard *redis.PubSub) (woken, granted string) {
	t.Helper()
	if err := heard.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := heard.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *redis.Pong:
			return strings.TrimSpace(woken), strings.TrimSpace(granted)
		case *redis.Message:
			head, grant, ok := strings.Cut(m.Payload, "\n")
			lease := head[strings.LastIndex(head, " "):]
			if ok && strings.Count(grant, " ") == 2 {
				granted += lease
			} else {
				woken += lease
			}
		}
	}
}
