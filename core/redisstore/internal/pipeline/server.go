package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// server sends to one server, has its state, and has another way to it. A pool of
// go-redis that could not connect a number of times fails for up to a second more
// without trying. For that time there is a client of the Pipeline's own.
type server struct {
	sender *sender
	gate   outage.Gate
	client *redis.Client // nil if it cannot be probed, or is closed
	named  bool          // its address may lead to another server later; in a Cluster the client looks for that

	mu        sync.Mutex
	spare     *sender   // on the connections of the probe that ended an outage; usually nil
	refreshed time.Time // when the last refresh began
	dropped   time.Time // when idle connections were closed last
	dropping  bool      // they are about to be closed
}

// newServer returns the server of client. It is not probed if the Pipeline is closed.
func newServer(client redis.UniversalClient, closed bool) *server {
	v := &server{sender: newSender(client)}
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
	return got, v.judge(ctx, begun, err)
}

// doAll sends calls together, once.
func (v *server) doAll(ctx context.Context, calls []*Call) []Result {
	begun := v.gate.Begin()
	results := v.sender.doAll(ctx, calls)
	err := results[0].Err // the others have the same, unless something was answered
	for _, r := range results {
		if answers(r.Err) {
			if err = r.Err; ClassOf(err).displaced {
				break
			}
		}
	}
	if judged := v.judge(ctx, begun, err); judged != err {
		for i, r := range results {
			results[i].Err = fmt.Errorf("%w: %v", r.Err, v.gate.Why())
		}
	}
	return results
}

// judge records the outcome of a call, and returns its error. It adds the error of the
// connection if the client's has none: the client dials for longer than some calls last.
func (v *server) judge(ctx context.Context, begun outage.Mark, err error) error {
	switch {
	case answers(err):
		v.gate.Answered()
		if ClassOf(err).displaced {
			v.drop()
		}
	case dialed(err) != nil && !dialed(err).Timeout(): // it fails however much time there is
		v.gate.Failed(begun, err)
	default:
		if why := v.gate.Doubt(ctx, begun); why != nil {
			return fmt.Errorf("%w: %v", err, why)
		}
		if late(ctx, err) {
			v.refresh()
		}
	}
	return err
}

// probe sends a PING, on a connection of its own.
func (v *server) probe(ctx context.Context) error {
	o := *v.client.Options()
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns = max(o.PoolSize, 2), 0, 1 // a pool of 1 dials on by itself
	o.DialerRetries, o.MaxRetries, o.ContextTimeoutEnabled = 1, -1, true
	// The client writes to its own configuration while it connects, and closing a client
	// waits for that. A new client would look up the server's name to learn its kind of
	// endpoint, for up to two seconds.
	o.MaintNotificationsConfig = &maintnotifications.Config{
		Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone,
	}
	o.PushNotificationProcessor = nil
	client := redis.NewClient(&o)
	client.AddHook(greeting{})
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

// greeting is a hook that ends a connection to a server that has too many clients, with
// the server's error. go-redis takes that for an old server that does not know HELLO,
// and goes on with a connection that the server has closed.
type greeting struct{}

func (greeting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hello" && replied(err, "max number of clients") {
			return errors.New(err.Error())
		}
		return err
	}
}

func (greeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lend lets calls that find no other connection go by spare for a time.
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
		time.AfterFunc(forgetAfter, func() { _ = spare.client.Close() }) // calls have returned by then
	})
}

// other returns the sender on the Pipeline's own connections for a call that was not
// sent because no connection could be made, or nil.
func (v *server) other(err error) *sender {
	if dialed(err) == nil || Sent(err) {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.spare
}

// close ends idle workers, the probe in flight, and the Pipeline's own connections.
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

// isReply reports whether err is a server's reply. Most replies are not wrapped, and
// errors.As would allocate.
func isReply(err error) bool {
	if _, is := err.(redis.Error); is {
		return true
	}
	return err != nil && errors.As(err, new(redis.Error))
}

// dialed returns the error of a connection that could not be made, or nil for another
// error.
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
