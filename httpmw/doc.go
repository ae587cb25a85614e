// Package httpmw runs gin routes under distributed locks, and replays the first
// response to repeated requests. Its package stdmw does the same for net/http.
//
//	pay := httpmw.Lock(locker, "order", httpmw.Param("id"))
//	router.POST("/orders/:id/pay", pay, handler)
//
// Requests to pay order 42 now run one at a time, on whichever replica they arrive. A
// second click while the first request is in progress gets 409, and the handler does
// not run for it. The handler finds its lease, which has the fencing token, by
// core.LeaseFromContext(c.Request.Context()). That context is canceled when the lease
// is lost:
//
//	func handler(c *gin.Context) {
//		ctx := c.Request.Context() // not c, which is never done
//		err := charge(ctx, c.Param("id"))
//
// A *gin.Context leads to the context of its request only if the engine has
// ContextWithFallback, which is off by default. Without it, a query to which the
// handler passes c continues after the loss of the lock. A locker.Do(c, …) for the same
// key waits for the lock of its own request. Without core.Wait and core.MaxHold, that
// call and the handler never return, even if the client disconnects. [Check] reports
// such an engine before it serves. If the lock is lost, the client still gets the
// handler's response, even a 200. So check the context before you commit.
//
// Code without HTTP locks the same order with core.Key:
//
//	locker.Do(ctx, core.Key("order", "42"), settle)
//
// # One response
//
// A client that got no response does not know whether its payment was made. With
// [Idempotent] it can repeat the request under the same Idempotency-Key, and gets the
// first response:
//
//	runs, err := once.New(locker)
//	router.POST("/orders/:id/pay", httpmw.Idempotent(runs, account), pay, handler)
//
// The header is defined by draft-ietf-httpapi-idempotency-key-header, an Internet-Draft
// that expired in April 2026 at its version 07. The header's value is a quoted string
// of 1 to 255 characters: visible ASCII and blanks, with a backslash before each quote
// and backslash. Most clients send the key without quotes. The same text with and
// without quotes is one key. A key without quotes contains no blanks, quotes, commas and
// semicolons. [Key] takes the key from another header, from the body or from another
// source. [Optional] lets requests without a key run. The clients of a service have to
// know these rules:
//
//   - A key is for one request, with the same method, path, query, media type and body.
//     It is valid for the caller that used it. It is known for 24 hours from the
//     response, or for the time of [once.Retain]. After that the request counts as a
//     new one.
//   - A 422 with the type idempotency-mismatch does not mean that the first request
//     failed. If the client sends the same work under a new key, the work may be done
//     twice. Instead the client repeats the first request unchanged, or finds out in
//     another way whether it was carried out.
//   - Responses with 2xx, 3xx and most 4xx are stored, with their body and with the
//     headers that [KeepHeaders] lists, but without cookies. A replay has the header
//     Idempotent-Replayed: true.
//   - Responses with 5xx, 401, 403, 407, 408, 409, 423, 425 and 429 are not stored. If
//     the client repeats the request with the same key, it runs again. [KeepIf] sets
//     another policy. A request whose run died also runs again, unless
//     [once.AtMostOnce] is set.
//   - A response that the handler has marked by [once.NotFinal] is not stored either.
//     An example is a 200 whose body reports that the work was not done.
//   - Three types of problem have the status 409. After idempotency-in-progress, and
//     after lock-busy of a Lock, the client repeats the request; both have a
//     Retry-After. idempotency-indeterminate has no Retry-After, and a repetition is
//     useless.
//   - After a handler's 400 or 422 for a mistake of the client, the key is used up. If
//     the handler has withdrawn the run, as described below, the corrected request can
//     use the key.
//   - If Idempotent itself refuses a request, nothing is stored. A refusal by an inner
//     Lock is not stored either, whatever its status: neither a 400 for a missing key
//     nor a 409 for a busy lock.
//
// Package httpretry is a transport for clients of net/http that follows these rules.
//
// A client that builds its request again for a repetition often writes it in another form.
// Idempotent ignores these differences: the boundary of a multipart body, the order of the fields
// of an urlencoded form and of the query, their escapes, the parameters of the media type, and
// chunking of the body. A multipart body of at most 1,000 parts is compared by the headers and the
// content of its parts, in their order. Any other body is compared byte by byte, including the
// order of JSON's fields, the blanks between them, and the time in the header of a gzip.
// [Fingerprint] names the fields to compare instead. Decompress bodies outside Idempotent.
//
// [once.AttemptFromContext] returns the number of the attempt to the handler. If the
// number is greater than 1, an earlier run of the request died or failed. The handler
// can then ask the bank before it charges, or send an idempotency key to the bank.
//
// A handler may not know whether it had its effect, for example because the bank timed
// out. Under once.AtMostOnce, such a handler calls c.Error with an error that matches
// once.ErrIndeterminate. The request does not run again, even if its response is not
// stored.
//
// A handler that refuses an invalid request before it has done anything can leave the
// key free for a corrected request. It responds with 400 or more, and calls c.Error
// with an error that [once.Withdraw] has marked:
//
//	_ = c.Error(once.Withdraw(err))
//	c.JSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
//
// Without Withdraw such a response is stored, and another request under the key is
// refused with 422. [KeepIf] is not a replacement: a run whose response is not stored
// may have had an effect, so only the same request may run again. A validation that is
// mounted outside Idempotent needs neither Withdraw nor KeepIf.
//
// Some responses depend on the errors in c.Errors or on a context:
//
//   - A response of 400 or more without a body is not stored if c.Errors has an error,
//     because an outer middleware may write the body from c.Errors. A response without
//     body and status is not stored either. To have the responses of such a middleware
//     stored, mount it inside Idempotent.
//   - A handler's response of 2xx or 3xx is stored, even if c.Errors has errors. The
//     exception is a 200 without a body, if c.Errors has the error of a context that is
//     done. Such a response means that the handler gave up.
//   - A handler that returns without a body and a status has not responded if a context
//     is done. That context can be the context of its run, the context of an inner
//     Lock, or a context that a time-out middleware has left in c.Request.
//
// A middleware that responds for a panicking handler, such as gin.Recovery, belongs
// outside Idempotent. Inside, it would turn a panic into a response of 500 like any
// other, and once.AtMostOnce would not notice the panic.
//
// # Services that call each other
//
// Within its scope, a key is valid for all services whose runs are in the same store.
// If a handler passes its client's Idempotency-Key on to another such service in the
// same scope, the key is already in progress there, and each call gets 409. [AnyCaller]
// is one scope for all services. Put the name of each service into its scope:
//
//	billing := func(*gin.Context) (string, error) { return "billing", nil }
//	httpmw.Idempotent(runs, httpmw.Join(billing, account))
//
// or store each service's runs under a separate prefix, by redisstore.WithPrefix. After
// a change of the scope or the prefix, earlier responses are not found, and their
// requests run again.
//
// # Keys
//
// [Param], [Query], [Header], [Form] and [JSON] take one value from the request,
// exactly as it was sent: "42" and "042" are two keys. If the handler accepts several
// spellings of the same ID, write a [KeyFunc] that returns the same key for all of them. A
// request is refused if its key is ambiguous, because the handler might read the other
// value. A key is ambiguous if its parameter, header or JSON field is repeated, if the
// names of two JSON fields differ only in case, or if JSON is sent under another
// content type. [Join] makes a key of several values.
//
// At start-up, [Check] reports a parameter that no route has. If Check cannot see such
// a mistake, the first request notifies the Locker's observer of core.Misused, once for
// each middleware.
//
// # Responses
//
// A request that may not run gets a problem after RFC 9457, as
// application/problem+json:
//
//	409  lock-busy         another request holds the lock
//	503  lock-timeout      the request timed out while it waited
//	400  key-invalid       the key is missing, ambiguous or not allowed
//	413  body-too-large    the body is longer than BodyLimit, so the key was not looked for
//	503  lock-unavailable  the store is down (see FailOpen), the Locker closed, or an outer lock lost
//	500  lock-failed       a KeyFunc failed, or the store does not support the lock
//
// and from Idempotent:
//
//	400  idempotency-key-invalid    the header, or the scope, is missing or not allowed
//	409  idempotency-in-progress    a request with this key is in progress; with Retry-After
//	422  idempotency-mismatch       the key was used with another request
//	410  idempotency-unreplayable   done, but the response was a stream, or too long to store
//	409  idempotency-indeterminate  a run died, and AtMostOnce rules out another
//	413  body-too-large             the body is longer than BodyLimit
//	503  idempotency-timeout        the request timed out while it waited
//	503  idempotency-unavailable    the store is unavailable, or the Locker closed
//	503  idempotency-uncommitted    as far as is known, the response of Commit was not committed
//	500  idempotency-failed         a KeyFunc failed, Commit was not allowed, or the stored response cannot be read
//
// Flushes are held back for at most a second. A response that is complete within this
// second, and no longer than AnswerLimit, is stored. After that second, and for
// text/event-stream, the response is a stream.
//
// The type of a problem is one of these words, appended to a base that [ProblemBase]
// sets. The default base is the address of PROBLEMS.md, which describes for each
// problem what a client does. If the base is an http or https URL, a Link header has
// the same address. A problem has two further members. "lock" is the name of the lock
// or call, if it has one. "retry_after_ms" is present if the client may repeat the
// request; the header Retry-After has the same time in whole seconds. No refusal
// contains a key, an owner or a token. [Render] replaces the form of refusals.
//
// A store counts as unavailable after three attempts. If the store hangs, the attempts
// take half of the TTL, at most six seconds.
//
// The reasons of refusals with status 500 and above are added to c.Errors. Contention
// is never added, because it needs no alert. If a client disconnects while its request
// waits, no response is written; the status for the access log is 499.
//
// # Order
//
// Mount a lock after middlewares that may refuse the request without the lock:
// recovery, logging, time-outs, authentication, rate limits. A time-out middleware
// whose handler continues after the time-out has to be outside Lock and Idempotent.
// Otherwise the lock is released while the handler runs.
//
// A handler outside Idempotent may read the body to its end only by ShouldBindBodyWith
// or as an urlencoded form. Otherwise Idempotent would find an empty body, and could
// not distinguish two requests. Idempotent notices this and responds with 500, unless
// the body is chunked.
//
// A middleware that replaces the body, for example to decompress or decrypt it, has to
// be outside Idempotent, and outside a Lock whose key is in the body. Otherwise it has
// to set gin.BodyBytesKey too. Lock and Idempotent store the body that they read under
// this key, and ShouldBindBodyWith prefers the stored body.
//
// A middleware that replaces the writer, for example to compress, tag or sign the
// response, can be outside or inside. Outside, its writer gets the same calls that the
// handler made, for the first response and for a replay. A replay has no flushes.
//
// Lock and Idempotent can be mounted in either order. With Idempotent outside, a
// repeated request gets its response without the lock, and a request that the Lock
// refuses does not count as an attempt. With Lock outside, a repeated request is busy
// while any other request has the lock. If one Idempotent is inside another, such as on
// a route and on its group, the two need different scopes. In the same scope, the inner
// one would find the request in progress.
//
// Mount Lock and Idempotent on routes rather than on the engine. On the engine they
// also get requests that match no route. Such requests without a key get gin's own 404
// or 405, and handlers set by NoRoute or NoMethod do not run for them.
package httpmw
