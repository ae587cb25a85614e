package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/grpcmw"
)

// allocated returns the number of bytes that f allocates. No other test must run at the
// same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCall_Cost limits the memory for reading a key of a large request to 4 MiB. It
// also limits the memory for the fingerprints of large requests.
func TestCall_Cost(t *testing.T) {
	const length = 4 << 20 // grpc-go's default limit for a message that it receives
	long := strings.Repeat("x", length)
	many := metadata.MD{}
	for range 100_000 {
		many.Append("k", "v")
	}
	for name, c := range map[string]struct {
		key grpcmw.KeyFunc
		md  metadata.MD
		req *Order
	}{
		"metadata that is long":               {grpcmw.Metadata("k"), metadata.Pairs("k", long), nil},
		"metadata of bytes that is long":      {grpcmw.Metadata("k-bin"), metadata.Pairs("k-bin", long), nil},
		"a string that is long":               {grpcmw.Field("id"), nil, &Order{Id: long}},
		"bytes that are long":                 {grpcmw.Field("raw"), nil, &Order{Raw: []byte(long)}},
		"metadata that is there very often":   {grpcmw.Metadata("k"), many, nil},
		"metadata that is long, among others": {grpcmw.Join(grpcmw.Metadata("a"), grpcmw.Metadata("k")), metadata.Pairs("a", "1", "k", long), nil},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), c.md)
		var err error
		n := allocated(func() { _, err = c.key(ctx, Orders_Pay_FullMethodName, c.req) })
		if !errors.Is(err, core.ErrInvalid) || len(fmt.Sprint(err)) > 200 {
			t.Errorf("%s: got %.500v", name, err)
		}
		if n > length { // the values of a name are copied, as a slice
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}

	entries := tally.AllTrials(100_000)
	wide := &Order{Amounts: map[string]int64{}, Tags: make([]string, entries)}
	for i := range entries {
		wide.Amounts[fmt.Sprint(i)] = int64(i)
	}
	deep := &Order{Raw: make([]byte, 1<<20)}
	for range 60 {
		packed, err := anypb.New(deep)
		if err != nil {
			t.Fatal(err)
		}
		deep = &Order{Extra: packed}
	}
	nested := &Item{}
	for range 9000 { // the decoder refuses more than 10,000 levels
		nested = &Item{Part: nested}
	}
	for name, c := range map[string]struct {
		req  *Order
		most uint64
	}{
		"a large map and list":            {wide, uint64(entries) * 200},
		"messages packed into each other": {deep, 30 << 20},
		"messages inside of each other":   {&Order{Item: nested}, 9000 * 1000},
	} {
		if n := allocated(func() { grpcmw.FingerprintOf(Orders_Pay_FullMethodName, c.req) }); n > c.most {
			t.Errorf("%s: %d bytes were allocated for a fingerprint, want %d at most", name, n, c.most)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	t.Run("full queue is busy at once", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, core.WithMaxWaiting(1, 0))
		s.OnPay = ok
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.Wait(2*soon)))))
		release := s.Hold("order:5")
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		answers := make(chan codes.Code, 10)
		for range cap(answers) {
			go func() { answers <- status.Code(ask(ctx, s.Client.Pay, &Order{Id: "5"}).Err) }()
		}
		// The other two callers wait: the first polls the store, and the second is
		// queued.
		for range cap(answers) - 2 {
			if code := within(t, "the others are refused", answers); code != codes.Aborted {
				t.Errorf("got %v", code)
			}
		}
		release()
		for range 2 {
			if code := within(t, "a waiter is served", answers); code != codes.OK {
				t.Errorf("got %v", code)
			}
		}
	})
}
