package grpcmw_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestField(t *testing.T) {
	t.Parallel()

	t.Run("scalar fields", func(t *testing.T) {
		t.Parallel()
		o := &Order{
			Id: "a:b c", Item: &Item{Part: &Item{Sku: "deep", Digest: []byte{0, 0xff}}}, Coupon: proto.String("x"),
			Flag: true, Kind: Kind_KIND_CARD, Raw: []byte("\x00key"),
			I32: math.MinInt32, I64: 9007199254740993, U32: math.MaxUint32, U64: math.MaxUint64,
			S32: -1, S64: math.MinInt64, F32: 1, F64: 9007199254740993, Sf32: -2, Sf64: -9007199254740993,
			Float: 0.1, Double: math.Copysign(0, -1), Payer: &Order_Account{Account: 9007199254740992},
			Number: proto.Int64(0), Wrapped: wrapperspb.String("w"), Extra: &anypb.Any{TypeUrl: "u"},
		}
		for path, want := range map[string]string{
			"id": "a:b c", "item.part.sku": "deep", "item.part.digest": "00ff", "coupon": "x",
			"flag": "true", "kind": "7", "raw": "006b6579",
			"i32": "-2147483648", "i64": "9007199254740993", "u32": "4294967295", "u64": "18446744073709551615",
			"s32": "-1", "s64": "-9223372036854775808", "f32": "1", "f64": "9007199254740993", "sf32": "-2", "sf64": "-9007199254740993",
			"float": "0.1", "double": "0", "account": "9007199254740992",
			"number": "0", "wrapped.value": "w", "extra.type_url": "u",
		} {
			if got, err := grpcmw.Field(path)(t.Context(), "/a/b", o); got != want || err != nil {
				t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
			}
		}
	})

	t.Run("0 and false without presence", func(t *testing.T) {
		t.Parallel()
		for path, want := range map[string]string{"flag": "false", "kind": "0", "i64": "0", "u32": "0", "float": "0"} {
			if got, err := grpcmw.Field(path)(t.Context(), "/a/b", &Order{}); got != want || err != nil {
				t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
			}
		}
	})

	t.Run("not set or empty", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			path, want string
			order      *Order
		}{
			{"coupon", "is missing", &Order{}},
			{"coupon", "is empty", &Order{Coupon: proto.String("")}},
			{"number", "is missing", &Order{}},
			{"id", "is empty", &Order{}},
			{"raw", "is empty", &Order{Raw: []byte{}}},
			{"item.sku", "is missing", &Order{}},
			{"item.part.sku", "is missing", &Order{Item: &Item{Sku: "a"}}},
			{"item.digest", "is empty", &Order{Item: &Item{Digest: []byte{}}}},
			{"account", "is missing", &Order{Payer: &Order_Card{Card: "c"}}},
			{"wrapped.value", "is missing", &Order{}},
			{"id", "control character", &Order{Id: "a\x1fb"}},
			{"id", "too long", &Order{Id: strings.Repeat("x", 513)}},
			{"raw", "too long", &Order{Raw: make([]byte, 257)}},
			{"id", "not valid UTF-8", &Order{Id: "a\xff"}},
			{"double", "not a number", &Order{Double: math.NaN()}},
			{"id", "is empty", nil},
		} {
			got, err := grpcmw.Field(c.path)(t.Context(), "/a/b", c.order)
			if got != "" || !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %q, %v; want ErrInvalid with %q", c.path, got, err, c.want)
			}
		}
	})

	t.Run("unknown path", func(t *testing.T) {
		t.Parallel()
		for path, want := range map[string]string{
			"idd": "idd is no field", "Id": "Id is no field", "item": "item is a message", "item.sku.x": "sku is not a message",
			"item.part": "part is a message", "tags": "tags is a list", "list.sku": "list is a list",
			"amounts": "amounts is a map", "items.part": "items is a map", "payer": "payer is no field", "wrapped": "wrapped is a message",
		} {
			got, err := grpcmw.Field(path)(t.Context(), "/a/b", &Order{})
			if got != "" || err == nil || errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, %v; want an error with %q", path, got, err, want)
			}
		}
		if _, err := grpcmw.Field("id")(t.Context(), "/a/b", "text"); err == nil || errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v for a string", err)
		}
	})

	t.Run("messages of several types", func(t *testing.T) {
		t.Parallel()
		f := grpcmw.Field("id")
		again, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(File_orders_proto), protoregistry.GlobalFiles)
		if err != nil {
			t.Fatal(err)
		}
		dynamic := dynamicpb.NewMessage(again.Messages().ByName("Order"))
		dynamic.Set(dynamic.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString("c"))
		for range 2 {
			for want, m := range map[string]any{"a": &Order{Id: "a"}, "b": &Receipt{Id: "b"}, "c": dynamic} {
				if got, err := f(t.Context(), "/a/b", m); got != want || err != nil {
					t.Errorf("%T: got %q, %v", m, got, err)
				}
			}
		}
	})

	t.Run("paths that panic", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"", ".", "a.", ".a", "a..b"} {
			panics(t, "grpcmw: ", func() { grpcmw.Field(path) })
		}
	})
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, _ := recover().(string); !strings.HasPrefix(text, "grpcmw: ") || !strings.Contains(text, want) {
			t.Errorf("panicked with %q, want %q", text, want)
		}
	}()
	f()
}

// FuzzField reads a field of any message. The value must be allowed as a part of a key,
// and each read must return the same value.
func FuzzField(f *testing.F) {
	seed := func(path string, o *Order) {
		data, err := proto.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(path, data)
	}
	seed("id", &Order{Id: "42"})
	seed("item.part.sku", &Order{Item: &Item{Part: &Item{Sku: "x"}}})
	seed("i64", &Order{I64: math.MaxInt64})
	seed("double", &Order{Double: math.Inf(-1)})
	seed("amounts", &Order{Amounts: map[string]int64{"a": 1}})
	locks, err := core.New(memstore.New())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		o := new(Order)
		if proto.Unmarshal(data, o) != nil {
			return
		}
		var key grpcmw.KeyFunc
		func() {
			defer func() {
				if text, ok := recover().(string); ok && !strings.HasPrefix(text, "grpcmw: ") {
					panic(text)
				}
			}()
			key = grpcmw.Field(path)
		}()
		if key == nil {
			return // no path
		}
		got, err := key(t.Context(), "/a/b", o)
		if err != nil {
			if got != "" {
				t.Errorf("got %q and %v", got, err)
			}
			return
		}
		again, _ := key(t.Context(), "/a/b", proto.Clone(o))
		if again != got {
			t.Errorf("got %q, then %q", got, again)
		}
		if name := core.Key("x", got); len(name) <= 512 {
			lease, err := locks.TryAcquire(t.Context(), name)
			if err != nil {
				t.Fatalf("%q is no key: %v", got, err)
			}
			_ = lease.Release(t.Context())
		}
	})
}
