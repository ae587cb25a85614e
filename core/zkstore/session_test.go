package zkstore_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// short is the time-out of a session that expires while a test waits for it.
const short = 3 * time.Second

// expire disconnects a client until its session has expired, and then reconnects it.
func expire(t testing.TB, proxy *testserver.Proxy, conn *zk.Conn) {
	t.Helper()
	old := conn.SessionID()
	proxy.Down()
	time.Sleep(short + 2*testserver.ZooKeeperTick) // the server expires a session at its next tick
	proxy.Up()
	eventually(t, "the client has a new session", func() bool {
		return conn.SessionID() != old && conn.State() == zk.StateHasSession
	})
}

// inTime waits for the loss of a lease. The lease's session has the time-out short, and
// nothing was confirmed in the session after the time since. It fails the test if the
// lease is trusted for more than half of the session's time-out, or if the loss is
// noticed late.
func inTime(t testing.TB, l *core.Lease, since time.Time) {
	t.Helper()
	at, deadline := lostBy(t, l)
	if left := deadline.Sub(since); left > short/2 {
		t.Errorf("the holder relied on it for %v, a session lasts %v", left, short)
	}
	if late := at.Sub(deadline); late > patience/4 {
		t.Errorf("got the loss %v after the deadline", late)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)

	// A grant is valid for at most half of the time-out that the server grants, not of
	// the time-out that the client requests.
	t.Run("half of the granted session", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			ask, least, most time.Duration
			opts             []zkstore.Option
		}{
			{short, short * 4 / 10, short / 2, nil},
			// Two ticks are the minimum time-out.
			{time.Millisecond, 0, 2 * testserver.ZooKeeperTick / 2, nil},
			{time.Hour, 35 * time.Second, 400 * testserver.ZooKeeperTick / 2, nil},
			{session, 4 * time.Second, 9 * time.Second / 2, []zkstore.Option{zkstore.WithSessionTimeout(9 * time.Second)}},
			{short, short * 4 / 10, short / 2, []zkstore.Option{zkstore.WithSessionTimeout(time.Hour)}},
		} {
			s, _ := storeOn(t, c.ask, []string{server}, c.opts...)
			claim := exclusive("valid" + strconv.Itoa(int(c.ask/time.Millisecond)) + strconv.Itoa(len(c.opts)))
			claim.TTL = time.Hour
			start := time.Now()
			g, err := s.Acquire(t.Context(), claim)
			took := time.Since(start)
			if c.least == 0 && err != nil {
				continue // too short for a busy machine
			}
			// The time counts from the call, which is slightly before the request.
			if err != nil || g.Valid < c.least || g.Valid > c.most+took {
				t.Errorf("session of %v: valid for %v, %v; want %v to %v and the %v of the call", c.ask, g.Valid, err, c.least, c.most, took)
			}
			claim.TTL = time.Second / 10
			claim.Key += "x"
			if g, err := s.Acquire(t.Context(), claim); err == nil && g.Valid > claim.TTL {
				t.Errorf("valid for %v, longer than the TTL of %v", g.Valid, claim.TTL)
			}
		}
	})
	// When the client connects again, a server whose limit was lowered grants the same
	// session a shorter time-out.
	t.Run("servers lower their limit", func(t *testing.T) {
		t.Parallel()
		s, conn := storeOn(t, session, []string{server})
		c := exclusive("lowered")
		grant(t, s, c)
		zkstore.SetGranted(conn, short)
		start := time.Now()
		x := s.Extend(t.Context(), []store.Claim{c})[0]
		if took := time.Since(start); x.Valid > short/2+took {
			t.Errorf("got %v after the limit was lowered, want at most %v and the %v of the call", x.Valid, short/2, took)
		}
	})
	// If the session expires between the creation of the node and the read of the
	// queue, nothing is granted.
	t.Run("session expires before the read", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, conn := storeOn(t, short, []string{proxy.Addr})
		outside, _ := storeOn(t, session, []string{server})
		mark := exclusive("between") // so that the store reads the queue
		mark.Weight = 1
		grant(t, outside, mark)
		var cut atomic.Bool
		proxy.OnRequest(func(r testserver.Request) testserver.Action {
			if r.Name == "getChildren" && cut.CompareAndSwap(false, true) {
				return testserver.CloseRequest
			}
			return testserver.Pass
		})
		c := exclusive("between")
		c.Weight = 1
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		g, err := s.Acquire(ctx, c)
		if err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %+v, %v; want an error that leaves the outcome open", g, err)
		}
		if !cut.Load() {
			t.Fatal("test setup: the read of the queue was not lost")
		}
		expire(t, proxy, conn)
		testserver.Eventually(t, patience, "an acquire is sent in the new session", func() bool {
			_, err = s.Acquire(ctx, c)
			return !errors.Is(err, store.ErrUnavailable)
		})
		if err != nil {
			t.Fatalf("in the new session: %v", err)
		}
		if n := len(places(t, admin, "between")); n != 2 {
			t.Errorf("there are %d nodes, want ours and the other reader's", n)
		}
	})
	// A waiter whose session expires continues to wait in the new session.
	t.Run("waiter whose session expires", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, conn := storeOn(t, short, []string{proxy.Addr})
		outside, _ := storeOn(t, session, []string{server})
		holder := exclusive("waits")
		grant(t, outside, holder)
		got := make(chan error, 1)
		l := lockerOn(t, s)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			for {
				lease, err := l.Acquire(ctx, "waits", core.Fair(), core.Wait(2*patience))
				if errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
					continue // while the client was disconnected
				}
				if err == nil {
					err = lease.Release(ctx)
				}
				got <- err
				return
			}
		}()
		eventually(t, "it waits", func() bool { return len(places(t, admin, "waits")) == 2 })
		expire(t, proxy, conn)
		eventually(t, "it waits again", func() bool { return len(places(t, admin, "waits")) == 2 })
		select {
		case err := <-got:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		if err := outside.Release(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("was not granted the key")
		}
		eventually(t, "nothing is left", func() bool { return len(places(t, admin, "waits")) == 0 })
	})
	// A holder whose session expires learns of the loss, and does not get a further
	// hold.
	t.Run("holder whose session expires", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, conn := storeOn(t, short, []string{proxy.Addr})
		outside, _ := storeOn(t, session, []string{server})
		l := lockerOn(t, s)
		outer := acquire(t, l, "held")
		claim := exclusive("held too")
		claim.Key = "held2"
		g := grant(t, s, claim)
		expire(t, proxy, conn)
		lostBy(t, outer)
		if _, err := l.Acquire(outer.Context(), "held"); !errors.Is(err, store.ErrLost) {
			t.Errorf("a nested acquire got %v, want %v", err, store.ErrLost)
		}
		if err := outer.Release(context.Background()); !errors.Is(err, store.ErrLost) {
			t.Errorf("the release got %v, want %v", err, store.ErrLost)
		}
		if x := s.Extend(t.Context(), []store.Claim{claim}); !errors.Is(x[0].Err, store.ErrLost) {
			t.Errorf("the extension got %v, want %v", x[0].Err, store.ErrLost)
		}
		// Another client acquires the key. A claim that joins the lost hold must be
		// refused as busy.
		next := exclusive("held2")
		if n := grant(t, outside, next); n.Token <= g.Token {
			t.Errorf("got token %d after %d", n.Token, g.Token)
		}
		nested := claim
		nested.Lease, nested.Via = "nested", claim.Owner
		busy(t, s, nested)
	})
}

