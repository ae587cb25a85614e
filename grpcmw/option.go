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

// Option is a setting of one rule. A value that is not allowed causes a panic, and so
// does an option of another kind of rule.
type Option func(*config)

type kind string

const (
	forLock       kind = "Lock"
	forIdempotent kind = "Idempotent"
)

type config struct {
	acquire []core.AcquireOption
	also    []KeyFunc
	owner   bool // take the owner of the caller's lease, if the caller sends it
	open    bool // let calls run if the store is unavailable
	render  func(context.Context, Refusal) *status.Status
	skip    func(ctx context.Context, fullMethod string, req any) bool

	callName    string
	id          KeyFunc
	keepIf      func(Kept) bool // nil: ByDefault decides
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

// Acquire sets the options with which Lock acquires: TTL, wait and so on. Several
// Acquires add up, and a later option overrides an earlier option. Lock panics if a
// value is not allowed, or does not fit the Locker's own defaults.
//
// A wait ends at the call's deadline, and when the client disconnects. once.Acquire has
// the options with which Idempotent claims its runs.
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

// Also makes Lock lock more keys under the same lease, all or nothing. For example, a
// transfer locks both accounts. All keys have the rule's name. The order of the keys
// does not matter, and a key may be repeated. Two calls with the same keys do not
// deadlock. Several Alsos add up.
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

// FailOpen lets a Lock's calls run without the lock if the store is unavailable. By
// default such calls get UNAVAILABLE. FailOpen does not apply to a busy lock, a lost
// outer lock, a closed Locker, or a call that is canceled or timed out. In the handler,
// core.Unlocked(ctx) reports whether the handler runs without the lock. Each call
// without the lock notifies the Locker's observer of core.RanUnlocked. If the store has
// granted the lock and its reply was lost, the grant is released in the background.
//
// Use FailOpen if two simultaneous calls cost only time, such as a cache fill or a
// report. Do not use FailOpen if such calls cost money, such as a charge or a booking.
func FailOpen() Option {
	return func(g *config) {
		g.is("FailOpen", forLock)
		g.open = true
	}
}

// Render replaces the response to a refused call. The default is Refusal.Status. The
// status of a KeyFunc's error is not replaced. The trailer with the pause before the
// next try is set before render is called. If render returns nil or OK, Render has no
// effect. Render panics if render is nil.
func Render(render func(ctx context.Context, r Refusal) *status.Status) Option {
	if render == nil {
		panic("grpcmw: Render: the function is nil")
	}
	return func(g *config) { g.render = render }
}

// Skip lets calls for which skip returns true run without the rule. On a stream of many
// messages from the client, req is nil, unless an outer rule has received the first
// message. If an idempotency key is optional, let skip check the call's metadata. Skip
// panics if skip is nil.
func Skip(skip func(ctx context.Context, fullMethod string, req any) bool) Option {
	if skip == nil {
		panic("grpcmw: Skip: the function is nil")
	}
	return func(g *config) { g.skip = skip }
}

// Key sets where Idempotent finds its key. The default is the metadata
// "idempotency-key" or "grpcgateway-idempotency-key". For requests with a request ID,
// as https://google.aip.dev/155 proposes, use Key(Field("request_id")). Key panics if
// key is nil.
func Key(key KeyFunc) Option {
	if key == nil {
		panic("grpcmw: Key: the key is nil")
	}
	return func(g *config) {
		g.is("Key", forIdempotent)
		g.id = key
	}
}

// Kept is a handler's response, for the function of KeepIf.
type Kept struct {
	// Method is the full method.
	Method string
	// Reply is the handler's reply. It has no meaning if the handler returned an error.
	// It must not be changed.
	Reply any
	// Status is the status that the client gets: OK if the handler returned a reply.
	Status *status.Status
	// Header and Trailer are copies of the metadata that the handler has set.
	Header, Trailer metadata.MD
	// Unreplayable reports that the response cannot be replayed. The reason is a size
	// above AnswerLimit, more than 64 KiB of metadata to store, or a reply of an
	// unregistered type. If KeepIf returns true, a later call is refused with
	// FAILED_PRECONDITION, and not run again.
	Unreplayable bool
	// ByDefault reports whether the response is stored without a KeepIf.
	ByDefault bool
}

// KeepIf sets which responses of a handler Idempotent stores and replays. By default it
// stores the responses that a repetition would get again: replies, and errors with the
// codes INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and
// OUT_OF_RANGE. Other responses are sent and not stored. A repetition of the call then
// runs the handler as a further attempt, unless once.AtMostOnce prevents it. A service
// whose replies report failures can use
//
//	grpcmw.KeepIf(func(k grpcmw.Kept) bool {
//		r, ok := k.Reply.(*pb.Receipt)
//		return k.ByDefault && !(ok && r.GetCode() == 503)
//	})
//
// An error without a status counts as UNKNOWN. A context's error counts as CANCELLED or
// DEADLINE_EXCEEDED. If work may be done before an error, store the error too:
//
//	grpcmw.KeepIf(func(grpcmw.Kept) bool { return true })
//
// Idempotent calls keep once for each response, when the handler has returned and
// before anything is stored. For a response that the handler commits, Commit calls keep
// instead. If keep panics, the panic continues and nothing is stored. With
// once.AtMostOnce the call then does not run again. keep must be safe for concurrent
// use.
//
// Some responses are never stored, and keep is not called for them:
//
//   - a response that the handler has marked by once.NotFinal
//   - an error that once.Withdraw has marked
//   - a refusal by an inner rule
//   - an error that matches once.ErrIndeterminate
//   - the error of the handler's own context, once that context is done
//
// With KeepIf, grpc.SetSendCompressor fails in the handler, so call it in an outer
// interceptor. KeepIf panics if keep is nil.
func KeepIf(keep func(k Kept) bool) Option {
	if keep == nil {
		panic("grpcmw: KeepIf: the function is nil")
	}
	return func(g *config) {
		g.is("KeepIf", forIdempotent)
		g.keepIf = keep
	}
}

// KeepMetadata names headers and trailers of the handler. Idempotent stores them, and
// sets them again in a replay. By default Idempotent stores no metadata. Values of
// names that end in "-bin" can be any bytes. Several calls of KeepMetadata add up.
//
//	grpcmw.KeepMetadata("location", "x-http-code")
//
// Metadata of outer interceptors is not stored, because outer interceptors set it
// again. A response with more than 64 KiB of such metadata is not stored; see
// Kept.Unreplayable.
//
// With KeepMetadata, grpc.SetSendCompressor fails in the handler, so call it in an
// outer interceptor. KeepMetadata panics if there is no name, or if a name is not of
// the form [A-Za-z0-9._-]+. It also panics for metadata that describes the connection,
// the time or the caller, or that the kit sets, such as "grpc-*", "content-type",
// "date", "set-cookie" and "idempotent-replayed".
func KeepMetadata(names ...string) Option {
	if len(names) == 0 {
		panic("grpcmw: KeepMetadata: no name is given")
	}
	names = slices.Clone(names)
	for i, name := range names {
		if names[i] = strings.ToLower(name); !isKeepable(names[i]) {
			panic(fmt.Sprintf("grpcmw: KeepMetadata: %q is not a name, or is metadata of the connection, the moment, the caller or the kit", name))
		}
	}
	return func(g *config) {
		g.is("KeepMetadata", forIdempotent)
		g.metadata = append(slices.Clip(g.metadata), names...)
	}
}

// isDeterministic reports whether the same request would get the same response again.
// After UNAUTHENTICATED and PERMISSION_DENIED the caller's rights can change, and the
// next deployment can correct UNIMPLEMENTED. ABORTED, UNAVAILABLE and
// RESOURCE_EXHAUSTED ask for another try. The other codes report accidents.
func isDeterministic(s *status.Status) bool {
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// Fingerprint sets the parts that have to be the same in all requests under one key, in
// addition to the method. The default is the whole request. Fingerprint is for clients
// that change a repeated request, for example by including the time of sending:
//
//	grpcmw.Fingerprint(grpcmw.Join(grpcmw.Field("order"), grpcmw.Field("amount")))
//
// Other fields can differ unnoticed. If the function of returns "" or an error, the
// request is refused. Fingerprint panics if of is nil.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("grpcmw: Fingerprint: the function is nil")
	}
	return func(g *config) {
		g.is("Fingerprint", forIdempotent)
		g.fingerprint = of
	}
}

