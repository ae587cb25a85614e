// Package httpmw runs gin routes under distributed locks, and replays the first
// response to repeated requests. Package stdmw does the same for net/http.
//
//	pay := httpmw.Lock(locker, "order", httpmw.Param("id"))
//	router.POST("/orders/:id/pay", pay, handler)
//
// Requests to pay order 42 now run one at a time, on whichever replica they arrive. A
// second click during the first request gets 409, and does not run the handler. The
// handler finds its lease, which has the fencing token, by
// core.LeaseFromContext(c.Request.Context()). That context is canceled when the lease
// is lost:
//
//	func handler(c *gin.Context) {
//		ctx := c.Request.Context() // not c, which is never done
//		err := charge(ctx, c.Param("id"))
//
// By default, a *gin.Context that is used as a context is never done and has no lease.
// The engine's ContextWithFallback changes that. Without ContextWithFallback, a query
// to which the handler passes c continues after the loss of the lock. A locker.Do(c, …)
// for the same key waits for the lock of its own request. Without core.Wait and
// core.MaxHold, that locker.Do and the handler then never return, even if the client
// disconnects. [Check] reports an engine without ContextWithFallback. If the lock is
// lost, the client still gets the handler's response, even a 200. So check the context
// before you commit.
//
// Code outside HTTP locks the same order with core.Key:
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
// without quotes is one key. A key without quotes cannot contain blanks, quotes, commas
// or semicolons. [Key] takes the key from another header, from the body or from another
// source. [Optional] lets requests without a key run. The clients of a service have to
// know these rules:
//
//   - A key is for one request: under the same key, the method, path, query, media type
//     and body must be the same. A key is valid for one caller, and for 24 hours from
//     the response or the time of [once.Retain]. A later request under the key counts
//     as a new request.
//   - A 422 with the type idempotency-mismatch does not mean that the first request
//     failed. If the client sends the same work under a new key, the work may be done
//     twice. Instead the client repeats the first request unchanged, or finds out in
//     another way whether that request was carried out.
//   - Responses with 2xx, 3xx and most 4xx are stored, with their body and with the
//     headers that [KeepHeaders] lists, but without cookies. A replay has the header
//     Idempotent-Replayed: true.
//   - Responses with 5xx, 401, 403, 407, 408, 409, 423, 425, 429 and 499 are not stored.
//     If the client repeats the request with the same key, the handler runs again.
//     [KeepIf] sets another policy. A request whose run died is also run again, unless
//     [once.AtMostOnce] is set.
//   - A response that the handler has marked by [once.NotFinal] is not stored either.
//     An example is a 200 whose body reports that the work was not done.
//   - Three types of problem have the status 409. After idempotency-in-progress and
//     lock-busy, the client repeats the request. These two types have a Retry-After.
//     After idempotency-indeterminate, which has no Retry-After, a repetition is
//     useless.
//   - After a handler's 400 or 422 for a mistake of the client, the key is used up. If
//     the handler has withdrawn the run, as described below, the corrected request can
//     use the key.
//   - If Idempotent itself refuses a request, nothing is stored. A refusal by an inner
//     Lock is not stored either, whatever its status. If a handler replaces that
//     refusal by a response of another status, that response is the result of the run.
//     It is not stored if the refusal has no body, such as the status 499 for a client
//     that has left. A refusal to a writer with a header map of its own does not count.
//
// Package httpretry has a transport for net/http clients that follows these rules.
//
// A client that builds its request again often writes the same content in another form.
// Idempotent ignores some differences: the boundary of a multipart body, the escapes
// and the order of differently named fields in a URL-encoded form and in the query, the
// parameters of the media type, and chunking of the body. A multipart body of at most
// 1,000 parts is compared by the headers and the content of its parts, in their order.
// Any other body, except a URL-encoded form, is compared byte by byte. So another order
// of JSON fields, other blanks, or another time in a gzip header make another request.
// [Fingerprint] names the fields to compare instead. A middleware that decompresses
// bodies belongs outside Idempotent.
//
// In a handler, [once.AttemptFromContext] returns the number of the attempt. A number
// greater than 1 means that an earlier run of the request began and stored no response.
// The handler can then ask the bank before it charges, or send an idempotency key to
// the bank.
//
// Sometimes a handler cannot know whether it had its effect, for example because the
// bank timed out. Under once.AtMostOnce, such a handler calls c.Error with an error
// that matches once.ErrIndeterminate. The request then does not run again, even if its
// response is not stored.
//
// A handler may refuse an invalid request before it has done anything. It can then
// leave the key free for a corrected request. For that it responds with 400 or more,
// and calls c.Error with an error that [once.Withdraw] has marked:
//
//	_ = c.Error(once.Withdraw(err))
//	c.JSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
//
// Without Withdraw such a response is stored, and another request under the key is
// refused with 422. [KeepIf] cannot replace Withdraw. A run without a stored response
// may have had an effect. So under its key only the same request can run again. A
// validation that is mounted outside Idempotent needs neither Withdraw nor KeepIf.
//
// The errors in c.Errors and the state of a context affect which responses are stored:
//
//   - If c.Errors has an error, two kinds of responses are not stored: a response of
//     400 or more without a body, and a response without body and status. An outer
//     middleware may write the body from c.Errors. To have the responses of such a
//     middleware stored, mount the middleware inside Idempotent.
//   - A handler's response of 2xx or 3xx is stored, even if c.Errors has errors. The
//     exception is a 200 without a body, if c.Errors has the error of a context that is
//     done, because the handler has given up.
//   - If a handler returns without body and status after one of these contexts is done,
//     nothing is stored: the context of the run, the context of an inner Lock, or a
//     context that a time-out middleware has left in c.Request.
//
// A middleware that responds for a panicking handler, such as gin.Recovery, belongs
// outside Idempotent. Inside, such a middleware would turn the panic into an ordinary
// 500, and once.AtMostOnce would not notice the panic.
//
// # Services that call each other
//
// Within its scope, a key is valid for all services whose runs are in the same store. A
// handler may pass its client's Idempotency-Key on to another such service in the same
// scope. Each call then gets 409, because the key is in progress. [AnyCaller] is one
// scope for all services. So put the name of each service into its scope:
//
//	billing := func(*gin.Context) (string, error) { return "billing", nil }
//	httpmw.Idempotent(runs, httpmw.Join(billing, account))
//
// or store each service's runs under a separate prefix, by redisstore.WithPrefix. After
// a change of the scope or the prefix, earlier responses are not found, and a repeated
// request runs again.
//
// # Keys
//
// [Param], [Query], [Header], [Form] and [JSON] take one value from the request, and do
// not normalize it. For example, "42" and "042" are two keys. For an ID with several
// accepted spellings, write a [KeyFunc] that returns the same key for all of them. A
// request with an ambiguous key is refused, because the handler might read another
// value. A key is ambiguous if its parameter, header, form field or JSON field is
// repeated. A JSON field also counts as repeated if another field's name differs only
// in case. A key is also ambiguous if JSON is sent under another content type. [Join]
// makes a key of several values.
//
// At start-up, [Check] reports a parameter that no route has. If Check cannot see such
// a mistake, the first request notifies the Locker's observer of core.Misused, once for
// each middleware.
//
// # Responses
//
// A refused request gets a problem in the format of RFC 9457, as
// application/problem+json:
//
//	409  lock-busy         another request holds the lock
//	503  lock-timeout      the request timed out while it waited
//	400  key-invalid       the key is missing, ambiguous or not allowed
//	413  body-too-large    the body is longer than BodyLimit, so the key was not looked for
//	503  lock-unavailable  store unavailable (see FailOpen), Locker closed, or outer lock lost
//	500  lock-failed       a KeyFunc failed, or the store does not support the lock
//
// and from Idempotent:
//
//	400  idempotency-key-invalid    the header, or the scope, is missing or not allowed
//	409  idempotency-in-progress    a request with this key is in progress; with Retry-After
//	422  idempotency-mismatch       the key was used with another request
//	410  idempotency-unreplayable   carried out; the response was a stream, or too long to store
//	409  idempotency-indeterminate  a run's outcome is unknown, and AtMostOnce rules out another
//	413  body-too-large             the body is longer than BodyLimit
//	503  idempotency-timeout        the request timed out while it waited
//	503  idempotency-unavailable    store unavailable, Locker closed, or outer lock lost
//	503  idempotency-uncommitted    the response passed to Commit is not known to be committed
//	500  idempotency-failed         a KeyFunc failed, Commit misused, or a stored response broken
//
// Flushes are held back for at most a second after the first flush. A response that is
// complete by then, and no longer than AnswerLimit, is stored. A response that
// continues after this second, or that is a text/event-stream, is a stream.
//
// The type of a problem is one of these words, appended to a base that [ProblemBase]
// sets. The default base is the address of PROBLEMS.md, which describes the right
// reaction to each problem. If the base is an http or https URL, a Link header has the
// type too. A problem has two members that RFC 9457 does not define. "lock" is the name
// of the Lock, or the CallName of the Idempotent. "retry_after_ms" is present if the
// client can repeat the request. The header Retry-After has the same time in whole
// seconds. No refusal contains a key, an owner or a token. [Render] replaces the form
// of refusals.
//
// A store counts as unavailable after three attempts. If the store hangs, the attempts
// take half of the TTL, at most six seconds.
//
// The reasons of refusals with status 500 and above are added to c.Errors. Contention
// is never added, because it needs no alert. If a client disconnects while its request
// waits, no response is written. The status for the access log is then 499.
//
// # Order
//
// Mount Lock and Idempotent inside the middlewares for recovery, logging, time-outs,
// authentication and rate limits. A request that such a middleware refuses then needs
// no lock. A time-out middleware whose handler continues after the time-out has to be
// outside Lock and Idempotent. Otherwise the lock is released while the handler runs.
//
// Unless Fingerprint is set, a handler outside Idempotent must not read the body to its
// end. Two ways of reading are allowed: ShouldBindBodyWith, and a URL-encoded form.
// Otherwise Idempotent finds an empty body, and cannot distinguish two requests. It then
// responds with 500, unless the body was chunked: Idempotent cannot notice that a
// chunked body is gone.
//
// A middleware that replaces the body, for example to decompress or decrypt it, has to
// be outside Idempotent. It also has to be outside a Lock whose key is in the body.
// Otherwise the middleware has to set gin.BodyBytesKey too. Lock and Idempotent store
// the body that they read under this key, and ShouldBindBodyWith prefers the stored
// body.
//
// A middleware that replaces the writer, for example to compress, tag or sign the
// response, can be outside or inside. An outer writer gets the calls that the handler
// made, for the first response and for a replay. A replay has no flushes.
//
// Lock and Idempotent can be mounted in either order. With Idempotent outside, a
// repeated request gets its response without the lock. A refusal by the Lock then does
// not count as an attempt. With Lock outside, a repeated request gets 409 while any
// other request has the lock. If one Idempotent is inside another, such as on a route
// and on its group, the two Idempotents need different scopes. In the same scope, the
// inner Idempotent would find the request in progress.
//
// Mount Lock and Idempotent on routes rather than on the engine. On the engine, Lock
// and Idempotent also get requests that match no route. Such a request without a key
// gets gin's own 404 or 405, and the handlers of NoRoute or NoMethod do not run.
package httpmw
