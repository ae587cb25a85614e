// Package grpcmw runs gRPC methods under distributed locks, and makes them idempotent.
//
//	rules := grpcmw.Rules{
//		pb.Orders_Pay_FullMethodName:    {grpcmw.Lock(locks, "order", grpcmw.Field("order.id"))},
//		pb.Orders_Charge_FullMethodName: {grpcmw.Idempotent(runs, tenant)},
//	}
//	options := []grpc.ServerOption{
//		grpc.ChainUnaryInterceptor(authenticate), grpc.ChainStreamInterceptor(authenticateStream),
//	}
//	server := grpc.NewServer(append(options, grpcmw.ServerOptions(rules)...)...)
//	pb.RegisterOrdersServer(server, orders)
//	err := grpcmw.Audit(server, rules) // before Serve
//
// [Audit] fails if a method that may have side effects has no rule. It also fails if a
// rule written in Go names no method of the server. Such a typo would leave a method
// unguarded. [Check] finds only mistakes in the rules, not missing rules.
//
// Calls to pay order 42 now run one at a time, on whichever replica they arrive. The
// handler finds its lease, and the fencing token, by core.LeaseFromContext(ctx). When
// the lease is lost, ctx is canceled, but the client still gets the handler's response,
// even OK. So check ctx before you commit. Code outside gRPC takes the same lock with
// core.Key("order", "42").
//
// A repeated charge with the same idempotency key gets the first charge's reply. A
// method can have both rules, in either order. With Idempotent first, a repetition does
// not wait for the lock. A refusal by the lock then does not count as an attempt.
//
// # Rules in the .proto
//
// An option of a method in its .proto file can set the method's guard. [Annotated] makes
// rules from such guards, and package lockkitpb documents how protoc finds the option:
//
//	import "lockkit/v1/guard.proto";
//
//	rpc Charge(ChargeRequest) returns (Receipt) {
//	  option (lockkit.v1.guard) = { idempotent {} lock { name: "account" field: "account" } };
//	}
//	rpc Ping(PingRequest) returns (PingReply) {
//	  option (lockkit.v1.guard).none = true; // reviewed, and needs no guard
//	}
//
// The option is experimental: its number will change when a number is registered.
//
// # Keys
//
// [Field] takes the key from the request, by its descriptor. [Metadata] takes the key
// from the call's metadata. [Join] combines several values into one key. All of them
// use a value as it was sent: "42" and "042" are two keys. For a value with several
// accepted spellings, write a [KeyFunc] that returns the same key for all of them.
//
// # Responses
//
// A refused call gets a status:
//
//	ABORTED              LOCK_BUSY                  another call holds the lock
//	ABORTED              IDEMPOTENCY_IN_PROGRESS    the first call with this key is in progress
//	INVALID_ARGUMENT     KEY_INVALID                the key is missing, ambiguous or not allowed
//	FAILED_PRECONDITION  IDEMPOTENCY_KEY_REUSED     the key was used for another request
//	FAILED_PRECONDITION  IDEMPOTENCY_INDETERMINATE  the first call's outcome is unknown
//	FAILED_PRECONDITION  IDEMPOTENCY_UNREPLAYABLE   the first call's reply was not stored
//	UNAVAILABLE          LOCK_UNAVAILABLE           store or Locker unavailable, outer lock lost
//	DEADLINE_EXCEEDED    LOCK_TIMEOUT               timed out before the handler began
//	INTERNAL             LOCK_FAILED                a KeyFunc failed, or the rules are wrong
//
// A call that was canceled before the handler began gets CANCELLED with LOCK_TIMEOUT.
// After [Commit], LOCK_UNAVAILABLE can also mean that the reply is not known to be
// committed. IDEMPOTENCY_INDETERMINATE is for runs with once.AtMostOnce. [FailOpen] lets
// calls run despite an unavailable store. The second column is the reason in a
// google.rpc.ErrorInfo of the domain [Domain]. Its metadata has "method", and "lock"
// with the rule's static name. No refusal contains a key, an owner or a token. If a
// KeyFunc fails with a status, such as UNAUTHENTICATED, the call is refused with that
// status. [Render] replaces the form of refusals. Outer interceptors can match the
// error's reason: errors.Is(err, core.ErrBusy).
//
// # Trying again
//
// Refusals with ABORTED or UNAVAILABLE carry a google.rpc.RetryInfo and the trailer
// "grpc-retry-pushback-ms". Their pause is at most a second, and spread at random. If a
// repetition is useless, the trailer is -1. No header is sent, so the retry policy of
// grpc-go's service config works. That policy obeys the trailer, and repeats only calls
// that got no header. So an outer interceptor must not send a header.
//
// [UnaryClientInterceptor] gives each call one idempotency key for all its tries, and
// obeys these pauses.
//
// # Calls that join their caller's lock
//
// A handler under a lock may call another service that locks the same key. The other
// service then finds the key busy. If the client has [SendOwner] and the other
// service's Lock has [TakeOwner], the call joins its caller's hold instead. For streams
// use [StreamClientInterceptor].
//
// # Streams
//
// A stream acquires its lock before its handler begins, and holds the lock until the
// handler has returned. See [StreamServerInterceptor].
package grpcmw
