package grpcmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	with := func(kv ...string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs(kv...))
	}

	t.Run("one value", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string]string{"x-tenant": "acme", "X-Tenant": "acme", "Raw-Bin": "00ff"} {
			if got, err := grpcmw.Metadata(name)(with("X-TENANT", "acme", "raw-bin", "\x00\xff"), "/a/b", nil); got != want || err != nil {
				t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
			}
		}
	})

	t.Run("bad values", func(t *testing.T) {
		t.Parallel()
		for want, ctx := range map[string]context.Context{
			"is missing": t.Context(), `"x" is missing`: with("y", "1"), "is empty": with("x", ""), "more than once": with("x", "1", "X", "1"),
			"control character": with("x", "a\nb"), "too long": with("x", strings.Repeat("x", 513)), "not valid UTF-8": with("x", "\xff"),
		} {
			got, err := grpcmw.Metadata("x")(ctx, "/a/b", nil)
			if got != "" || !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, %v; want ErrInvalid with %q", got, err, want)
			}
		}
	})
}

func TestJoin(t *testing.T) {
	t.Parallel()

	t.Run("joined parts", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Lock(s.Locker, "x", grpcmw.Join(grpcmw.Metadata("a"), grpcmw.Join(grpcmw.Field("id"), grpcmw.Field("i64"))))))
		for _, p := range [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"a", "b"}, {"a%3Ab", "c"}} {
			s.Call(p[1], "a", p[0]).Is(t, core.Key("x", p[0], p[1], "0"))
		}
		s.Call("", "a", "b").Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		if r := s.Call(strings.Repeat("x", 500), "a", strings.Repeat(":", 100)); status.Code(r.Err) != codes.InvalidArgument {
			t.Errorf("got %v for a key that is too long", r.Err)
		}
	})

	t.Run("failing part", func(t *testing.T) {
		t.Parallel()
		own := errors.New("own")
		failing := func(context.Context, string, any) (string, error) { return "", own }
		if _, err := grpcmw.Join(grpcmw.AnyCaller(), failing, grpcmw.Metadata("x"))(t.Context(), "/a/b", &Order{}); err != own {
			t.Errorf("got %v", err)
		}
	})
}
