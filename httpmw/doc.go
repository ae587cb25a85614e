// Package httpmw runs gin routes under distributed locks, and replays the first
// response to repeated requests. Its package stdmw does the same for net/http.
//
//	pay := httpmw.Lock(locker, "order", httpmw.Param("id"))
//	router.POST("/orders/:id/pay", pay, handler)
//
// Requests to pay order 42 now run one at a time, on whichever replica they arrive. A
// second click while the first is in progress gets 409 and does not run. The handler
// finds its lease, and the fencing token, by
// core.LeaseFromContext(c.Request.Context()). That context is canceled when the lease
// is lost:
//
//	func handler(c *gin.Context) {
//		ctx := c.Request.Context() // not c, which is never done by itself
//		err := charge(ctx, c.Param("id"))
//
// gin's own context leads to the context of its request only if the engine has
// ContextWithFallback, which is off by default. Without it a query that is given c runs
// on after the loss of the lock, and locker.Do(c, …) for the same key waits for itself.
// [Check] reports such an engine before it serves. The client still gets the handler's
// response after a loss, even a 200: check the context before you commit.
//
// Code outside of HTTP locks the same thing with core.Key:
//
//	locker.Do(ctx, core.Key("order", "42"), settle)
//
// # One response
//
// A client that got no response does not know whether its payment was made. With
// [Idempotent] it can ask again, under the same Idempotency-Key, and gets the first
// response:
//
//	runs, err := once.New(locker)
//	router.POST("/orders/:id/pay", httpmw.Idempotent(runs, account), pay, handler)
//
// The header is that of draft-ietf-httpapi-idempotency-key-header, an Internet-Draft that
// expired in April 2026 at its version 07. Its value is a quoted string of 1 to 255
// characters, visible ASCII and blanks, with a backslash before a quote and a backslash.
// Most clients send the key without quotes, which is the same key. A key without quotes
// has no blank, quote, comma or semicolon in it. [Key] takes the key from another header,
// from the body or from elsewhere, and [Optional] lets requests without one run. The
// clients of a service have to know:
//
//   - A key is for one request: same method, path, query, media type and body. It
//     counts for the caller that used it. It lasts for 24 hours from the response, or
//     as [once.Retain] says; after that the request is a new one.
//   - 422 does not say that the first request failed. A client that then sends the
//     same work under a new key may have it done twice. It repeats the first request
//     unchanged, or finds out by another way whether that was carried out.
//   - Responses of 2xx, 3xx and of most 4xx are stored, with their body and the
//     headers that [KeepHeaders] lists, never cookies. They are replayed with
//     Idempotent-Replayed: true.
//   - 5xx, 401, 403, 407, 408, 409, 423, 425 and 429 are not stored: ask again with
//     the same key, and the request runs again. [KeepIf] sets another policy. The same
//     goes for a run that died, unless [once.AtMostOnce] rules that out.
//   - A response that the handler has marked by [once.NotFinal] is not stored either:
//     a 200 that says in its body that the work was not done.
//   - A 409 has two types. idempotency-in-progress has a Retry-After: ask again. After
//     idempotency-indeterminate, asking again is of no use.
//   - After a 400 or 422 that names a mistake of the client, the key is used up, unless
//     the handler has withdrawn the run, as below: then the corrected request can have it.
//   - Nothing is stored of a request that Idempotent refused, as below. Of the
//     refusals of an inner Lock, a missing key is stored, as its status says, and a
//     busy lock never is.
//
// Package httpretry is a client of net/http that keeps to this.
//
// A client that makes a request anew for a retry often writes it in another way. These
// differences do not count: the boundary of a multipart body, the order of the fields
// of an urlencoded form and of the query, how they are escaped, the parameters of the
// media type, and whether the body is chunked. A multipart body of at most 1,000 parts
// counts by the headers and the content of its parts, in their order. Of any other body
// each byte counts: the order and the blanks of JSON's fields, and the time in the
// header of a gzip.
// [Fingerprint] names the fields that count instead. Decompress outside of Idempotent.
//
// A handler that runs again because an earlier run died or failed finds the attempt by
// [once.AttemptFromContext]. It can ask the bank before it charges, or use an idempotency
// key of its own there.
//
// Under once.AtMostOnce, a handler that does not know whether it had its effect,
// because the bank timed out, says so by c.Error with an error that matches
// once.ErrIndeterminate. If its response is not one that is stored, the request is not
// run again.
//
// A handler that refuses a request as not valid, before it has done anything, can leave
// the key free for a corrected request. It responds with 400 or more, and says so by
// c.Error with an error that [once.Withdraw] has marked:
//
//	_ = c.Error(once.Withdraw(err))
//	c.JSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
//
// Without it such a response is stored, and another request under the key is refused
// with 422. [KeepIf] does not suffice: a run that is not stored may have had an effect,
// so only the same request is run again. A validation that is mounted outside needs
// neither.
//
// Some responses depend on the errors in c.Errors or on a context:
//
//   - A response of 400 or more without a body, beside an error in c.Errors, is not
//     stored: an outer middleware may write the body from c.Errors. Neither is a
//     response without body and status. Mount such a middleware inside to have its
//     responses stored.
//   - A response of 2xx or 3xx that the handler gave is stored, even with errors
//     beside it. The exception is a bare 200 beside the error of a context that is
//     done, which says that the handler gave up.
//   - A handler has not responded if it returns without a response, not even a status,
//     because a context is done: that of its run, of an inner Lock, or one that a
//     time-out left in c.Request.
//
// A middleware that responds for a handler that panics, such as gin.Recovery, belongs
// outside. Inside, a panic would be a response of 500 like any other, and
// once.AtMostOnce would not notice it.
//
// # Services that call each other
//
// A key counts within its scope for all services whose runs are in the same store. A
// handler that passes its client's Idempotency-Key on to another such service, in the
// same scope, finds itself in progress there: 409 each time. [AnyCaller] is one scope
// for all services. Let each service put its own name into its scope:
//
//	billing := func(*gin.Context) (string, error) { return "billing", nil }
//	httpmw.Idempotent(runs, httpmw.Join(billing, account))
//
// or store its runs under a prefix of its own, by redisstore.WithPrefix. A service that
// already has responses begins anew when its scope changes.
//
// # Keys
//
// [Param], [Query], [Header], [Form] and [JSON] take one value from the request, exactly as
// it was sent: "42" and "042" are two keys. Where the handler takes several spellings
// for the same thing, write a [KeyFunc] that brings them to one. A request is refused
// if its key is ambiguous, because the handler might read the other value: repeated
// parameters, headers and JSON fields, JSON fields that differ in case only, JSON sent
// under another content type. [Join] makes a key of several values.
//
// [Check] reports a parameter that no route has at start-up. For what Check cannot see, the
// Locker's observer is notified of core.Misused at the first request, once for a
// middleware.
//
// # Responses
//
// A request that may not run gets a problem of RFC 9457, as application/problem+json:
//
//	409  lock-busy         another request holds the lock
//	503  lock-timeout      the request timed out while it waited
//	400  key-invalid       the key is missing, ambiguous or not allowed
//	413  body-too-large    the body is longer than BodyLimit, so the key was not looked for
//	503  lock-unavailable  the store is down (see FailOpen), the Locker closed, or an outer lock was lost
//	500  lock-failed       a KeyFunc failed, or the options do not fit together
//
// and from Idempotent:
//
//	400  idempotency-key-invalid    the header, or the scope, is missing or not allowed
//	409  idempotency-in-progress    a request of this key is in progress; with Retry-After
//	422  idempotency-mismatch       the key was used with another request
//	410  idempotency-unreplayable   done, but the response was a stream, or too long to store
//	409  idempotency-indeterminate  a run died, and AtMostOnce rules out another
//	413  body-too-large             the body is longer than BodyLimit
//	503  idempotency-timeout        the request timed out while it waited
//	503  idempotency-unavailable    the store is down, or the Locker closed
//	503  idempotency-uncommitted    the response was not committed by Commit, as far as is known
//	500  idempotency-failed         a KeyFunc failed, or the stored response cannot be read
//
// A flush is held back for at most a second. A response that is complete by then and no
// longer than AnswerLimit is stored. After that, and for text/event-stream, it is a
// stream.
//
// The type is this word behind a base that [ProblemBase] sets. The default base is that
// of PROBLEMS.md, which says what a client does about each. A header Link leads there
// too, if the base is of the web. Further members are "lock", the static name if there
// is one, and "retry_after_ms" where it makes sense to ask again, with the header
// Retry-After in whole seconds. No refusal contains a key, an owner or a token.
// [Render] replaces the form of refusals.
//
// A store counts as down after three attempts. One that hangs can take three times a
// sixth of the TTL for that, at most six seconds.
//
// Refusals of 500 and above are added to c.Errors. Contention never is, because it is
// no reason for an alert. A client that went away while its request waited gets no
// response; its status is 499 for the access log.
//
// # Order
//
// Mount a lock after what may refuse the request without it: recovery, logging,
// time-outs, authentication, rate limits. A time-out middleware that lets its handler
// run on has to be outside; otherwise the lock is released too early.
//
// A handler outside of Idempotent may read the body to its end only by
// ShouldBindBodyWith or as an urlencoded form. Otherwise Idempotent could not
// distinguish two requests. It responds with 500 then, but cannot notice it if the body
// is chunked.
//
// A middleware that replaces the body, by decompressing or decrypting it, has to be
// outside of Idempotent and of a Lock whose key is in the body, or has to set
// gin.BodyBytesKey too. Lock and Idempotent leave the body that they read there, and
// ShouldBindBodyWith prefers it.
//
// A middleware that replaces the writer, by compressing, tagging or signing, can be
// outside or inside. Outside, it gets the calls that the handler made, for the first
// response and for a replay; a replay has no flushes.
//
// Lock and Idempotent work in both orders. With Idempotent outside, a repeated request
// gets its response without the lock, and a request that the Lock refuses is no
// attempt. With Lock outside, a repeated request is busy while any other request has
// the lock. One Idempotent inside another, as on a group and on its route, needs
// another scope: with the same, the request finds itself in progress.
//
// Mount both on routes rather than on the engine. On the engine they also see requests
// that match no route. If those have no key they get gin's own 404 or 405, and handlers
// set by NoRoute or NoMethod do not run for them.
package httpmw
