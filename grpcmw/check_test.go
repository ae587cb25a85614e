package grpcmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	RegisterOrdersServer(server, &handlers{})
	lock := func(key grpcmw.KeyFunc, opts ...grpcmw.Option) grpcmw.Rule {
		return grpcmw.Lock(locks, "x", key, opts...)
	}
	careless := func(ctx context.Context, m string, req any) (string, error) {
		_ = ctx.Value("user").(string)
		return "x", nil
	}

	t.Run("rules that fit", func(t *testing.T) {
		t.Parallel()
		err := grpcmw.Check(server, grpcmw.Rules{
			Orders_Pay_FullMethodName: {
				lock(grpcmw.Field("item.part.sku")), lock(careless), lock(grpcmw.Metadata("x"), grpcmw.Also(grpcmw.Field("account"))),
				grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.Key(grpcmw.Field("coupon")), grpcmw.Fingerprint(grpcmw.Field("i64"))),
			},
			Orders_Watch_FullMethodName: {lock(grpcmw.Field("id"))}, Orders_Chat_FullMethodName: {lock(grpcmw.Field("id"))},
			Orders_Upload_FullMethodName: {lock(grpcmw.Join(grpcmw.Metadata("x"), grpcmw.Field("id")))},
		})
		if err != nil {
			t.Error(err)
		}
	})

	field := lock(grpcmw.Field("id"))
	for name, c := range map[string]struct {
		rules grpcmw.Rules
		want  string
	}{
		"an unknown service":        {on("/shop.Orders/Pay", field), "the server has no such service"},
		"an unknown method":         {on("/lockkit.grpcmw.test.Orders/Payy", field), "the service has no such method"},
		"a name without a slash":    {on("lockkit.grpcmw.test.Orders/Pay", field), "not of the form"},
		"no rules":                  {on(Orders_Pay_FullMethodName), "it has no rules"},
		"a nil rule":                {on(Orders_Pay_FullMethodName, nil), "a rule is nil"},
		"a field that is not there": {on(Orders_Pay_FullMethodName, lock(grpcmw.Field("idd"))), `field "idd": idd is no field`},
		"a field within Join": {
			on(Orders_Pay_FullMethodName, lock(grpcmw.Join(grpcmw.Metadata("x"), grpcmw.Field("item.skuu")))), "skuu is no field of lockkit.grpcmw.test.Item",
		},
		"a field within a function": {on(Orders_Pay_FullMethodName, lock(func(ctx context.Context, m string, req any) (string, error) {
			v, err := grpcmw.Field("tags")(ctx, m, req)
			return strings.ToLower(v), err
		})), "tags is a list"},
		"a field of Also":          {on(Orders_Watch_FullMethodName, lock(grpcmw.Field("id"), grpcmw.Also(grpcmw.Field("item")))), "item is a message"},
		"a field of a stream":      {on(Orders_Chat_FullMethodName, lock(grpcmw.Field("items"))), "items is a map"},
		"Idempotent on a stream":   {on(Orders_Watch_FullMethodName, grpcmw.Idempotent(runs, grpcmw.AnyCaller())), "Idempotent cannot be applied to a stream"},
		"a field of a scope":       {on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, grpcmw.Field("tenant"))), "tenant is no field"},
		"a field of a key":         {on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.Key(grpcmw.Field("rid")))), "rid is no field"},
		"a field of a fingerprint": {on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.Fingerprint(grpcmw.Field("fp")))), "fp is no field"},
		"an unknown second method": {grpcmw.Rules{Orders_Pay_FullMethodName: {field}, "/a.B/C": {field}}, "/a.B/C"},
	} {
		t.Run(name+" is found", func(t *testing.T) {
			t.Parallel()
			err := grpcmw.Check(server, c.rules)
			if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}

	t.Run("all mistakes are named", func(t *testing.T) {
		t.Parallel()
		err := grpcmw.Check(server, grpcmw.Rules{
			"/a.B/C": {field}, "/a.B/D": {field}, Orders_Pay_FullMethodName: {lock(grpcmw.Field("a")), lock(grpcmw.Field("b"))},
		})
		for _, want := range []string{"/a.B/C", "/a.B/D", `field "a"`, `field "b"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, without %s", err, want)
			}
		}
		if err := grpcmw.Check(nil, nil); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v for no server", err)
		}
		if err := grpcmw.Check(server, nil); err != nil {
			t.Errorf("got %v for no rules", err)
		}
	})
}

func TestBadArgumentsPanic(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	id, any := grpcmw.Field("id"), grpcmw.AnyCaller()
	rule := grpcmw.Lock(locks, "x", id)
	for want, f := range map[string]func(){
		"the locker is nil":               func() { grpcmw.Lock(nil, "x", id) },
		`name "" is not`:                  func() { grpcmw.Lock(locks, "", id) },
		`name "a:b" is not`:               func() { grpcmw.Lock(locks, "a:b", id) },
		"(at most 64 bytes)":              func() { grpcmw.Lock(locks, strings.Repeat("x", 511), id) },
		"Lock: the key is nil":            func() { grpcmw.Lock(locks, "x", nil) },
		"Lock: an option is nil":          func() { grpcmw.Lock(locks, "x", id, nil) },
		"Acquire: an option is nil":       func() { grpcmw.Acquire(nil) },
		"TTL 1 ns":                        func() { grpcmw.Lock(locks, "x", id, grpcmw.Acquire(core.TTL(1))) },
		"Also: a key is nil":              func() { grpcmw.Also(nil) },
		"Render: the function is nil":     func() { grpcmw.Render(nil) },
		"Skip: the function is nil":       func() { grpcmw.Skip(nil) },
		"Key: the key is nil":             func() { grpcmw.Key(nil) },
		"KeepIf: the function is nil":     func() { grpcmw.KeepIf(nil) },
		"Fingerprint: the function":       func() { grpcmw.Fingerprint(nil) },
		"AnswerLimit: 0 is out of range":  func() { grpcmw.AnswerLimit(0) },
		"the Once is nil":                 func() { grpcmw.Idempotent(nil, any) },
		"the scope is nil":                func() { grpcmw.Idempotent(runs, nil) },
		"Acquire is an option of Lock":    func() { grpcmw.Idempotent(runs, any, grpcmw.Acquire()) },
		"Also is an option of Lock":       func() { grpcmw.Idempotent(runs, any, grpcmw.Also()) },
		"Detached is an option of Idemp":  func() { grpcmw.Lock(locks, "x", id, grpcmw.Detached()) },
		"Join without parts":              func() { grpcmw.Join() },
		"Join: a part is nil":             func() { grpcmw.Join(id, nil) },
		"the name of a metadata is empty": func() { grpcmw.Metadata("") },
		"UnaryServerInterceptor: \"Pay\"": func() { grpcmw.UnaryServerInterceptor(on("Pay", rule)) },
		"StreamServerInterceptor: \"/a\"": func() { grpcmw.StreamServerInterceptor(on("/a", rule)) },
		"/a.B/C has no rules":             func() { grpcmw.UnaryServerInterceptor(on("/a.B/C")) },
		"a rule of /a.B/C is nil":         func() { grpcmw.UnaryServerInterceptor(on("/a.B/C", nil)) },
	} {
		panics(t, want, f)
	}
}
