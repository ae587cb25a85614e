package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/lockkit/lockkit/grpcmw/lockkitpb"
)

// Rules has the rules of each method, by its full name, such as
// pb.Orders_Pay_FullMethodName: "/shop.Orders/Pay". The rules of a method apply in
// order, the first rule outermost. Calls of methods without rules pass.
type Rules = map[string][]Rule

// Rule guards the calls of a method. Lock, Idempotent and None return rules. A Rule has
// no state of calls, so several methods can share a Rule.
type Rule interface {
	// serve applies the rule to a call, and continues with c.run(ctx, next).
	serve(ctx context.Context, c *call, next int) (any, error)
	// inspect returns the problems of the rule for this method.
	inspect(m *method) []error
}

// None returns a rule for methods that need no guard: it does nothing, and satisfies
// Audit. In a .proto the option (lockkit.v1.guard).none has the same meaning.
func None() Rule { return none{} }

type none struct{}

func (none) serve(ctx context.Context, c *call, next int) (any, error) { return c.run(ctx, next) }
func (none) inspect(*method) []error                                   { return nil }

// ServerOptions returns options with the interceptors that apply r:
// UnaryServerInterceptor and StreamServerInterceptor. These interceptors run inside the
// chained interceptors of earlier options, such as authentication, and outside the
// chained interceptors of later options. ServerOptions panics like these interceptors.
func ServerOptions(r Rules) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(r)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(r)),
	}
}

// UnaryServerInterceptor returns an interceptor that applies rules to unary calls. A
// method of r that is a stream needs StreamServerInterceptor. Check finds methods that
// do not exist.
//
// Mount the interceptor inside interceptors that can refuse a call without a lock, such
// as authentication and rate limits. An interceptor that turns panics into errors can
// be outside or inside a Lock, because the lock is released in both cases. It belongs
// outside Idempotent. Inside, it would turn the panic into an ordinary error, and
// once.AtMostOnce would not notice the panic. An outer interceptor must not send
// headers before the response. Otherwise grpc-go's own retry policy does not repeat
// calls.
//
// UnaryServerInterceptor panics if a method is not of the form
// "/package.Service/Method" or has no rules, or if a rule is nil. Later changes of r
// have no effect.
func UnaryServerInterceptor(r Rules) grpc.UnaryServerInterceptor {
	methods := compile("UnaryServerInterceptor", r)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		m := methods[info.FullMethod]
		if m == nil {
			return handler(ctx, req)
		}
		c := &call{method: m, req: req, handler: handler}
		return c.run(ctx, 0)
	}
}

type method struct {
	name   string // the full name
	rules  []Rule
	input  protoreflect.MessageType // nil if the request's type is not registered
	pure   bool                     // its .proto has NO_SIDE_EFFECTS
	guard  *lockkitpb.Guard         // the guard in its .proto, or nil
	stream bool                     // a stream according to its .proto or the server
}

type call struct {
	*method
	req     any // nil until a stream has a message
	handler grpc.UnaryHandler
	stream  *stream // nil if unary
	refused bool    // one of the rules has refused the call
}

// run runs the rule at i, or the handler after the last rule.
func (c *call) run(ctx context.Context, i int) (reply any, err error) {
	if i < len(c.rules) {
		return c.rules[i].serve(ctx, c, i+1)
	}
	outer, _ := ctx.Value(executionKey{}).(*execution)
	if outer == nil {
		return c.handler(ctx, c.req)
	}
	outer.begun(c)
	panicked := true
	defer func() { outer.returned(c, err, panicked) }()
	reply, err = c.handler(ctx, c.req)
	panicked = false
	return reply, err
}

// refuse records that a rule of the call has refused the call, and returns the error of
// the refusal r. g has the options of that rule.
func (c *call) refuse(ctx context.Context, g *config, r Refusal) error {
	c.refused = true
	return g.refuse(ctx, r)
}

// ask calls f. On a stream, ask calls f again with the first message if f needs the
// message.
func (c *call) ask(ctx context.Context, f KeyFunc) (string, error) {
	value, err := f(ctx, c.name, c.req)
	if c.stream == nil || c.req != nil || !(err == nil && value == "" || errors.Is(err, errNoMessage)) {
		return value, err
	}
	if err := c.stream.first(c); err != nil {
		return "", err
	}
	return f(ctx, c.name, c.req)
}

// compile looks up the methods of r.
func compile(what string, r Rules) map[string]*method {
	methods := make(map[string]*method, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		switch {
		case !isFullMethod(name):
			panic(fmt.Sprintf("grpcmw: %s: %q is not of the form /package.Service/Method", what, name))
		case len(r[name]) == 0:
			panic(fmt.Sprintf("grpcmw: %s: %s has no rules", what, name))
		}
		for _, rule := range r[name] {
			if rule == nil {
				panic(fmt.Sprintf("grpcmw: %s: a rule of %s is nil", what, name))
			}
		}
		methods[name] = lookUp(name)
		methods[name].rules = slices.Clone(r[name])
	}
	return methods
}

func isFullMethod(s string) bool {
	service, name, ok := cutMethod(s)
	return ok && service != "" && name != "" && !strings.Contains(name, "/")
}

// cutMethod returns the service and the name of a full method.
func cutMethod(s string) (service, name string, ok bool) {
	s, slash := strings.CutPrefix(s, "/")
	service, name, ok = strings.Cut(s, "/")
	return service, name, ok && slash
}

// lookUp returns the method as described by the program's generated code.
func lookUp(fullMethod string) *method {
	service, name, _ := cutMethod(fullMethod)
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if sd, ok := d.(protoreflect.ServiceDescriptor); ok {
		if md := sd.Methods().ByName(protoreflect.Name(name)); md != nil {
			return describe(md)
		}
	}
	return &method{name: fullMethod}
}

func describe(md protoreflect.MethodDescriptor) *method {
	m := &method{name: fmt.Sprintf("/%s/%s", md.Parent().FullName(), md.Name())}
	m.input, _ = protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
	m.stream = md.IsStreamingClient() || md.IsStreamingServer()
	if options, ok := md.Options().(*descriptorpb.MethodOptions); ok {
		m.pure = options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		m.guard, _ = proto.GetExtension(options, lockkitpb.E_Guard).(*lockkitpb.Guard)
	}
	return m
}
