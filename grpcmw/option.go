package grpcmw

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
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
	owner   bool // of the caller's lease, if it sends one
	open    bool // where the store is down
	render  func(context.Context, Refusal) *status.Status
	skip    func(ctx context.Context, fullMethod string, req any) bool

	callName    string
	id          KeyFunc
	keepIf      func(Kept) bool // nil: as ByDefault says
	metadata    []string
	fingerprint KeyFunc
	limit       int
	detached    bool

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

// FailOpen lets a Lock's calls run without the lock where the store cannot be asked,
// in place of UNAVAILABLE. A lock that is busy or lost, and a Locker that is closed,
// refuse as ever. core.Unlocked(ctx) tells the handler, core.RanUnlocked events count it,
// and what the store may have granted unheard is cleaned up.
//
// It is right where two at once only cost time: a cache fill, a report that would be
// made twice. It is wrong where they cost money: a charge, a booking.
func FailOpen() Option {
	return func(g *config) {
		g.is("FailOpen", forLock)
		g.open = true
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
// of many messages from the client, req is nil. Where an idempotency key is
// optional, have it look into the call's metadata.
func Skip(skip func(ctx context.Context, fullMethod string, req any) bool) Option {
	if skip == nil {
		panic("grpcmw: Skip: the function is nil")
	}
	return func(g *config) { g.skip = skip }
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

// Kept is what a handler has answered. KeepIf decides whether it is kept.
type Kept struct {
	// Method is the full method.
	Method string
	// Reply is the handler's reply, nil beside an error. It must not be changed.
	Reply any
	// Status is the status that the client gets: OK beside a reply.
	Status *status.Status
	// Header and Trailer are copies of the metadata that the handler has set.
	Header, Trailer metadata.MD
	// Unreplayable says that the answer cannot be replayed: it is larger than
	// AnswerLimit, its metadata is larger than 64 KiB, or the type of its reply is not
	// registered. If it is kept, a later call is refused with FAILED_PRECONDITION, and
	// not run again.
	Unreplayable bool
	// ByDefault says whether the answer is kept without a KeepIf.
	ByDefault bool
}

// KeepIf sets which answers of a handler Idempotent keeps and gives again. By default
// those are kept that would be the same another time: replies, and errors of
// INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and OUT_OF_RANGE. An
// answer that is not kept is sent, and the call can be made again, which runs the
// handler as a further attempt. A service whose replies say that they failed has
//
//	grpcmw.KeepIf(func(k grpcmw.Kept) bool {
//		r, ok := k.Reply.(*pb.Receipt)
//		return k.ByDefault && !(ok && r.GetCode() == 503)
//	})
//
// An error without a status counts as what the server sends for it, UNKNOWN, or
// CANCELLED or DEADLINE_EXCEEDED for a context's. Where an error does not say that
// nothing was done, keep it too:
//
//	grpcmw.KeepIf(func(grpcmw.Kept) bool { return true })
//
// Idempotent calls keep once for each answer, when the handler has returned and before
// anything is kept. If keep panics, nothing is kept, the panic goes on, and
// once.AtMostOnce does not run the call again. keep is called by many goroutines.
//
// Some answers are never kept, and keep is not called for them: one that the handler
// has marked by once.NotFinal; a refusal of a rule inside; an error that matches
// once.ErrIndeterminate; and that of the handler's own context, which was done.
//
// With KeepIf, grpc.SetSendCompressor fails in the handler: call it in an interceptor
// outside. It panics if keep is nil.
func KeepIf(keep func(k Kept) bool) Option {
	if keep == nil {
		panic("grpcmw: KeepIf: the function is nil")
	}
	return func(g *config) {
		g.is("KeepIf", forIdempotent)
		g.keepIf = keep
	}
}

// KeepMetadata has Idempotent keep headers and trailers that the handler sets, by their
// names, and set them again with a replay. By default none are kept. Values of names
// that end in "-bin" can be any bytes. Several KeepMetadata add up.
//
//	grpcmw.KeepMetadata("location", "x-http-code")
//
// What interceptors outside of Idempotent set is not kept: they set it again. An answer
// whose metadata takes more than 64 KiB is not kept, see Kept.Unreplayable.
//
// With KeepMetadata, grpc.SetSendCompressor fails in the handler: call it in an
// interceptor outside. It panics if there is no name, or one is not of the form
// [A-Za-z0-9._-]+, or of metadata of the connection, the moment, the caller or the kit,
// such as "grpc-*", "content-type", "date", "set-cookie" and "idempotent-replayed".
func KeepMetadata(names ...string) Option {
	if len(names) == 0 {
		panic("grpcmw: KeepMetadata: there are no names")
	}
	names = slices.Clone(names)
	for i, name := range names {
		if names[i] = strings.ToLower(name); !isKeepable(names[i]) {
			panic(fmt.Sprintf("grpcmw: KeepMetadata: %q is no name, or of metadata of the connection, the moment, the caller or the kit", name))
		}
	}
	return func(g *config) {
		g.is("KeepMetadata", forIdempotent)
		g.metadata = append(slices.Clip(g.metadata), names...)
	}
}

// isDeterministic reports whether the same request would get the same again. Not
// UNAUTHENTICATED and PERMISSION_DENIED, which are about the caller's rights and
// are mended without another request, nor UNIMPLEMENTED, which the next
// deployment mends. ABORTED, UNAVAILABLE and RESOURCE_EXHAUSTED ask to be asked
// again, and the others are accidents.
func isDeterministic(s *status.Status) bool {
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// Fingerprint sets what else than the method has to be the same when a key is
// used again, instead of the whole request. It is for clients that change the
// request when they repeat it, with a time of sending in it, say:
//
//	grpcmw.Fingerprint(grpcmw.Join(grpcmw.Field("order"), grpcmw.Field("amount")))
//
// What it does not name can differ unnoticed. Requests in which of finds nothing
// are refused. It panics if of is nil.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("grpcmw: Fingerprint: the function is nil")
	}
	return func(g *config) {
		g.is("Fingerprint", forIdempotent)
		g.fingerprint = of
	}
}

// AnswerLimit sets the size of the largest answer that Idempotent keeps, encoded
// and in bytes, 256 KiB by default. A larger one goes to its caller, and when it
// is asked for again the call is refused with FAILED_PRECONDITION: it is neither
// replayed nor run again. It panics if n is not positive.
func AnswerLimit(n int) Option {
	if n <= 0 {
		panic(fmt.Sprintf("grpcmw: AnswerLimit is %d, it must be positive", n))
	}
	return func(g *config) {
		g.is("AnswerLimit", forIdempotent)
		g.limit = n
	}
}

// CallName names an Idempotent in events, errors and answers, in place of "grpc",
// so that checkout and refund can be told apart. It is no part of what a key
// stands for: a key that is used under two names is still one key, and the
// answers that are kept are found under a new name too. It panics if name is not
// of the form [A-Za-z0-9._-]+ or has more than 64 bytes.
func CallName(name string) Option {
	if err := keys.CheckName(name); err != nil {
		panic("grpcmw: CallName: " + err.Error())
	}
	return func(g *config) {
		g.is("CallName", forIdempotent)
		g.callName = name
	}
}

// Detached lets handlers under Idempotent work on when the client goes away or
// the call's deadline passes, so that the answer is there when the client asks
// again. Their context then ends only if the run's lease is lost, or if a rule
// around loses one while the client is there: have Lock inside. A handler that
// hangs is not ended by anything else; give it time-outs of its own.
func Detached() Option {
	return func(g *config) {
		g.is("Detached", forIdempotent)
		g.detached = true
	}
}

// configure adds up the options of a rule.
func configure(rule string, k kind, opts []Option) config {
	g := config{
		render:   func(_ context.Context, r Refusal) *status.Status { return r.Status() },
		callName: operation, id: idempotencyKey, limit: 256 << 10,
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
