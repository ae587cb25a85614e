package grpcmw

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw/lockkitpb"
)

// AnnotatedOption is a setting of Annotated. A value that is not allowed causes a panic.
type AnnotatedOption func(*annotations)

type annotations struct {
	locker      *core.Locker
	once        *once.Once // or nil
	scope       KeyFunc
	locks, runs []Option
}

// Runs sets the Once that stores the responses of methods annotated as idempotent, and
// the scope of their keys. opts are options of Idempotent. Runs panics like Idempotent.
func Runs(o *once.Once, scope KeyFunc, opts ...Option) AnnotatedOption {
	opts = slices.Clip(slices.Clone(opts))
	Idempotent(o, scope, opts...)
	return func(a *annotations) { a.once, a.scope, a.runs = o, scope, opts }
}

// Locks sets options of every Lock that an annotation names, such as TakeOwner or
// Render. The settings of the annotation take precedence over opts. Locks panics if an
// option is nil or not for Lock.
func Locks(opts ...Option) AnnotatedOption {
	opts = slices.Clip(slices.Clone(opts))
	configure("Locks", forLock, opts)
	return func(a *annotations) { a.locks = opts }
}

// Annotated returns the rules in the .proto files of all services in the program. The
// option (lockkit.v1.guard) sets the rules of a method; see lockkitpb:
//
//	rpc Pay(PayRequest) returns (Receipt) {
//	  option (lockkit.v1.guard) = {
//	    idempotent {}
//	    lock { name: "order" field: "order_id" wait { seconds: 1 } }
//	  };
//	}
//
// The scope of idempotency keys is set in Go, by Runs. Rules in Go can replace the
// rules of a .proto:
//
//	rules, err := grpcmw.Annotated(locks, grpcmw.Runs(runs, caller))
//	rules[pb.Orders_Refund_FullMethodName] = []grpcmw.Rule{…} // in place of those in its .proto
//
// Methods with the option none, and methods without an option, have no rules; Audit
// distinguishes the two kinds.
//
// Annotated fails with core.ErrInvalid, and lists each method with a wrong guard. These
// guards are wrong:
//
//   - a name, a path, a duration or a combination that is not allowed
//   - idempotent for a stream, or without Runs
//   - an empty guard
//   - a guard with a field that this version of the kit does not know
//
// It fails with core.ErrUnsupported if the store of l does not support such locks.
func Annotated(l *core.Locker, opts ...AnnotatedOption) (Rules, error) {
	return annotatedIn(protoregistry.GlobalFiles, l, opts)
}