// AnswerLimit sets the maximum size of an encoded response that Idempotent stores, in
// bytes. The default is 256 KiB. A larger response that KeepIf accepts is sent. The
// same call is then refused with FAILED_PRECONDITION, and not run again. AnswerLimit
// panics if n is not positive.
func AnswerLimit(n int) Option {
	if n <= 0 {
		panic(fmt.Sprintf("grpcmw: AnswerLimit: %d is out of range (at least 1)", n))
	}
	return func(g *config) {
		g.is("AnswerLimit", forIdempotent)
		g.limit = n
	}
}

// CallName names an Idempotent in events, errors and responses, so that checkout and
// refund can be distinguished. The default is "grpc". The name is not part of a key: a
// key that is used under two names is one key. Stored responses are found under a new
// name too. CallName panics if name is not of the form [A-Za-z0-9._-]+ or has more than
// 64 bytes.
func CallName(name string) Option {
	if err := keys.CheckName(name); err != nil {
		panic("grpcmw: CallName: " + err.Error())
	}
	return func(g *config) {
		g.is("CallName", forIdempotent)
		g.callName = name
	}
}

// Detached lets handlers under Idempotent continue when the client disconnects or the
// call's deadline passes. A repeated call can then get the stored response. The context
// of such a handler is canceled only by the loss of the run's lease or of an outer
// lease, or by the closing of that lease's Locker. After the client has disconnected,
// the loss of an outer lease no longer cancels the context. So put Lock inside
// Idempotent. Nothing else stops a handler that hangs, so the handler needs its own
// time-outs.
func Detached() Option {
	return func(g *config) {
		g.is("Detached", forIdempotent)
		g.detached = true
	}
}

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
