package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
)

// Check tells whether r fits the services that are registered with s; call it
// before Serve. It fails with core.ErrInvalid, and names all that is wrong: a
// method that no service has, which a typo would leave unguarded; a path of
// Field that the request does not have, or that is a message, a list or a map;
// Idempotent on a stream; a method without rules.
//
// It calls the KeyFuncs of r with an empty request, to have them name their
// paths. It cannot see whether s has the interceptors that apply r: unary
// methods need UnaryServerInterceptor, and streams StreamServerInterceptor.
func Check(s *grpc.Server, r Rules) error {
	if s == nil {
		return fmt.Errorf("grpcmw: check: the server is nil: %w", core.ErrInvalid)
	}
	services := s.GetServiceInfo()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(r)) {
		for _, problem := range checkMethod(services, name, r[name]) {
			problems = append(problems, fmt.Errorf("grpcmw: check: %s: %w: %w", name, problem, core.ErrInvalid))
		}
	}
	return errors.Join(problems...)
}

func checkMethod(services map[string]grpc.ServiceInfo, name string, rules []Rule) []error {
	if !isFullMethod(name) {
		return []error{errors.New("the method is not of the form /package.Service/Method")}
	}
	service, short, _ := cutMethod(name)
	info, ok := services[service]
	if !ok {
		return []error{errors.New("the server has no such service")}
	}
	i := slices.IndexFunc(info.Methods, func(m grpc.MethodInfo) bool { return m.Name == short })
	if i < 0 {
		return []error{errors.New("the service has no such method")}
	}
	if len(rules) == 0 {
		return []error{errors.New("it has no rules")}
	}
	m := lookUp(name)
	m.stream = info.Methods[i].IsClientStream || info.Methods[i].IsServerStream
	var problems []error
	for _, rule := range rules {
		if rule == nil {
			problems = append(problems, errors.New("a rule is nil"))
			continue
		}
		for _, problem := range rule.inspect(m) {
			if own := setupError(""); errors.As(problem, &own) {
				problem = errors.New(string(own)) // the prefix is there already
			}
			problems = append(problems, problem)
		}
	}
	return problems
}

// probe is the context under which KeyFuncs are asked what they would look for.
type probe struct {
	context.Context
	problems []error
}

// try asks keys with an empty request, and returns what is wrong with them.
func (m *method) try(keys ...KeyFunc) []error {
	if m.input == nil {
		return nil // of another encoding, perhaps
	}
	p := &probe{Context: context.Background()}
	for _, f := range keys {
		func() {
			// A function of the user's does not have to bear an empty request.
			defer func() { _ = recover() }()
			_, _ = f(p, m.name, m.input.New().Interface())
		}()
	}
	return p.problems
}

// field notes what is wrong with f.
func (p *probe) field(f *field, req any) (string, error) {
	if m, ok := req.(proto.Message); ok {
		if _, err := f.resolve(m.ProtoReflect().Descriptor()); err != nil {
			p.problems = append(p.problems, err)
		}
	}
	return "0", nil
}
