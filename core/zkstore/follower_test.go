package zkstore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestCutOffFollower cuts a follower off from the leader right after the follower has
// confirmed a grant. The follower still answers its clients. The time for which its
// clients trust the grant ends before another holder is admitted. This must be true at
// every phase of the leader's ticks and of the clients' pings, so the test varies both.
// The follower reports its clients to the leader every half tick, so long ticks are the
// hard case. hazard 55
func TestCutOffFollower(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	const clients, tick, short = 20, time.Second, 2200 * time.Millisecond
	rounds := tally.Trials(50)
	ensemble := testserver.StartEnsemble(t, tick)
	type holder struct {
		claim store.Claim
		ends  time.Time
	}
	grants, overlaps, least := 0, 0, short
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			leader := ensemble.Leader()
			var follower *testserver.ZooKeeper
			for _, s := range ensemble.Servers {
				if s != leader {
					follower = s
				}
			}
			link := ensemble.Link(follower, leader)
			rival, _ := storeOn(t, session, []string{leader.Addr})
			var stores []store.Store
			for range clients {
				s, _ := storeOn(t, short, []string{follower.Addr})
				stores = append(stores, s)
				time.Sleep(short / 3 / clients) // so that their pings are spread evenly
			}
			time.Sleep(short/3 + time.Duration(round)*tick/7)
			ctx, cancel := context.WithTimeout(t.Context(), short/2)
			defer cancel()
			var mu sync.Mutex
			var holders []holder
			var wg sync.WaitGroup
			for i, s := range stores {
				wg.Go(func() {
					c := exclusive("far" + strconv.Itoa(round) + "." + strconv.Itoa(i))
					sent := time.Now()
					g, err := s.Acquire(ctx, c)
					link.Partition() // at the first response, with other requests in flight
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						holders = append(holders, holder{c, sent.Add(g.Valid)})
					}
				})
			}
			wg.Wait()
			grants += len(holders)
			for _, h := range holders {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					await(ctx, t, rival, waiting(h.claim.Key))
					margin := time.Since(h.ends)
					mu.Lock()
					defer mu.Unlock()
					if margin <= 0 {
						overlaps++
						t.Errorf("another owner got in %v before the end of a grant", -margin)
					}
					least = min(least, margin)
				})
			}
			wg.Wait()
			link.Heal()
			eventually(t, "the follower is back", func() bool { return follower.Mode() != "" })
		})
	}
	t.Logf("%d grants, %d overlaps; the closest end was %v before the next grant", grants, overlaps, least)
	if grants < rounds {
		t.Errorf("test setup: got %d grants in %d rounds", grants, rounds)
	}
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: rounds, Faults: map[string]int{"follower cut off": rounds},
		Grants: 2 * grants, ToOthers: grants, Violations: map[string]int{"overlaps": overlaps},
	})
}

// await sends a waiting claim until it is granted, as a Locker does.
func await(ctx context.Context, t testing.TB, s store.Store, c store.Claim) {
	t.Helper()
	woken, err := s.(store.Watcher).Watch(ctx, c)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		if _, err = s.Acquire(ctx, c); err == nil {
			return
		}
		select {
		case <-woken:
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Errorf("was not granted %s: %v", c.Key, err)
			return
		}
	}
}
