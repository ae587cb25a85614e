package grpcmw

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
)

// Option is a setting of one rule. Those that are given a bad value panic, and
// so does a rule that is given an option of another kind of rule.
type Option func(*config)

// kind is which rules an option is for.
type kind string

const (
	forLock       kind = "Lock"
	forIdempotent kind = "Idempotent"
)

// config is what the options of one rule add up to.
type config struct {
	acquire []core.AcquireOption
	also    []KeyFunc
	render  func(context.Context, Refusal) *status.Status
	skip    func(ctx context.Context, fullMethod string, req any) bool

	label    string
	id       KeyFunc
	optional bool
	keep     func(*status.Status) bool
	part     KeyFunc
	limit    int

	only []given // the options that only one kind of rule takes
}

type given struct {
	option string
	kind   kind
}

func (g *config) is(option string, k kind) { g.only = append(g.only, given{option, k}) }

// Acquire sets how the lock is acquired: its TTL, how long to wait for it, and
// so on. Several add up, the later one wins. Lock panics if a value is not
// allowed; whether it fits the Locker's own defaults shows with the first call,
// which is answered with INTERNAL if not.
//
// A wait ends with the call's deadline, and when the client goes away. How
// Idempotent claims its runs is set by once.Acquire.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("grpcmw: Acquire: an option is nil")
		}
	}
	return func(g *config) {
		g.is("Acquire", forLock)
		g.acquire = append(g.acquire, opts...)
	}
}

// Also locks more keys under the same lease, all or nothing: a transfer locks
// both accounts. Each key is a value under the rule's name, in the same name
// space as the first. Neither their order nor a key that comes twice matters,
// and two calls that name the same keys do not deadlock. Several add up. It is
// for Lock.
func Also(keys ...KeyFunc) Option {
	keys = append([]KeyFunc(nil), keys...)
	for _, k := range keys {
		if k == nil {
			panic("grpcmw: Also: a key is nil")
		}
	}
	return func(g *config) {
		g.is("Also", forLock)
		g.also = append(g.also, keys...)
	}
}

// Render replaces how a call that may not run is answered; Refusal.Status is
// what is replaced. The trailer that tells when to ask again is set already.
// Where render answers nil or OK, it is as if there were no Render.
func Render(render func(ctx context.Context, r Refusal) *status.Status) Option {
	if render == nil {
		panic("grpcmw: Render: the function is nil")
	}
	return func(g *config) { g.render = render }
}

// Skip lets calls for which skip returns true run without the rule. On a stream
// of many messages from the client, req is nil.
func Skip(skip func(ctx context.Context, fullMethod string, req any) bool) Option {
	if skip == nil {
		panic("grpcmw: Skip: the function is nil")
	}
	return func(g *config) { g.skip = skip }
}

// Name sets the static label of Idempotent's answers, events and records, "grpc" by default.
// The same idempotency key under two names is two keys. It panics if name is
// not of the form [A-Za-z0-9._-]+ or longer than 128 bytes.
func Name(name string) Option {
	if !isLabel(name) || len(name) > 128 {
		panic(fmt.Sprintf("grpcmw: Name %q is not of the form [A-Za-z0-9._-]+, or too long", name))
	}
	return func(g *config) {
		g.is("Name", forIdempotent)
		g.label = name
	}
}

// Key sets where Idempotent finds its key, in place of the metadata: a request
// that carries a request ID as https://google.aip.dev/155 proposes has
// Key(Field("request_id")). It panics if key is nil.
func Key(key KeyFunc) Option {
	if key == nil {
		panic("grpcmw: Key: the key is nil")
	}
	return func(g *config) {
		g.is("Key", forIdempotent)
		g.id = key
	}
}

// Optional lets calls without an idempotency key run as if Idempotent were not
// there. Without it they are refused.
func Optional() Option {
	return func(g *config) {
		g.is("Optional", forIdempotent)
		g.optional = true
	}
}

// Keep replaces which errors of a handler are kept by Idempotent, and given again, as its replies
// are: by default those of INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS,
// FAILED_PRECONDITION and OUT_OF_RANGE. After any other error the call can be
// made again, and the handler runs again. With
//
//	grpcmw.Keep(func(*status.Status) bool { return true })
//
// a call runs again only if its process died, and with once.AtMostOnce never.
// It panics if keep is nil.
func Keep(keep func(s *status.Status) bool) Option {
	if keep == nil {
		panic("grpcmw: Keep: the function is nil")
	}
	return func(g *config) {
		g.is("Keep", forIdempotent)
		g.keep = keep
	}
}

// keepDeterministic keeps what the same request would be told again. Not
// UNAUTHENTICATED and PERMISSION_DENIED: they say something of the caller's
// rights, which are mended without another request. Not UNIMPLEMENTED, which ends with a
// deployment. ABORTED, UNAVAILABLE and RESOURCE_EXHAUSTED ask to be asked again,
// and of CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL and DATA_LOSS nobody
// knows how far the work came.
func keepDeterministic(s *status.Status) bool {
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// Fingerprint makes Idempotent tell a repeated request from another one under
// the same key by the method and this part of the request, in place of the whole of it. It is
// for clients that do not send the same request twice: with a time of sending in
// it, say. It panics if part is nil.
func Fingerprint(part KeyFunc) Option {
	if part == nil {
		panic("grpcmw: Fingerprint: the part is nil")
	}
	return func(g *config) {
		g.is("Fingerprint", forIdempotent)
		g.part = part
	}
}

// ReplyLimit sets the size of the largest reply that Idempotent keeps, encoded, in bytes, 1 MiB by
// default. A larger one goes to its caller, and repetitions are answered with
// FAILED_PRECONDITION. It panics if n is not positive.
func ReplyLimit(n int) Option {
	if n <= 0 {
		panic(fmt.Sprintf("grpcmw: ReplyLimit is %d, it must be positive", n))
	}
	return func(g *config) {
		g.is("ReplyLimit", forIdempotent)
		g.limit = n
	}
}

// configure adds up the options of a rule.
func configure(rule string, k kind, opts []Option) config {
	g := config{
		render: func(_ context.Context, r Refusal) *status.Status { return r.Status() },
		label:  "grpc", id: idempotencyKey, keep: keepDeterministic, limit: 1 << 20,
	}
	for _, o := range opts {
		if o == nil {
			panic("grpcmw: " + rule + ": an option is nil")
		}
		o(&g)
	}
	for _, o := range g.only {
		if o.kind != k {
			panic(fmt.Sprintf("grpcmw: %s: %s is an option of %s", rule, o.option, o.kind))
		}
	}
	return g
}
