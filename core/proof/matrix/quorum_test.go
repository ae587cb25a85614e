package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// quorumTable lists operations that are tested with a fault in the message to one of
// five servers. The majority completes the operation, whatever the fifth server does. At
// the end no hold is left on any server. A late message arrives while the lease is held
// (within), after a TTL (beyond) or after the next operation (overtaken).
var quorumTable = []struct {
	name string
	play func(m *member)
	why  string
}{
	{"acquire", quorumAcquire, "four servers grant; the fifth grants the same claim or refuses it once it was released"},
	{"re-enter", quorumReenter, "four servers join the outer hold, which stands when the inner one is released"},
	{"renew", quorumRenew, "a majority extends; a late extension creates nothing and shortens nothing"},
	{"leave", quorumLeave, "a majority gives up the inner hold and keeps the outer one; the request to the fifth is repeated"},
	{"release", quorumRelease, "a majority is free at once, for the waiter; the request to the fifth is repeated"},
	{"wait", quorumWait, "the waiter is woken by the others, and served by a majority"},
}

// TestQuorumMatrix checks a quorum with a fault of one server's message. There is no
// fault for a record, because a quorum refuses records before any request is sent. No
// node is certain to have a record's last state.
//
// The test covers hazards 7, 9, 11, 13, 14, 15, 52 and 54.
func TestQuorumMatrix(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	q := newQuorum(t)
	var mu sync.Mutex
	bit, played, want := make(map[string]int), 0, 0
	t.Run("all cells", func(t *testing.T) {
		for _, op := range quorumTable {
			want += len(faults) * trials()
			for _, f := range faults {
				for trial := range trials() {
					t.Run(fmt.Sprint(op.name, " ", f.name, " quorum ", trial+1), func(t *testing.T) {
						t.Parallel()
						m := q.member(t, f, trial)
						op.play(m)
						if t.Failed() {
							t.Logf("what was wanted: %s", op.why)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						played++
						bit[f.name] += m.proxies[m.at].Times(m.armed)
					})
				}
			}
		}
		t.Run("record sends nothing", func(t *testing.T) {
			t.Parallel()
			m := q.member(t, faults[0], 0)
			for _, p := range m.proxies {
				p.Forget()
			}
			_, _, err := m.locker.Begin(context.Background(), m.key, store.Record{Retain: time.Hour}, core.TTL(ttl))
			if !errors.Is(err, core.ErrUnsupported) {
				t.Errorf("got %v, want unsupported", err)
			}
			for i, p := range m.proxies {
				if n := p.Count(testserver.Match{Script: "acquire"}); n > 0 {
					t.Errorf("%d claims were sent to server %d", n, i)
				}
			}
		})
	})
	if !t.Failed() && played != want {
		t.Errorf("test setup: %d of %d trials", played, want)
	}
	tally.Note(t, tally.Facts{
		Part: "matrix", Runs: played, Faults: bit, Outcomes: map[string]int{"done": played},
		Violations: map[string]int{"overlaps": 0, "tokens back": 0, "left behind": 0},
		Versions:   map[string]string{"redis-server": q.servers[0].Field("server", "redis_version")},
	})
}

func quorumAcquire(m *member) {
	m.arm("acquire", 0)
	lease := m.acquire(context.Background(), m.locker)
	m.wantMajority(1)
	m.wantBusy()
	switch m.fault.when {
	case within:
		m.deliver()
		m.wantMajority(1)
	case beyond:
		time.Sleep(ttl + 200*time.Millisecond)
	}
	m.release(lease)
	if m.fault.when > within {
		m.refusedLate()
	}
	m.finish(lease.Token())
}

func quorumReenter(m *member) {
	outer := m.acquire(context.Background(), m.locker)
	m.eventually("all know of it", func() bool { return m.has(1) == nodes })
	m.arm("acquire", 0)
	inner := m.acquire(outer.Context(), m.locker)
	if inner.Token() != outer.Token() {
		m.t.Errorf("the inner lease has token %d, the outer one %d", inner.Token(), outer.Token())
	}
	m.wantMajority(2)
	switch m.fault.when {
	case within:
		m.deliver()
		m.wantMajority(2)
	case beyond:
		time.Sleep(ttl + 200*time.Millisecond)
	}
	m.release(inner)
	if m.fault.when > within {
		m.refusedLate(outer)
	}
	m.wantMajority(1)
	m.wantBusy()
	m.release(outer)
	m.finish(outer.Token())
}

func quorumRenew(m *member) {
	lease := m.acquire(context.Background(), m.locker)
	m.arm("extend", 0)
	m.armed.Await(m.t)
	switch m.fault.when {
	case overtaken, beyond:
		if m.fault.when == beyond {
			time.Sleep(ttl + 200*time.Millisecond)
		}
		m.release(lease)
		m.eventually("nobody holds", func() bool { return m.has(0) == nodes })
		m.deliver()
		if n := m.with(m.at, "h:"); n > 0 {
			m.t.Errorf("a late extension has made %d holds", n)
		}
		m.finish(lease.Token())
		return
	case within:
		m.deliver()
	}
	// Together with the time until the extension, this pause is longer than the lease
	// lasts without an extension.
	time.Sleep(ttl * 2 / 3)
	m.wantMajority(1)
	m.wantBusy()
	m.release(lease)
	m.finish(lease.Token())
}

func quorumLeave(m *member) {
	outer := m.acquire(context.Background(), m.locker)
	inner := m.acquire(outer.Context(), m.locker)
	m.eventually("all know of it", func() bool { return m.has(2) == nodes })
	m.arm("release", 0)
	m.release(inner)
	m.wantMajority(1)
	m.wantBusy()
	switch m.fault.when {
	case overtaken:
		m.release(outer)
		next := m.acquire(context.Background(), m.rival)
		m.deliver()
		m.wantMajority(1)
		m.release(next)
		m.finish(next.Token())
		return
	case beyond:
		time.Sleep(ttl + 200*time.Millisecond)
		m.deliver()
	case within:
		m.deliver()
	}
	if err := outer.Extend(context.Background(), ttl); err != nil {
		m.t.Errorf("the outer lease cannot be extended: %v", err)
	}
	m.wantMajority(1)
	m.release(outer)
	m.finish(outer.Token())
}

func quorumRelease(m *member) {
	lease := m.acquire(context.Background(), m.locker)
	got := make(chan *core.Lease, 1)
	go func() {
		l, err := m.rival.Acquire(context.Background(), m.key, core.TTL(ttl), core.Wait(patience))
		if err != nil {
			m.t.Errorf("the waiter got %v", err)
		}
		got <- l
	}()
	m.eventually("a claim waits", func() bool {
		n := 0
		for i := range nodes {
			n += min(1, m.with(i, "w"))
		}
		return n >= majority
	})
	m.arm("release", 0)
	m.release(lease)
	next := <-got
	if next == nil {
		return
	}
	if next.Token() <= lease.Token() {
		m.t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	m.wantMajority(1)
	switch m.fault.when {
	case beyond:
		time.Sleep(ttl + 200*time.Millisecond)
		m.deliver()
	case overtaken:
		m.release(next)
		next = m.acquire(context.Background(), m.rival)
		m.deliver()
	case within:
		m.deliver()
	}
	m.wantMajority(1)
	if err := next.Extend(context.Background(), ttl); err != nil {
		m.t.Errorf("the next lease cannot be extended: %v", err)
	}
	m.release(next)
	m.finish(next.Token())
}

func quorumWait(m *member) {
	holder := m.acquire(context.Background(), m.rival)
	m.arm("acquire", 1)
	got := make(chan *core.Lease, 1)
	go func() {
		l, err := m.locker.Acquire(context.Background(), m.key, core.TTL(ttl), core.Wait(patience))
		if err != nil {
			m.t.Errorf("the waiter got %v", err)
		}
		got <- l
	}()
	m.armed.Await(m.t)
	if m.fault.when == within {
		m.deliver()
	}
	m.release(holder)
	if m.fault.when == overtaken {
		m.deliver()
	}
	lease := <-got
	if lease == nil {
		return
	}
	if lease.Token() <= holder.Token() {
		m.t.Errorf("token %d after %d", lease.Token(), holder.Token())
	}
	m.wantMajority(1)
	if m.fault.when == beyond {
		time.Sleep(ttl + 200*time.Millisecond)
	}
	m.release(lease)
	if m.fault.when == beyond {
		m.refusedLate()
	}
	m.finish(lease.Token())
}
