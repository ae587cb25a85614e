package pipeline_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
)

// reply is an error reply of a server.
type reply string

func (r reply) Error() string { return string(r) }

func (reply) RedisError() {}

// several is an error that cannot be compared.
type several []error

func (several) Error() string { return "several errors" }

// TestCause_IsNoOutcome makes callers leave with errors of other requests as the causes
// of their contexts. A cause must not count as the outcome of the call (hazard 17).
func TestCause_IsNoOutcome(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	mustTake(t, newPatient(t, server.Addr), newKey())
	for name, cause := range map[string]error{
		"refusal of another server": reply("READONLY You can't write against a read only replica."),
		"script unknown elsewhere":  reply("NOSCRIPT No matching script."),
		"refused dial":              &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")},
		"error without comparison":  several{errors.New("the sibling failed")},
	} {
		for way, call := range map[string]func(ctx context.Context, p *pipeline.Pipeline) error{
			"by Do":    func(ctx context.Context, p *pipeline.Pipeline) error { _, err := take(ctx, p, newKey()); return err },
			"by DoAll": func(ctx context.Context, p *pipeline.Pipeline) error { return takeAll(ctx, p, newKeys(2))[1].Err },
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				proxy := testserver.NewRedisProxy(t, server.Addr)
				p := newPatient(t, proxy.Addr)
				held := proxy.Inject(testserver.Match{Command: "evalsha"}, testserver.HoldReply)
				defer held.Deliver()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				go func() {
					select {
					case <-held.Fired():
						cancel(cause)
					case <-ctx.Done():
					}
				}()
				err := call(ctx, p)
				unknown(t, "written call", err)
				if pipeline.ClassOf(err) != (pipeline.Class{}) {
					t.Errorf("got the class of a reply for %v, want none", err)
				}
				if !errors.As(cause, new(several)) && !errors.Is(err, cause) {
					t.Errorf("got %v, want an error that matches the cause", err)
				}
				if why := p.Down(); why != nil {
					t.Errorf("got a server that is down: %v, want one that is up", why)
				}
				if err := call(ctx, p); err == nil || pipeline.Sent(err) || pipeline.ClassOf(err) != (pipeline.Class{}) {
					t.Errorf("under the done context: got %v, want an error of what was not sent", err)
				}
				if why := p.Down(); why != nil {
					t.Errorf("after the unsent call: got a server that is down: %v, want one that is up", why)
				}
			})
		}
	}
}
