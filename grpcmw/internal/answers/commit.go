package answers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/storetest/saving"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Commit tests replies that handlers commit together with their effect.
func Commit(t *testing.T, serve Serve) {
	in := saving.New()
	s := NewShop(t, serve)
	s.Store = nil
	s.LockIn(in)
	var end func(x *saving.Tx) error
	runs := 0
	s.OnPay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
		runs++
		x, r := in.Begin(), &orders.Receipt{Text: "receipt of " + o.GetId()}
		if err := grpcmw.Commit(ctx, x, r); err != nil {
			return nil, err
		}
		err := end(x)
		r.Text = "another text than was committed"
		return r, err
	}
	s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
	own := status.Error(codes.DataLoss, "no reply to the commit")
	committed := (*saving.Tx).Commit
	for _, c := range []struct {
		name, id string
		end      func(x *saving.Tx) error
		code     codes.Code
		runs     int
	}{
		{"committed", "1", committed, codes.OK, 1},
		{"again", "1", committed, codes.OK, 0},
		{"committed without a reply", "2", func(x *saving.Tx) error {
			if err := x.Commit(); err != nil {
				return err
			}
			return own
		}, codes.OK, 1},
		{"again without a reply", "2", committed, codes.OK, 0},
		{"rolled back", "3", func(*saving.Tx) error { return own }, codes.DataLoss, 1},
		{"rolled back unseen", "3", func(*saving.Tx) error { return nil }, codes.Unavailable, 1},
		{"at last", "3", committed, codes.OK, 1},
		{"once more", "3", committed, codes.OK, 0},
	} {
		runs, end = 0, c.end
		r := s.Call(c.id, IdempotencyKey, "key-"+c.id)
		if status.Code(r.Err) != c.code || runs != c.runs || r.Replayed() != (c.code == codes.OK && c.runs == 0) {
			t.Errorf("%s: got %v after %d runs, replayed %v, want %v after %d", c.name, r.Err, runs, r.Replayed(), c.code, c.runs)
		}
		if c.code == codes.OK {
			r.Is(t, "receipt of "+c.id)
		}
	}
}

// CommitInsideAnother tests an inner reply that is not committed. The outer run was not
// withdrawn, so the next run is attempt 2.
func CommitInsideAnother(t *testing.T, serve Serve) {
	in := saving.New()
	s := NewShop(t, serve)
	s.Store = nil
	s.LockIn(in)
	runs := 0
	s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
		x, r := in.Begin(), &orders.Receipt{Text: "receipt"}
		if err := grpcmw.Commit(ctx, x, r); err != nil {
			return nil, err
		}
		if runs++; runs == 1 {
			return r, nil // the transaction is rolled back
		}
		return r, x.Commit()
	}
	attempt := 0
	inner := func(ctx context.Context, _ string, _ any) (string, error) {
		if runs == 1 {
			attempt, _ = once.AttemptFromContext(ctx)
		}
		return "inner", nil
	}
	s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller()), grpcmw.Idempotent(s.Runs(), inner)))
	if r := s.Call("5", IdempotencyKey, "k"); status.Code(r.Err) != codes.Unavailable {
		t.Errorf("got %v, want %v", r.Err, codes.Unavailable)
	}
	s.Call("5", IdempotencyKey, "k").Is(t, "receipt")
	if attempt != 2 || runs != 2 {
		t.Errorf("got attempt %d after %d runs, want attempt 2 after 2 runs", attempt, runs)
	}
}

// CommitRefused tests replies that cannot be committed.
func CommitRefused(t *testing.T, serve Serve) {
	in := saving.New()
	s := NewShop(t, serve)
	s.Store = nil
	s.LockIn(in)
	for name, c := range map[string]struct {
		want  error
		reply proto.Message
		opts  []grpcmw.Option
		tx    once.Saver
	}{
		"too large":     {core.ErrInvalid, &orders.Receipt{Text: "longer than that"}, []grpcmw.Option{grpcmw.AnswerLimit(10)}, in.Begin()},
		"not kept":      {core.ErrInvalid, &orders.Receipt{}, []grpcmw.Option{grpcmw.KeepIf(func(grpcmw.Kept) bool { return false })}, in.Begin()},
		"no reply":      {core.ErrInvalid, nil, nil, in.Begin()},
		"nil":           {core.ErrInvalid, &orders.Receipt{}, nil, nil},
		"another store": {core.ErrUnsupported, &orders.Receipt{}, nil, saving.New().Begin()},
	} {
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			err := grpcmw.Commit(ctx, c.tx, c.reply)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
			return nil, status.Error(codes.Aborted, "rolled back")
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), c.opts...)))
		if r := s.Call("5", IdempotencyKey, strings.ReplaceAll(name, " ", "-")); status.Code(r.Err) != codes.Aborted {
			t.Errorf("%s: got %v, want the handler's status", name, r.Err)
		}
	}
	if err := grpcmw.Commit(t.Context(), in.Begin(), &orders.Receipt{}); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("outside: got %v, want %v", err, core.ErrInvalid)
	}
}
