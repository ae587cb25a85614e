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

	"github.com/lockkit/lockkit/core"
)

// Services is a server whose methods Check and Audit compare with the rules.
// *grpc.Server implements Services. For services of connect, use connectmw.Services.
type Services interface {
	// GetServiceInfo returns the services by their full names.
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// Check compares r with the services that are registered with s. Call Check before
// Serve. It fails with core.ErrInvalid, and lists the mistakes, for example:
//
//   - a method that no service has, because a typo would leave the real method unguarded
//   - a path of Field that the request does not have, or that leads to a message, a list
//     or a map
//   - Idempotent on a stream
//   - a method without rules
//
// Check skips rules of Annotated for services that s does not have. The program may be
// their client.
//
// Check calls the KeyFuncs of r with an empty request to learn their paths. It cannot
// see whether s has the interceptors that apply r; see ServerOptions.
func Check(s Services, r Rules) error {
	if isNil(s) {
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

// Audit checks r like Check, and also reports forgotten methods of s. Call Audit before
// Serve, or in a test. It fails with core.ErrInvalid and lists each method that has no
// rule in r. A method is exempt if its .proto has idempotency_level = NO_SIDE_EFFECTS
// or (lockkit.v1.guard).none. In Go, the rule None has the same meaning. A method whose
// .proto has any other guard always needs a rule. Audit skips gRPC's own services for
// health, reflection and channelz.
func Audit(s Services, r Rules) error {
	problems := []error{Check(s, r)}
	if isNil(s) {
		return problems[0]
	}
	services := s.GetServiceInfo()
	for _, service := range slices.Sorted(maps.Keys(services)) {
		for _, short := range methodsOf(services[service]) {
			name := "/" + service + "/" + short
			if problem := auditMethod(lookUp(name)); len(r[name]) == 0 && problem != "" && !slices.Contains(looking, service) {
				problems = append(problems, fmt.Errorf("grpcmw: audit: %s: %s: %w", name, problem, core.ErrInvalid))
			}
		}
	}
	return errors.Join(problems...)
}

func isNil(s Services) bool {
	server, ok := s.(*grpc.Server)
	return s == nil || ok && server == nil
}

// looking has gRPC's own services, which only read.
var looking = []string{
	"grpc.health.v1.Health", "grpc.channelz.v1.Channelz",
	"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
}

// auditMethod returns the problem of a method without rules, or "".
func auditMethod(m *method) string {
	switch {
	case m.guard.GetNone():
		return ""
	case m.guard != nil:
		return "its .proto has a guard, and there is no rule that applies it, see Annotated"
	case m.pure:
		return ""
	}
	return "it may have side effects and has no rule; if it needs none, say so with None, or in its .proto"
}

func methodsOf(info grpc.ServiceInfo) []string {
	var names []string
	for _, m := range info.Methods {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

func checkMethod(services map[string]grpc.ServiceInfo, name string, rules []Rule) []error {
	if !isFullMethod(name) {
		return []error{errors.New("the method is not of the form /package.Service/Method")}
	}
	service, short, _ := cutMethod(name)
	info, ok := services[service]
	if !ok && len(rules) > 0 && !slices.ContainsFunc(rules, isWritten) {
		return nil
	}
	if !ok {
		return []error{fmt.Errorf("the server has no such service, it has: %s", strings.Join(slices.Sorted(maps.Keys(services)), ", "))}
	}
	i := slices.IndexFunc(info.Methods, func(m grpc.MethodInfo) bool { return m.Name == short })
	if i < 0 {
		return []error{fmt.Errorf("the service has no such method, it has: %s", strings.Join(methodsOf(info), ", "))}
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
			problems = append(problems, bare(problem))
		}
	}
	return problems
}

// bare returns a problem without the prefix "grpcmw: ", which the report already has.
func bare(problem error) error {
	var own setupError
	if errors.As(problem, &own) {
		return errors.New(string(own))
	}
	return problem
}

// probe is the context under which the kit's KeyFuncs check their fields.
type probe struct {
	context.Context
	problems []error
}

// try calls keys with an empty request, and returns their problems.
func (m *method) try(keys ...KeyFunc) []error {
	if m.input == nil {
		return nil // the messages may have another encoding
	}
	p := &probe{Context: context.Background()}
	for _, f := range keys {
		func() {
			// A user's function can panic on an empty request.
			defer func() { _ = recover() }()
			_, _ = f(p, m.name, m.input.New().Interface())
		}()
	}
	return p.problems
}

// field records the problem of f. It returns a key, so that Join tries its other parts
// too.
func (p *probe) field(f *field, req any) (string, error) {
	if m, ok := req.(proto.Message); ok {
		if _, err := f.resolve(m.ProtoReflect().Descriptor()); err != nil {
			p.problems = append(p.problems, err)
		}
	}
	return "0", nil
}
