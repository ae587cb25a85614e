package matrix_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestQuorumWakeUps checks a waiter at a quorum when the wake-ups from all servers have
// the same mishap.
//
// It covers hazard 39.
func TestQuorumWakeUps(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	q := newQuorum(t)
	var mu sync.Mutex
	bit, played := make(map[string]int), 0
	t.Run("all cells", func(t *testing.T) {
		for _, m := range mishaps {
			for trial := range trials() {
				t.Run(fmt.Sprint("wake-up of waiter ", m, " quorum ", trial+1), func(t *testing.T) {
					t.Parallel()
					w := q.wakeUp(t, m, trial)
					w.serves(wokenTTL)
					if n := w.heard(); n < majority && !t.Failed() {
						t.Errorf("test setup: %d of %d servers have published", n, nodes)
					}
					mu.Lock()
					defer mu.Unlock()
					played++
					bit["wake-up "+string(m)] += w.heard()
				})
			}
		}
	})
	tally.Note(t, tally.Facts{
		Part: "matrix", Runs: played, Faults: bit, Outcomes: map[string]int{"done": played},
		Violations: map[string]int{"overlaps": 0, "tokens back": 0, "stuck waiters": 0, "left behind": 0},
	})
}

// quorumWakeUp is one trial, with a program that receives each server's messages through
// a tap.
type quorumWakeUp struct {
	*member
	taps [nodes]*tap
}

func (q *quorum) wakeUp(t *testing.T, m mishap, trial int) *quorumWakeUp {
	t.Helper()
	w := &quorumWakeUp{member: &member{quorum: q, t: t, key: fmt.Sprint("woken:", number.Add(1)), trial: trial}}
	for i := range nodes {
		w.taps[i] = newTap(t, m, "lk2:{"+w.key+"} ", trial)
	}
	w.locker = q.locker(t, func(i int) *redis.Client {
		return testclient.Redis(t, q.servers[i].Addr, func(o *redis.Options) { o.Dialer = w.taps[i].dial })
	})
	return w
}

// heard returns the number of servers that have published a message.
func (w *quorumWakeUp) heard() (n int) {
	for _, p := range w.taps {
		select {
		case <-p.fired:
			n++
		default:
		}
	}
	return n
}

func (w *quorumWakeUp) serves(ttl time.Duration) {
	holder := w.acquire(context.Background(), w.rival)
	got := waiterOf(context.Background(), w.t, w.locker, w.key, ttl)
	w.eventually("it is in line at all servers", func() bool {
		n := 0
		for i := range nodes {
			n += w.with(i, "w")
		}
		return n == nodes
	})
	w.release(holder)
	lease := served(w.t, got)
	if lease.Token() <= holder.Token() {
		w.t.Errorf("token %d comes after %d", lease.Token(), holder.Token())
	}
	w.wantMajority(1)
	w.wantBusy()
	for _, p := range w.taps {
		p.deliver()
	}
	w.wantMajority(1)
	w.wantBusy()
	w.release(lease)
	next := w.acquire(context.Background(), w.rival)
	w.release(next)
	w.eventually("nothing is left at any server", func() bool {
		for i := range nodes {
			if w.with(i, "h:")+w.with(i, "w") > 0 {
				return false
			}
		}
		return true
	})
}
