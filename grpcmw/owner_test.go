package grpcmw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/retry"
)

// pair has two services over TCP, each with a separate Locker. The first service pays
// under a lock of the order, and meanwhile calls the refund of the second service.
type pair struct {
	t              *testing.T
	caller, called *shop
	log            logged
	mu             sync.Mutex
	owners         []string // texts that must not appear anywhere
}

type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// newPair returns a pair of shops that the function store makes. The shops must share
// one store of locks.
func newPair(t *testing.T, store func(opts ...core.Option) *shop, send []grpcmw.ClientOption, take ...grpcmw.Option) *pair {
	t.Helper()
	p := &pair{t: t}
	observer := core.WithObserver(core.SlogObserver(slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	p.caller, p.called = store(observer), store(observer)
	p.called.open(grpcmw.Rules{
		Orders_Refund_FullMethodName: {p.called.Lock(take...)}, Orders_Watch_FullMethodName: {p.called.Lock(take...)},
	})
	client := p.called.dial(grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor(append(send, grpcmw.Retry(retry.None))...)))
	p.caller.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
		lease, _ := core.LeaseFromContext(ctx)
		p.secret(lease.Owner())
		r := ask(ctx, client.Refund, o)
		p.clean(fmt.Sprint(r.Err, status.Convert(r.Err).Proto(), r.Header, r.Trailer))
		return r.Receipt, r.Err
	}
	p.caller.open(on(Orders_Pay_FullMethodName, p.caller.Lock()))
	return p
}

