// Package httpmw puts gin routes under distributed locks.
//
//	pay := httpmw.Lock(locker, "order", httpmw.Param("id"))
//	router.POST("/orders/:id/pay", pay, handler)
//
// Requests to pay order 42 now run one at a time, on whichever replica they
// arrive. A second click while the first is being worked on is answered with
// 409 and does not run. The handler finds its lease, and the fencing token, by
// core.LeaseFromContext(c.Request.Context()); that context ends when the lease
// is lost. What the handler answers stands, whatever becomes of the lease.
//
// Code outside of HTTP locks the same thing with core.Key:
//
//	locker.Do(ctx, core.Key("order", "42"), settle)
//
// # Keys
//
// [Param], [Query], [Header], [Form] and [JSON] take one value from the request,
// exactly as it was sent: "42" and "042" are two keys. Where the handler takes
// several spellings for the same thing, write a [KeyFunc] that brings them to
// one. A request is refused where its key is ambiguous, because the handler
// might read the other value: repeated parameters, headers and JSON fields,
// JSON fields that differ in case only, JSON sent under another content type.
// [Join] makes a key of several values.
//
// # Answers
//
// A request that may not run is answered with a problem of RFC 9457, as
// application/problem+json:
//
//	409  lock-busy         another request holds the lock
//	503  lock-timeout      the request's time was up while it waited
//	400  key-invalid       the key is missing, ambiguous or not allowed
//	413  body-too-large    the body is longer than BodyLimit, so the key was not looked for
//	503  lock-unavailable  the store is down, the Locker closed, or an outer lock was lost
//	500  lock-failed       a KeyFunc failed, or the options do not fit together
//
// The type is this word behind a base that [ProblemBase] sets. Further members
// are "lock", the static name, and where it makes sense to ask again
// "retry_after_ms", with the header Retry-After in whole seconds. No answer
// has a key, an owner or a token in it. [Render] replaces how answers look.
//
// A store that is down is found to be so after three attempts; one that hangs can
// take three times a sixth of the TTL for that, at most six seconds.
//
// Answers of 500 and above are added to c.Errors, but never contention, which
// is nothing to wake anybody for. A client that went away while its request
// waited gets no answer; its status is 499 for the access log.
//
// # Order
//
// Mount a lock after what may refuse the request without it: recovery, logging,
// time-outs, authentication, rate limits. A time-out middleware that lets its
// handler run on has to be outside, or the lock is given back too early.
//
// Mount it on routes rather than on the engine. On the engine it also sees
// requests that match no route; if they have no key they get gin's own 404 or
// 405, and handlers set by NoRoute or NoMethod do not run for them.
package httpmw
