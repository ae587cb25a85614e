package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// server sends calls to one server and tracks the server's state. It also has a second
// client for outages. After some failed dials, a pool of go-redis fails for up to a
// second more without dialing. During that time calls use the second client.
type server struct {
	sender *sender
	gate   outage.Gate
	client *redis.Client // nil if it cannot be probed, or after close
	named  bool          // the address can lead to another server later; false in a Cluster
	used   atomic.Int64  // in a Cluster, the last use in nanoseconds of Unix time
	dials  Dials         // of second clients
	outage outage.Mark   // of the last probe; changes with each answer
	detour time.Time     // the time of the next PINGs through client; zero before the first probe
	asking atomic.Bool   // PINGs through client have not returned

	mu        sync.Mutex
	spare     *sender   // on the connections of the probe that ended an outage; usually nil
	refreshed time.Time // the start of the last refresh
	dropped   time.Time // the last time at which idle connections were closed
	dropping  bool      // idle connections are about to be closed
}

// newServer returns the server of client. If the Pipeline is closed, the server is not
// probed.
func newServer(client redis.UniversalClient, closed bool) *server {
	v := &server{sender: newSender(client)}
	v.used.Store(time.Now().UnixNano())
	v.sender.closed = closed
	if own, ok := client.(*redis.Client); ok && !closed {
		v.client = own
		v.gate.Watch(Limit, v.probe)
	}
	return v
}

// do sends c once and returns its outcome. It refuses c if c is optional and the server
// is known to be down.
func (v *server) do(ctx context.Context, c *Call) (Replicated, error) {
	if c.optional {
		if err := v.gate.Enter(ctx); err != nil {
			return Replicated{}, &unsentError{err}
		}
	}
	begun := v.gate.Begin()
	got, err := v.sender.do(ctx, c)
	if spare := v.other(err); spare != nil {
		got, err = spare.do(ctx, c.again())
	}
	if why := v.judge(ctx, begun, err); why != nil {
		err = fmt.Errorf("%w: %v", err, why)
	}
	return got, err
}

func (v *server) doAll(ctx context.Context, calls []*Call) []Result {
	begun := v.gate.Begin()
	results := v.sender.doAll(ctx, calls)
	err := results[0].Err // if no call was answered, all have the same error
	for _, r := range results {
		if answers(r.Err) {
			if err = r.Err; ClassOf(err).displaced {
				break
			}
		}
	}
	if why := v.judge(ctx, begun, err); why != nil {
		for i, r := range results {
			results[i].Err = fmt.Errorf("%w: %v", r.Err, why)
		}
	}
	return results
}

// judge records the outcome of a call. A call can end while the client is still dialing.
// Its error then lacks the error of the connection, which judge returns.
func (v *server) judge(ctx context.Context, begun outage.Mark, err error) error {
	switch {
	case answers(err):
		v.gate.Answered()
		if ClassOf(err).displaced {
			v.drop()
		}
	case dialed(err) != nil && !dialed(err).Timeout(): // fails however much time it has
		v.gate.Failed(begun, err)
	default:
		if why := v.gate.Doubt(ctx, begun); why != nil {
			return why
		}
		if late(ctx, err) {
			v.refresh()
		}
	}
	return nil
}

// detourAfter is the time of an outage in which no PING uses the user's client, and the
// time between two such PINGs. Each failed dial of that client can delay the user's own
// calls after the outage.
const detourAfter = 2 * Limit

// probe sends a PING on a separate connection. In a long outage, it sometimes also
// starts PINGs through the user's client.
func (v *server) probe(ctx context.Context) error {
	v.tryClient()
	o := SecondOptions(v.client)
	// A pool of 1 continues to dial.
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns = max(o.PoolSize, 2), 0, 1
	o.DialerRetries, o.MaxRetries, o.ContextTimeoutEnabled = 1, -1, true
	client := redis.NewClient(o)
	client.AddHook(greeting{&v.dials})
	_, err := Detached(ctx, func() (struct{}, error) {
		return struct{}{}, client.Process(ctx, single{redis.NewCmd(ctx, "ping")})
	})
	if answers(err) && v.gate.Why() != nil {
		v.lend(newSender(client), o.DialTimeout+Limit)
		return nil
	}
	_ = client.Close()
	if answers(err) {
		return nil
	}
	return err
}

// SecondOptions returns the options for a second client of the server of client. They
// have a configuration of notifications of their own, because a client writes to its
// configuration while it connects. Notifications are off, because Close would wait for
// their handshake. With them, a new client would also resolve the server's name to
// determine the kind of its endpoint, for up to two seconds.
func SecondOptions(client *redis.Client) *redis.Options {
	o := *client.Options()
	o.MaintNotificationsConfig = &maintnotifications.Config{
		Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone,
	}
	o.PushNotificationProcessor = nil
	return &o
}

// tryClient starts PINGs over both pools of the user's client if they are due. Only that
// client has the user's dial hooks, which can lead to another address. If the server
// answers the PINGs, the outage is over.
func (v *server) tryClient() {
	now, mark := time.Now(), v.gate.Begin()
	if v.detour.IsZero() || v.outage != mark {
		v.outage, v.detour = mark, now.Add(detourAfter)
	}
	if now.Before(v.detour) || !v.asking.CompareAndSwap(false, true) {
		return
	}
	v.detour = now.Add(detourAfter)
	client := v.client
	inBackground(1, func(ctx context.Context) {
		defer v.asking.Store(false)
		err := ask(ctx, client, false, "ping")
		if answers(err) {
			err = ask(ctx, client, true, "ping")
		}
		if answers(err) {
			v.gate.Answered()
		}
	})
}

// greeting is a hook that closes a connection if the server has too many clients, with
// the server's error. Otherwise go-redis would take the error for the error of an old
// server without HELLO, and continue with a connection that the server has closed.
type greeting struct{ *Dials }

func (greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hello" && replied(err, "max number of clients") {
			return errors.New(err.Error())
		}
		return err
	}
}

// lend lets calls that get no other connection use spare, for the given time.
func (v *server) lend(spare *sender, most time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spare = spare
	time.AfterFunc(most, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.spare == spare {
			v.spare = nil
		}
		spare.close()
		// The calls have returned by then.
		time.AfterFunc(forgetAfter, func() { _ = spare.client.Close() })
	})
}

// other returns the sender on the Pipeline's own connections if a call failed unsent
// for lack of a connection. Otherwise, or if there is no such sender, it returns nil.
func (v *server) other(err error) *sender {
	if dialed(err) == nil || Sent(err) {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.spare
}

func (v *server) close() {
	v.sender.close()
	v.gate.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.client = nil // no probe is in flight any more
	if v.spare != nil {
		v.spare.close()
		_ = v.spare.client.Close()
		v.spare = nil
	}
}

// answers reports whether a server has answered, with any reply.
func answers(err error) bool {
	if err == nil || isReply(err) {
		return true
	}
	var noTime *NoTimeError
	return errors.As(err, &noTime) && noTime.Refused()
}

// isReply reports whether err is a server's reply. It checks for an unwrapped reply
// first, because errors.As would allocate.
func isReply(err error) bool {
	if _, is := err.(redis.Error); is {
		return true
	}
	return err != nil && errors.As(err, new(redis.Error))
}

// dialed returns the error of a failed dial, or nil for any other error.
func dialed(err error) *net.OpError {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return nil
	}
	return op
}
