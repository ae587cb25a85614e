package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// rig is one trial. It has a program that reaches the servers through proxies, a rival
// that is connected directly, and a key that no other trial uses.
type rig struct {
	t       *testing.T
	place   place
	cell    cell
	fault   fault
	trial   int
	key     string
	proxies map[string]*testserver.Proxy
	locker  *core.Locker
	rival   *core.Locker
	asks    redis.UniversalClient
	last    uint64 // the token before the trial
	script  string // the script whose message has the fault
	armed   []*testserver.Fault
	starved bool // the machine was too busy for the expected number of attempts
}

var number atomic.Int64

func newRig(t *testing.T, p place, c cell, f fault, trial int) *rig {
	t.Helper()
	r := &rig{
		t: t, place: p, cell: c, fault: f, trial: trial, key: fmt.Sprint("cell:", number.Add(1)),
		proxies: make(map[string]*testserver.Proxy),
	}
	for _, addr := range p.nodes {
		r.proxies[addr] = testserver.NewRedisProxy(t, addr)
	}
	ours := p.client(t, trial%2 == 0, func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy := r.proxies[addr]; proxy != nil {
			addr = proxy.Addr
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	r.asks = p.client(t, true, nil)
	r.locker, r.rival = p.locker(t, ours), p.locker(t, r.asks)
	for _, c := range []redis.UniversalClient{ours, r.asks} {
		if err := c.Set(t.Context(), r.stored()+":probe", 1, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// If the last token is ahead of the server's clock, the next token is greater by
	// store.TokenStep.
	r.last = uint64(time.Now().Add(time.Hour).UnixMicro())
	name, value := r.stored(), "f\tt "+strconv.FormatUint(r.last, 10)
	if p.redisson { // its counter is at the last token of the last grant
		name, value = r.counter(), strconv.FormatUint(r.last+store.TokenStep-1, 10)
	}
	if err := r.asks.Set(t.Context(), name, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) stored() string {
	if r.place.redisson {
		return r.key
	}
	return "lk2:{" + r.key + "}"
}

// counter returns the key of the tokens of Redisson's keys.
func (r *rig) counter() string { return "redisson_lock_token:{" + r.key + "}" }

// waits returns once a claim waits for the key. With Redisson's keys the server only
// knows that a client listens.
func (r *rig) waits() {
	r.t.Helper()
	channel := "redisson_lock__channel:{" + r.key + "}"
	r.eventually("a claim waits", func() bool {
		if r.place.redisson {
			return r.asks.PubSubNumSub(context.Background(), channel).Val()[channel] > 0
		}
		return r.places() == 1
	})
}

// arm makes the fault hit a call of a script, but not the next skip calls.
func (r *rig) arm(script string, skip int) {
	r.script = script
	for _, p := range r.proxies {
		p.Forget()
		r.armed = append(r.armed, p.Inject(testserver.Match{Script: script, Arg: r.stored(), Skip: skip}, r.fault.of(r.trial)))
	}
}

func (r *rig) fired() {
	r.t.Helper()
	r.eventually("the fault fires", func() bool { return r.times() > 0 })
}

// times returns the number of messages that the fault has hit.
func (r *rig) times() (n int) {
	for _, f := range r.armed {
		select {
		case <-f.Fired():
			n++
		default:
		}
	}
	return n
}

// deliver delivers the late message, and waits until the server has executed it.
func (r *rig) deliver() {
	r.t.Helper()
	for _, f := range r.armed {
		select {
		case <-f.Fired():
			f.Deliver()
			select {
			case <-f.Answered():
			case <-time.After(patience):
				r.t.Fatal("the late message was not answered")
			}
		default:
		}
	}
}

// outlast waits until a lease from the time of the message would have expired.
func (r *rig) outlast() { time.Sleep(ttl + 200*time.Millisecond) }

// sent returns how often the program has called the script whose message has the fault.
func (r *rig) sent() (n int) {
	for _, p := range r.proxies {
		n += p.Count(testserver.Match{Script: r.script, Arg: r.stored()})
	}
	return n
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	testserver.Eventually(r.t, patience, what, ok)
}

func (r *rig) fields() map[string]string {
	r.t.Helper()
	if !r.place.redisson {
		m, err := testclient.Fields(context.Background(), r.asks, r.stored())
		if err != nil {
			r.t.Fatal(err)
		}
		return m
	}
	holds, err := r.asks.HGetAll(context.Background(), r.stored()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	m := map[string]string{"t": r.asks.Get(context.Background(), r.counter()).Val()}
	for lease, value := range holds {
		m["h:"+lease] = value
	}
	return m
}

func (r *rig) with(prefix string) (n int) {
	r.t.Helper()
	for f := range r.fields() {
		if strings.HasPrefix(f, prefix) {
			n++
		}
	}
	return n
}

func (r *rig) wantHolds(n int) {
	r.t.Helper()
	if got := r.with("h:"); got != n {
		r.t.Errorf("the key has %d holds, want %d: %v", got, n, r.fields())
	}
}

// same returns the part of the key that a late message of another claim must not change:
// holds, token and record. It omits the first number of each hold, which changes with
// extensions, and the tombstones.
func (r *rig) same() map[string]string {
	r.t.Helper()
	m := r.fields()
	maps.DeleteFunc(m, func(f, _ string) bool { return strings.HasPrefix(f, "d:") })
	for f, v := range m {
		if strings.HasPrefix(f, "h:") {
			_, m[f], _ = strings.Cut(v, " ")
		}
	}
	return m
}

// unmoved delivers the late message, and fails the test if the message changes the part
// of the key that same returns.
func (r *rig) unmoved() {
	r.t.Helper()
	before := r.same()
	r.deliver()
	if after := r.same(); !maps.Equal(before, after) {
		r.t.Errorf("the late message made %v of %v", after, before)
	}
}

// end returns the first number of the only hold, or 0 if there is no hold. The number
// grows with each extension. With the usual keys it is the time of the last grant or
// extension in µs, and with Redisson's keys the deadline in ms.
func (r *rig) end() int64 {
	r.t.Helper()
	for f, v := range r.fields() {
		if strings.HasPrefix(f, "h:") {
			deadline, _, _ := strings.Cut(v, " ")
			n, _ := strconv.ParseInt(deadline, 10, 64)
			return n
		}
	}
	return 0
}

func (r *rig) acquire(ctx context.Context, l *core.Locker) *core.Lease {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	r.t.Cleanup(cancel)
	lease, err := l.Acquire(ctx, r.key, core.TTL(ttl))
	for errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
		lease, err = l.Acquire(ctx, r.key, core.TTL(ttl)) // busy machine
	}
	if err != nil {
		r.t.Fatalf("acquire: %v", err)
	}
	return lease
}

// release releases a lease, which must still be held.
func (r *rig) release(lease *core.Lease) {
	r.t.Helper()
	before := r.with("h:")
	leave(r.t, lease)
	if r.with("h:") == before { // a waiter may have acquired the key
		r.eventually("the hold is gone", func() bool { return r.with("h:") < before || r.places() == 0 })
	}
}

func (r *rig) wantBusy() {
	r.t.Helper()
	lease, err := r.rival.TryAcquire(context.Background(), r.key)
	if err == nil {
		r.t.Error("a rival gets the key")
		_ = lease.Release(context.Background())
	} else if !errors.Is(err, core.ErrBusy) {
		r.t.Errorf("a rival gets %v, want busy", err)
	}
}

// wantToken fails the test unless the lease has the token of the trial's n-th grant.
func (r *rig) wantToken(lease *core.Lease, n uint64) {
	r.t.Helper()
	if got := lease.Token(); got != r.last+n*store.TokenStep {
		r.t.Errorf("the token is %d after %d, want %d grants more", got, r.last, n)
	}
}

// finish checks the key at the end of the trial. If next is true, the rival first
// acquires the key once more.
func (r *rig) finish(next bool) {
	r.t.Helper()
	if next {
		lease, err := r.rival.TryAcquire(context.Background(), r.key)
		if err != nil {
			r.t.Fatalf("the key is not free: %v, %v", err, r.fields())
		}
		r.wantToken(lease, r.cell.tokens)
		r.release(lease)
	}
	for f := range r.fields() {
		if f != "t" && f != "r" && f != "v" && !strings.HasPrefix(f, "d:") {
			r.t.Errorf("%s is left", f)
		}
	}
	if left := r.asks.PTTL(context.Background(), r.stored()).Val(); left <= 0 && (!r.place.redisson || left != -2) {
		r.t.Errorf("the key has %v to live", left)
	}
	if n := r.times(); n != 1 {
		r.t.Errorf("test setup: the fault has hit %d messages, want one", n)
	}
	for _, p := range r.proxies {
		for _, f := range r.armed {
			if n := p.Times(f); n > 1 {
				r.t.Errorf("test setup: the fault has hit %d messages at a server, want one", n)
			}
		}
	}
	if n := r.sent(); n < r.cell.sent && !r.starved {
		r.t.Errorf("the message was sent %d times, want %d at least", n, r.cell.sent)
	}
}