// secret adds an owner, without its token, to the texts that must not appear anywhere.
func (p *pair) secret(owner string) {
	id, _, _ := strings.Cut(owner, ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owners = append(p.owners, id)
}

// clean checks that the text contains no owner.
func (p *pair) clean(text string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, owner := range p.owners {
		if len(owner) < 20 || strings.Contains(text, owner) {
			p.t.Errorf("the owner %q is in %s", owner, text)
		}
	}
}

// replay calls the called service as a stranger who has a copy of an owner.
func (p *pair) replay(id string, owners ...string) reply {
	p.t.Helper()
	var md []string
	for _, owner := range owners {
		md = append(md, "lockkit-owner", owner)
	}
	r := ask(p.t.Context(), p.called.Client.Refund, &Order{Id: id}, md...)
	p.clean(fmt.Sprint(r.Err, status.Convert(r.Err).Proto(), r.Header, r.Trailer))
	return r
}

var send = []grpcmw.ClientOption{grpcmw.SendOwner()}

func inMemory(t *testing.T) func(opts ...core.Option) *shop {
	first := newShop(t)
	return func(opts ...core.Option) *shop {
		return newShopOn(t, first.Store, opts...)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	ownersTravel(t, inMemory(t))
}

// ownersTravel tests services whose locks are in one store.
func ownersTravel(t *testing.T, store func(opts ...core.Option) *shop) {
	t.Run("called service joins", func(t *testing.T) {
		p := newPair(t, store, send, grpcmw.TakeOwner())
		tokens, inside := make(chan uint64, 2), p.caller.OnPay
		p.caller.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			lease, _ := core.LeaseFromContext(ctx)
			tokens <- lease.Token()
			return inside(ctx, o)
		}
		p.called.OnRefund = func(ctx context.Context, o *Order) (*Receipt, error) {
			lease, _ := core.LeaseFromContext(ctx)
			tokens <- lease.Token()
			if sent := metadata.ValueFromIncomingContext(ctx, "lockkit-owner"); sent != nil {
				t.Error("the handler finds the owner in the metadata")
			}
			if p.called.isFree("order:j") || p.caller.isFree("order:j") {
				t.Error("the key is free for others while both are inside")
			}
			if r := p.replay("j"); status.Code(r.Err) != codes.Aborted {
				t.Errorf("a call without the owner got %v", r.Err)
			}
			return ok(ctx, o)
		}
		p.caller.Call("j").Is(t, "order:j")
		if a, b := <-tokens, <-tokens; a != b || a == 0 {
			t.Errorf("the tokens are %d and %d", a, b)
		}
		eventually(t, "the key is free", func() bool { return p.caller.isFree("order:j") && p.called.isFree("order:j") })
		p.clean(p.log.text())
		if !strings.Contains(p.log.text(), "order") {
			t.Error("the observers have written nothing")
		}
	})
	t.Run("only one side has the option", func(t *testing.T) {
		for _, p := range []*pair{newPair(t, store, nil, grpcmw.TakeOwner()), newPair(t, store, send)} {
			p.called.OnRefund = mustNotRun(t)
			p.caller.Call("o").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			p.clean(p.log.text())
		}
	})
	t.Run("stranger replays an owner", func(t *testing.T) {
		p := newPair(t, store, send, grpcmw.TakeOwner())
		p.caller.Call("s").Is(t, "order:s")
		lease, err := p.caller.Locker.Acquire(t.Context(), "order:s")
		if err != nil {
			t.Fatal(err)
		}
		owner := lease.Owner()
		p.secret(owner)
		p.replay("s", owner).Is(t, "order:s") // not released yet: the owner is enough to join
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		release := p.caller.Hold("order:s") // another holder
		p.replay("s", owner).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		release()
		// The key is free, so the stranger gets the key like any caller, and not under
		// that owner.
		p.called.OnRefund = func(ctx context.Context, o *Order) (*Receipt, error) {
			got, _ := core.LeaseFromContext(ctx)
			if got.Owner() == owner || got.Token() <= lease.Token() {
				t.Error("the released owner is one again")
			}
			if r := p.replay("s", owner); status.Code(r.Err) != codes.Aborted {
				t.Errorf("beside the stranger the same owner got %v", r.Err)
			}
			return ok(ctx, o)
		}
		p.replay("s", owner).Is(t, "order:s")
		p.clean(p.log.text())
	})
	t.Run("owner of another key", func(t *testing.T) {
		p := newPair(t, store, send, grpcmw.TakeOwner())
		lease, err := p.caller.Locker.Acquire(t.Context(), "order:k")
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		owner := lease.Owner()
		p.secret(owner)
		for _, bad := range [][]string{{""}, {owner, owner}, {strings.Repeat("x", 200)}, {"a b"}, {".7"}, {"nobody.7"}} {
			p.replay("k", bad...).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			p.replay("l", bad...).Is(t, "order:l")
		}
		p.replay("l", owner).Is(t, "order:l")
		p.clean(p.log.text())
	})
	t.Run("changed owner", func(t *testing.T) {
		p := newPair(t, store, send, grpcmw.TakeOwner())
		lease, err := p.caller.Locker.Acquire(t.Context(), "order:c")
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		owner := lease.Owner()
		p.secret(owner)
		secret, _, _ := strings.Cut(owner, ".")
		for _, changed := range []string{
			secret, secret[1:], secret + ".", owner[1:], owner[:len(owner)-1], owner + "0", owner + "." + owner, owner + " " + owner,
			strings.ToLower(owner), "-" + owner[1:], owner[:9] + " " + owner[9:], owner[:9] + " " + owner[10:],
		} {
			p.replay("c", changed).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		}
		p.replay("c", owner).Is(t, "order:c")
		p.clean(p.log.text())
	})
	t.Run("stream joins", func(t *testing.T) {
		p := newPair(t, store, send, grpcmw.TakeOwner())
		finish := make(chan struct{})
		p.called.OnWatch = func(o *Order, out grpc.ServerStreamingServer[Receipt]) error {
			r, err := ok(out.Context(), o)
			err = errors.Join(err, out.Send(r))
			within(t, "the stream may end", finish)
			return err
		}
		lease, err := p.caller.Locker.Acquire(t.Context(), "order:w")
		if err != nil {
			t.Fatal(err)
		}
		p.secret(lease.Owner())
		for name, ctx := range map[string]context.Context{
			"a stranger":                  metadata.AppendToOutgoingContext(t.Context(), "lockkit-owner", "nobody"),
			"a caller that does not send": lease.Context(),
		} {
			in, err := p.called.Client.Watch(ctx, &Order{Id: "w"})
			if err == nil {
				_, err = in.Recv()
			}
			t.Log(name)
			refusal(t, err, codes.Aborted, grpcmw.ReasonBusy)
			p.clean(fmt.Sprint(err))
		}
		sends := p.called.dial(grpc.WithStreamInterceptor(grpcmw.StreamClientInterceptor(grpcmw.SendOwner())))
		// The stream ends with the test, and not with the lease.
		in, err := sends.Watch(context.WithoutCancel(lease.Context()), &Order{Id: "w"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Recv(); err != nil || r.GetText() != "order:w" {
			t.Errorf("got %v, %v", r, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if p.caller.isFree("order:w") || p.called.isFree("order:w") {
			t.Error("the key is free while the stream goes on")
		}
		close(finish)
		if _, err := in.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
		eventually(t, "the key is free", func() bool { return p.caller.isFree("order:w") && p.called.isFree("order:w") })
		p.clean(p.log.text())
	})
	t.Run("owners that are sent", func(t *testing.T) {
		s := store()
		var sent [][]string
		call := func(ctx context.Context, opts ...grpcmw.ClientOption) {
			i := grpcmw.UnaryClientInterceptor(append(opts, grpcmw.SendOwner())...)
			err := i(ctx, Orders_Pay_FullMethodName, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ := metadata.FromOutgoingContext(ctx)
				sent = append(sent, md.Get("lockkit-owner"))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		call(t.Context())
		lease, err := s.Locker.Acquire(t.Context(), "order:m")
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		call(lease.Context())
		call(metadata.AppendToOutgoingContext(lease.Context(), "lockkit-owner", "of another call"))
		call(lease.Context(), grpcmw.Methods(Orders_Refund_FullMethodName))
		stream := func(opts ...grpcmw.ClientOption) {
			i := grpcmw.StreamClientInterceptor(opts...)
			_, err := i(lease.Context(), nil, nil, Orders_Watch_FullMethodName, func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				md, _ := metadata.FromOutgoingContext(ctx)
				sent = append(sent, md.Get("lockkit-owner"))
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		stream()
		stream(grpcmw.SendOwner(), grpcmw.Methods(Orders_Refund_FullMethodName))
		for _, owners := range sent[3:] {
			if len(owners) != 0 {
				t.Error("an owner was sent to a method that is not named, or without SendOwner")
			}
		}
		if len(sent[0]) != 0 || len(sent[1]) != 1 || sent[1][0] != lease.Owner() || len(sent[2]) != 1 || sent[2][0] != lease.Owner() {
			t.Error("the owners that were sent are not those of the leases")
		}
	})
}
