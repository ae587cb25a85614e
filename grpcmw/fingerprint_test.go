package grpcmw_test

import (
	"context"
	"crypto/rand"
	"math"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lockkit/lockkit/grpcmw"
)

// TestFingerprint checks which pairs of requests count as the same request.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	s, runs := newShop(t), atomic.Int64{}
	s.OnPay = counting(&runs)
	s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
	same := func(t *testing.T, a, b *Order) bool {
		t.Helper()
		name := rand.Text()
		first := ask(t.Context(), s.Client.Pay, a, key, name)
		if first.Err != nil {
			t.Fatal(first.Err)
		}
		second := ask(t.Context(), s.Client.Pay, b, key, name)
		if second.Err == nil {
			second.Is(t, first.GetText())
			return true
		}
		second.Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
		return false
	}
	packed := func(m proto.Message) *anypb.Any {
		p, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	full := func() *Order {
		o := &Order{
			Id: "5", Item: &Item{Sku: "a", Part: &Item{Digest: []byte{1}}}, Flag: true, Kind: Kind_KIND_CARD, Raw: []byte("raw"),
			I32: -1, I64: -2, U32: 3, U64: math.MaxUint64, S32: -5, S64: -6, F32: 7, F64: 8, Sf32: -9, Sf64: -10, Float: 0.5, Double: math.Inf(1),
			Payer: &Order_Account{Account: 1}, Tags: []string{"x", "y"}, Number: proto.Int64(0),
			Amounts: map[string]int64{}, Items: map[int32]*Item{}, Answers: map[bool]string{true: "t", false: "f"}, Blobs: map[uint64][]byte{},
			Extra: packed(&Order{Amounts: map[string]int64{"a": 1, "b": 2, "c": 3, "d": 4}}), Wrapped: wrapperspb.String("w"),
		}
		for i := range 40 {
			name := string(rune('a' + i))
			o.Amounts[name], o.Items[int32(20-i)], o.Blobs[uint64(i)] = int64(i), &Item{Sku: name}, []byte(name)
		}
		return o
	}

	t.Run("order of maps", func(t *testing.T) {
		t.Parallel()
		if !same(t, full(), full()) {
			t.Error("refused")
		}
	})

	t.Run("unknown fields", func(t *testing.T) {
		t.Parallel()
		newer := &Order{Id: "5"}
		data, err := proto.Marshal(&OrderV2{Id: "5", Note: "from a newer client"})
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(data, newer); err != nil || len(newer.ProtoReflect().GetUnknown()) == 0 {
			t.Fatal(err, "nothing unknown")
		}
		if !same(t, newer, &Order{Id: "5"}) {
			t.Error("refused")
		}
	})

	t.Run("order of encoded fields", func(t *testing.T) {
		t.Parallel()
		// A message in an Any has the encoding of its client.
		fields := [2][]byte{
			protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "5"),
			protowire.AppendVarint(protowire.AppendTag(nil, 14, protowire.VarintType), 7),
		}
		url := packed(&Order{}).GetTypeUrl()
		a := &anypb.Any{TypeUrl: url, Value: append(fields[0][:len(fields[0]):len(fields[0])], fields[1]...)}
		b := &anypb.Any{TypeUrl: url, Value: append(fields[1][:len(fields[1]):len(fields[1])], fields[0]...)}
		if !same(t, &Order{Extra: a}, &Order{Extra: b}) {
			t.Error("refused")
		}
	})

	for name, change := range map[string]func(*Order){
		"a nested string":            func(o *Order) { o.Item.Sku = "b" },
		"a nested message":           func(o *Order) { o.Item.Part = nil },
		"raw bytes":                  func(o *Order) { o.Raw = []byte("ra") },
		"a sign":                     func(o *Order) { o.I32 = 1 },
		"a number beyond floats":     func(o *Order) { o.U64-- },
		"a float":                    func(o *Order) { o.Double = -o.Double },
		"an enum":                    func(o *Order) { o.Kind = 8 },
		"a bool":                     func(o *Order) { o.Flag = false },
		"the case of a oneof":        func(o *Order) { o.Payer = &Order_Card{Card: "1"} },
		"the order of a list":        func(o *Order) { o.Tags[0], o.Tags[1] = o.Tags[1], o.Tags[0] },
		"where the strings end":      func(o *Order) { o.Tags = []string{"xy", ""} },
		"the length of a list":       func(o *Order) { o.Tags = append(o.Tags, "") },
		"a value of a map":           func(o *Order) { o.Amounts["a"]++ },
		"a key of a map":             func(o *Order) { delete(o.Items, 20); o.Items[21] = &Item{Sku: "a"} },
		"two values of a map":        func(o *Order) { o.Answers[true], o.Answers[false] = o.Answers[false], o.Answers[true] },
		"a 0 that is not set":        func(o *Order) { o.Number = nil },
		"what is in an Any":          func(o *Order) { o.Extra = packed(&Order{Amounts: map[string]int64{"a": 1}}) },
		"the type in an Any":         func(o *Order) { o.Extra = packed(&Receipt{}) },
		"an Any that cannot be read": func(o *Order) { o.Extra = &anypb.Any{TypeUrl: "x/y", Value: []byte("z")} },
	} {
		t.Run(name, func(t *testing.T) { // hazard 60
			t.Parallel()
			changed := full()
			change(changed)
			if same(t, full(), changed) {
				t.Error("taken for the same")
			}
		})
	}
}

// TestFingerprint_RequestThatIsNoMessage checks requests that are no protobuf message.
// They are refused before the handler runs, even if the fingerprint needs no field of
// the request. The response to such a request could not be replayed.
func TestFingerprint_RequestThatIsNoMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, opts := range map[string][]grpcmw.Option{
		"whole request": nil,
		"own functions": {grpcmw.Fingerprint(grpcmw.AnyCaller())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), opts...)))
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, rand.Text()))
			reply, err := serve(ctx, "an order", &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}, func(context.Context, any) (any, error) {
				t.Error("the handler ran")
				return "a receipt", nil
			})
			if status.Code(err) != codes.Internal || reply != nil {
				t.Errorf("got %v, %v, want INTERNAL", reply, err)
			}
		})
	}
}