// TestCutOff disconnects a holder. The holder's trust expires and the holder is
// notified. Another owner is admitted only after the trust has expired. hazard 55
func TestCutOff(t *testing.T) {
	t.Parallel()
	n := tally.Trials(50)
	server := testserver.SharedZooKeeper(t)
	rivals := lockerOn(t, func() store.Store { s, _ := storeOn(t, session, []string{server}); return s }())
	cuts := []struct {
		name string
		cut  func(p *testserver.Proxy)
	}{
		{"silent", (*testserver.Proxy).Partition},
		{"refused", (*testserver.Proxy).Down},
	}
	var bit, overlaps atomic.Int64
	least := new(atomic.Int64)
	least.Store(int64(short))
	t.Run("all trials", func(t *testing.T) {
		for i := range n {
			cut := cuts[i%len(cuts)]
			t.Run(cut.name+" "+strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				proxy := testserver.NewZooKeeperProxy(t, server)
				s, _ := storeOn(t, short, []string{proxy.Addr})
				key := "cut" + strconv.Itoa(i)
				l := lockerOn(t, s)
				lease := reacquire(t, l, key)
				for stop := time.Now().Add(patience); ; lease = reacquire(t, l, key) {
					// The pause ends at varying times between two extensions.
					time.Sleep(time.Duration(i%7) * short / 20)
					if lease.Context().Err() == nil {
						break
					}
					// The machine was stalled for longer than the lease was valid.
					_ = lease.Release(context.Background())
					if time.Now().After(stop) {
						t.Fatal("the lease was lost before the cut")
					}
				}
				type entry struct {
					at      time.Time
					trusted bool // the holder's deadline is after the grant
				}
				granted := make(chan entry, 1)
				go func() {
					rival, err := rivals.Acquire(context.Background(), key, core.Wait(2*patience))
					trusted := lease.Deadline().After(time.Now())
					granted <- entry{time.Now(), trusted}
					if err != nil {
						t.Error(err)
						return
					}
					_ = rival.Release(context.Background())
				}()
				cut.cut(proxy)
				at, deadline := lostBy(t, lease)
				if late := at.Sub(deadline); late > patience/4 {
					t.Errorf("got the loss %v after the deadline", late)
				}
				next := <-granted
				proxy.Up()
				proxy.Heal() // so that the Locker can release the lost lease
				bit.Add(1)
				if margin := next.at.Sub(deadline); margin <= 0 || next.trusted {
					overlaps.Add(1)
					t.Errorf("another owner got in %v after the deadline; the lease was still trusted: %v", margin, next.trusted)
				} else if int64(margin) < least.Load() {
					least.Store(int64(margin))
				}
			})
		}
	})
	if bit.Load() < int64(n) {
		t.Errorf("test setup: got %d of %d trials", bit.Load(), n)
	}
	t.Logf("the latest deadline was %v before another owner got in", time.Duration(least.Load()))
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: n, Faults: map[string]int{"cut": int(bit.Load())},
		Grants: 2 * n, ToOthers: n, Violations: map[string]int{"overlaps": int(overlaps.Load())},
	})
}

// TestFrozenServer pauses the server until a lease is lost. After the server's return
// the key is granted again, with a higher token. hazard 55
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartZooKeeper(t)
	s, _ := storeOn(t, short, []string{server.Addr})
	l := lockerOn(t, s)
	lease := acquire(t, l, "frozen")
	server.Pause()
	inTime(t, lease, time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.TryAcquire(ctx, "frozen"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, store.ErrUnavailable)
	}
	server.Resume()
	again := reacquire(t, l, "frozen")
	if again.Token() <= lease.Token() {
		t.Errorf("got token %d after %d", again.Token(), lease.Token())
	}
	release(t, again)
}
