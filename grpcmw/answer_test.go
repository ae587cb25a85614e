package grpcmw_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestKeptAnswers(t *testing.T) {
	t.Parallel()

	t.Run("fingerprints do not change", func(t *testing.T) {
		t.Parallel()
		o := &Order{Id: "5", I64: -1, Tags: []string{"a"}, Amounts: map[string]int64{"x": 1, "y": 2}, Item: &Item{Sku: strings.Repeat("s", 3000)}, Raw: make([]byte, 3000)}
		const want = "8de8ae27f1e0bb9a28d0dc8a878749eee3744cb01c38ba4e49ec11fc2e4591eb"
		if got := hex.EncodeToString(grpcmw.FingerprintOf("/a.B/C", o)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})

	t.Run("unreadable response is INTERNAL", func(t *testing.T) {
		t.Parallel()
		packed := func(s *status.Status) []byte {
			data, err := proto.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return append([]byte{1}, data...)
		}
		for name, value := range map[string][]byte{
			"nothing": {}, "another version": {3, 0}, "metadata cut off": {2, 5, 10}, "metadata alone": {2, 0}, "damaged metadata": {2, 2, 0xff, 0xff, 8, 5},
			"a header without a name":   {2, 2, 0x0a, 0, 8, 5},
			"a header that is not kept": append([]byte{2, 8, 0x0a, 6, 0x0a, 4, 'd', 'a', 't', 'e'}, 8, 5),
			"a header with more behind": append([]byte{2, 7, 0x0a, 5, 0x0a, 1, 'x', 8, 5}, 8, 5),
			"no status":                 {1, 0xff}, "no reply": packed(&status.Status{}),
			"a type that is not known": packed(&status.Status{Details: []*anypb.Any{{TypeUrl: "x/unknown.Type"}}}),
			"a reply with more behind": append(packed(&status.Status{Details: []*anypb.Any{{TypeUrl: "x/lockkit.grpcmw.test.Receipt", Value: []byte{}}}}), 8, 0),
			"a reply cut off":          packed(&status.Status{Details: []*anypb.Any{{TypeUrl: "x/lockkit.grpcmw.test.Receipt", Value: []byte("abc")}}})[:36],
			"two replies":              packed(&status.Status{Details: []*anypb.Any{{TypeUrl: "x/lockkit.grpcmw.test.Receipt"}, {TypeUrl: "x/lockkit.grpcmw.test.Receipt"}}}),
			"a damaged reply":          packed(&status.Status{Details: []*anypb.Any{{TypeUrl: "x/lockkit.grpcmw.test.Receipt", Value: []byte{0xff}}}}),
		} {
			s := newShop(t)
			s.OnPay = mustNotRun(t)
			o := s.Runs()
			s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
			c := once.Call{Name: "grpc", Scope: "any", Key: "k", Fingerprint: grpcmw.FingerprintOf(Orders_Pay_FullMethodName, &Order{Id: "5"})}
			if _, err := o.Do(t.Context(), c, func(context.Context) (once.Answer, error) { return once.Answer{Value: value}, nil }); err != nil {
				t.Fatal(err)
			}
			r := s.Call("5", key, "k")
			if r.Refused(t, codes.Internal, grpcmw.ReasonFailed); r.Replayed() || !strings.Contains(r.Err.Error(), "cannot be read") {
				t.Errorf("%s: got %v, %v", name, r.Err, r.Trailer)
			}
		}
	})

	t.Run("reply at the limit", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{1, 100, 120, 16_300, 300_000} {
			r := &Receipt{Blob: make([]byte, size)}
			packed, err := anypb.New(r)
			if err != nil {
				t.Fatal(err)
			}
			limit := 1 + proto.Size(&status.Status{Details: []*anypb.Any{packed}})
			for _, room := range []int{-1, 0, 1} {
				s := newShop(t)
				s.OnPay = func(context.Context, *Order) (*Receipt, error) { return r, nil }
				s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.AnswerLimit(limit+room))))
				first, second := s.Call("5", key, "k"), s.Call("5", key, "k")
				switch {
				case first.Err != nil:
					t.Errorf("%d bytes: got %v", size, first.Err)
				case room < 0:
					second.Refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
				case second.Err != nil || !second.Replayed() || !proto.Equal(second.Receipt, r):
					t.Errorf("%d bytes: got %v, %v", size, second.Err, second.Trailer)
				}
			}
		}
	})

	t.Run("reply of an unregistered type", func(t *testing.T) {
		t.Parallel()
		file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: proto.String("made.proto"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Made")}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newShop(t)
		s.open(nil, grpc.ChainUnaryInterceptor(
			grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller()))),
			func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
				return dynamicpb.NewMessage(file.Messages().Get(0)), nil
			}))
		s.Call("5", key, "k").Is(t, "")
		s.Call("5", key, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
	})
}

// FuzzAnswer checks that a stored value is decoded without a panic. A decoded reply
// must stay the same when it is encoded and decoded again.
func FuzzAnswer(f *testing.F) {
	for _, r := range []proto.Message{&Receipt{}, &Receipt{Id: "5", Blob: make([]byte, 200)}, &Order{Id: "5"}} {
		data, err := grpcmw.EncodeReply(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Add([]byte{1, 8, 5, 18, 1, 'x'})
	f.Add([]byte{2, 8, 0x0a, 6, 0x0a, 1, 'x', 0x12, 1, 0xff, 8, 5})
	f.Add([]byte{1, 26, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		reply, err := grpcmw.DecodeAnswer(data)
		if (reply == nil) != (err != nil) {
			t.Fatalf("got %v and %v", reply, err)
		}
		if reply == nil {
			return
		}
		written, err := grpcmw.EncodeReply(reply)
		if err != nil {
			return // a text that is not valid UTF-8, in a message of proto2
		}
		if again, err := grpcmw.DecodeAnswer(written); err != nil || !proto.Equal(reply, again) {
			t.Errorf("got %v and %v, want %v", again, err, reply)
		}
	})
}
