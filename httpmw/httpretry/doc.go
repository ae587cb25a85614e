// Package httpretry sends an HTTP request again under one Idempotency-Key, for callers of
// an API that honors such keys:
//
//	client := &http.Client{Transport: httpretry.New(nil, httpretry.Hosts("pay.example"))}
//	ctx = httpretry.WithKey(ctx, order.Key) // stored with the order
//
// The key survives this process only if the caller makes it of its own order and stores it
// before the request is sent, by [WithKey], [Key] or the header itself. Otherwise it is
// random: all tries of one RoundTrip have it, and the next RoundTrip has another one.
//
// It needs nothing but net/http and package retry, and works with any server that carries
// out one key once. The server side of the kit is httpmw and stdmw; for gRPC see
// grpcmw.UnaryClientInterceptor.
//
// # Outcomes
//
// What a call of http.Client.Do comes to:
//
//	*UnknownError            it may have been carried out: repeat it later under the same Key
//	another error            it was not carried out, see below for http.Client.Timeout
//	2xx                      it was carried out
//	500, 501, 502, 503, 504  not known: repeat it later under the same key
//	409, indeterminate       not known, and the server does not run it again
//	410, unreplayable        it was carried out, and its response is gone
//	422, mismatch            the key was used with another request
//	425, 429                 not yet: repeat it later
//	another response         the server's answer
//
// A response that says nothing of an earlier try is not returned. If the first try was
// lost and the second one was answered with 401, the outcome is an [UnknownError]: the
// first try may have been a payment. Only 2xx and responses with Idempotent-Replayed: true
// settle what an earlier try left open. A response with 5xx is returned, since nobody takes
// it for a no.
//
// The body of a response is read by the caller. If it ends early, Read returns an
// UnknownError, and the same request gets the whole response under the same key.
//
// Bound a request by the deadline of its context. http.Client.Timeout works too, but its
// error hides the UnknownError of a try that hangs: with it, take every error for unknown.
//
// # What is never tried again
//
//   - A response with another status than 408, 409, 425, 429, 502, 503 or 504.
//   - 409, unless its problem type ends in idempotency-in-progress or lock-busy, the two
//     of the kit that say "ask again". Others can be an answer, or say that the outcome is
//     not known for good.
//   - A request whose body cannot be sent a second time, because it has no GetBody.
//     http.NewRequest sets GetBody for bytes.Buffer, bytes.Reader and strings.Reader.
//   - A request of another method than POST and PATCH, or than those of [Methods].
//   - A request to a host that [Hosts] does not name. It does not get a key either, since
//     net/http itself repeats a request that has one.
//
// A server that ignores the key takes a second try for a second payment. So name only hosts
// that promise to honor it, and only for as long as they store their responses, which
// stdmw does for 24 hours by default.
//
// # Other clients that try again
//
// A client above this transport that tries again makes each of its tries a RoundTrip of its
// own, and each of these gets another random key. That would be a second payment. Such
// clients are github.com/hashicorp/go-retryablehttp, github.com/go-resty/resty with
// SetRetryCount, and the SDKs of many providers. Have one of these:
//
//   - The key comes from the caller: by [WithKey] in the context of the request, by [Key],
//     or in its header. All tries of both have it then.
//   - Their tries are turned off: RetryMax = 0, SetRetryCount(0).
//   - They are below: New(&retryablehttp.RoundTripper{Client: c}, Hosts(…),
//     Retry(retry.None)). The key is set once, and they try again under it.
//
// net/http below sends a request that has an Idempotency-Key again by itself, under the
// same key, where a kept connection breaks before the response. Neither [Retry] nor
// [UnknownError] counts that, and a RoundTripper between the two does not see it.
//
// # What it does not promise
//
//   - An answer. After an UnknownError only the server knows whether the request was
//     carried out. Repeat it later under the same key, or ask in another way.
//   - One execution under two keys, or at a server that ignores keys. That a request is
//     carried out once is the server's promise, for as long as it stores responses.
//   - A key that survives a crash of this process, unless the caller stores it.
//   - That the server is as new as its keys. One that restored an older backup of its
//     responses carries a request out again.
package httpretry