func annotatedIn(files *protoregistry.Files, l *core.Locker, opts []AnnotatedOption) (Rules, error) {
	if l == nil || slices.ContainsFunc(opts, func(o AnnotatedOption) bool { return o == nil }) {
		return nil, fmt.Errorf("grpcmw: annotated: the locker or an option is nil: %w", core.ErrInvalid)
	}
	a := &annotations{locker: l}
	for _, o := range opts {
		o(a)
	}
	var methods []protoreflect.MethodDescriptor
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j, all := 0, f.Services().Get(i).Methods(); j < all.Len(); j++ {
				methods = append(methods, all.Get(j))
			}
		}
		return true
	})
	slices.SortFunc(methods, func(a, b protoreflect.MethodDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	rules := make(Rules)
	var problems []error
	for _, md := range methods {
		m := describe(md)
		made, err := a.rules(m, md.Input())
		switch {
		case err == nil && len(made) > 0:
			rules[m.name] = made
		case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
			problems = append(problems, fmt.Errorf("grpcmw: annotated: %s: %w", m.name, err))
		case err != nil:
			problems = append(problems, fmt.Errorf("grpcmw: annotated: %s: %w: %w", m.name, err, core.ErrInvalid))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return rules, nil
}

func (a *annotations) rules(m *method, input protoreflect.MessageDescriptor) (rules []Rule, err error) {
	guard := m.guard
	switch {
	case guard == nil:
		return nil, nil
	case isLater(guard):
		return nil, errLater
	case guard.GetNone() == (guard.GetIdempotent() != nil || len(guard.GetLock()) > 0):
		return nil, errors.New("the guard needs either none, or lock or idempotent")
	}
	if i := guard.GetIdempotent(); i != nil {
		rule, err := a.idempotent(m, input, i)
		if err != nil {
			return nil, fmt.Errorf("idempotent: %w", err)
		}
		rules = append(rules, declared{rule})
	}
	for i, l := range guard.GetLock() {
		rule, err := a.lock(input, l)
		if err != nil {
			return nil, fmt.Errorf("lock[%d]: %w", i, err)
		}
		rules = append(rules, declared{rule})
	}
	return rules, nil
}

// errLater is the reason for refusing a guard that this version can apply only in part.
var errLater = errors.New("it has a field that this version of the kit does not know")

func isLater(m proto.Message) bool {
	return len(m.ProtoReflect().GetUnknown()) > 0
}

func (a *annotations) lock(input protoreflect.MessageDescriptor, l *lockkitpb.Lock) (Rule, error) {
	switch bad := keys.CheckName(l.GetName()); {
	case isLater(l):
		return nil, errLater
	case bad != nil:
		return nil, bad
	case len(l.GetField()) == 0:
		return nil, errors.New("field is missing")
	}
	key, err := fieldsOf(input, "field", l.GetField())
	if err != nil {
		return nil, err
	}
	also, err := fieldsOf(input, "also", l.GetAlso())
	if err != nil {
		return nil, err
	}
	if len(key) > 1 {
		key[0] = Join(key...)
	}
	acquire, err := a.acquire(l)
	if err != nil {
		return nil, err
	}
	opts := append(a.locks, Acquire(acquire...), Also(also...))
	if _, err := adapter.Check(a.locker, configure("Lock", forLock, opts).acquire...); err != nil {
		return nil, err
	}
	return Lock(a.locker, l.GetName(), key[0], opts...), nil
}

func (a *annotations) acquire(l *lockkitpb.Lock) (acquire []core.AcquireOption, err error) {
	type setting struct {
		field string
		set   bool
		o     core.AcquireOption
		fault error
	}
	last := func(field string, d *durationpb.Duration, o func(time.Duration) core.AcquireOption) setting {
		return setting{field, d != nil, o(d.AsDuration()), d.CheckValid()}
	}
	for _, s := range []setting{
		last("wait", l.GetWait(), core.Wait), last("ttl", l.GetTtl(), core.TTL), last("max_hold", l.GetMaxHold(), core.MaxHold),
		{"shared", l.GetShared(), core.Shared(), nil}, {"fair", l.GetFair(), core.Fair(), nil}, {"fenced", l.GetFenced(), core.Fenced(), nil},
	} {
		if !s.set {
			continue
		}
		if s.fault == nil {
			_, s.fault = adapter.Check(a.locker, s.o)
		}
		if s.fault != nil {
			return nil, fmt.Errorf("%s: %w", s.field, s.fault)
		}
		acquire = append(acquire, s.o)
	}
	return acquire, nil
}

func (a *annotations) idempotent(m *method, input protoreflect.MessageDescriptor, i *lockkitpb.Idempotent) (Rule, error) {
	switch {
	case isLater(i):
		return nil, errLater
	case m.stream:
		return nil, errors.New("a stream has no response that could be stored")
	case a.once == nil:
		return nil, errors.New("no Once stores responses, see Runs")
	}
	opts, policy := a.runs, []once.Option(nil)
	if path := i.GetField(); path != "" {
		key, err := fieldsOf(input, "field", []string{path})
		if err != nil {
			return nil, err
		}
		opts = append(opts, Key(key[0]))
	}
	if i.GetAtMostOnce() {
		policy = append(policy, once.AtMostOnce())
	}
	if d := i.GetRetain(); d != nil {
		if err := d.CheckValid(); err != nil {
			return nil, fmt.Errorf("retain: %w", err)
		}
		policy = append(policy, once.Retain(d.AsDuration()))
	}
	o, err := a.once.WithOptions(policy...)
	if err != nil {
		return nil, err
	}
	return Idempotent(o, a.scope, opts...), nil
}

// fieldsOf returns the KeyFuncs of paths in the message. what names the paths in
// errors.
func fieldsOf(input protoreflect.MessageDescriptor, what string, paths []string) (fields []KeyFunc, err error) {
	for _, path := range paths {
		f := &field{Source: keys.Source{Adapter: "grpcmw", Kind: "field", Name: path}, names: strings.Split(path, ".")}
		if _, err := f.resolve(input); err != nil {
			return nil, fmt.Errorf("%s: %w", what, bare(err))
		}
		fields = append(fields, f.find)
	}
	return fields, nil
}

// declared is a rule of a .proto file. Its method's name cannot be a typo.
type declared struct{ Rule }

// isWritten reports whether a rule was written in Go.
func isWritten(r Rule) bool {
	_, ok := r.(declared)
	return !ok
}
