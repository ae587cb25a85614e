// Package httpretry sends an HTTP request again under one Idempotency-Key, for callers of
// an API that honors such keys:
//
//	client := &http.Client{Transport: httpretry.New(nil, httpretry.Hosts("pay.example"))}
//	ctx = httpretry.WithKey(ctx, order.Key) // stored with the order
//
// The key survives this process only if the caller derives it from its own order,
// stores it before the request is sent, and sets it by [WithKey], [Key] or the header.
// If the caller sets no key, the key is random. All tries of one RoundTrip have the
// same key, and the next RoundTrip has another key.
//
// The package imports only the standard library and package retry. It works with any
// server that carries out requests with the same key once. The server side of the kit
// is httpmw and stdmw; for gRPC see grpcmw.UnaryClientInterceptor.
//
// # Outcomes
//
// For a covered request with a key, a call of http.Client.Do has one of these outcomes:
//
//	*UnknownError            the request may have been carried out: repeat it later under its Key
//	another error            not carried out; see below for http.Client.Timeout and redirects
//	2xx                      the request was carried out
//	5xx                      unknown: repeat the request later under the same key
//	409, indeterminate       unknown, and the server does not run the request again
//	410, unreplayable        the request was carried out, and its response is not available
//	422, mismatch            the key was used with another request
//	425, 429                 not carried out yet: repeat the request later
//	another response         the server's answer
//
// A response that does not show the outcome of an earlier try is not returned. For
// example, the first try was lost, and the second try got a 401. The outcome is an
// [UnknownError], because the first try may have been a payment. Only 2xx and responses
// with Idempotent-Replayed: true show the outcome of an earlier try. A response with
// 5xx is returned, because it does not claim that the request was refused.
//
// http.Client follows redirects. After a redirect by another method, only a 2xx or a 5xx
// of the next page is returned. Any other outcome of the next page is an UnknownError,
// except another redirect. A 2xx is then the answer of the next page, for example of a
// login page. An error of http.Client itself, such as too many redirects, is not an
// UnknownError, although the request may have been carried out. So use CheckRedirect to
// return http.ErrUseLastResponse, unless the server redirects only to the result. A
// redirect is refused if it repeats a covered request at a host that Hosts does not
// name.
//
// The caller reads the body of a response. If the body ends early, Read returns an
// UnknownError. The same request under the same key then gets the whole response.
//
// Limit a request by the deadline of its context. http.Client.Timeout works too, but
// its error hides the UnknownError of a try that hangs. With http.Client.Timeout, treat
// every error as an unknown outcome.
//
// # What is never tried again
//
//   - A request whose response has a status other than 408, 409, 425, 429, 502, 503 or
//     504.
//   - A request whose response is 409, unless its problem type ends in
//     idempotency-in-progress or lock-busy, the two types of the kit that ask for a
//     repetition. Other types can be a final answer, or report that the outcome stays
//     unknown.
//   - A request whose body cannot be sent a second time, because it has no GetBody.
//     http.NewRequest sets GetBody for bytes.Buffer, bytes.Reader and strings.Reader.
//   - A request whose method is not covered: by default any method other than POST and
//     PATCH, see [Methods].
//   - A request to a host that [Hosts] does not name. Such a request does not get a key
//     either, because net/http itself repeats a request that has a key.
//
// A server that ignores the key treats a second try as a second payment. So name only
// hosts that promise to honor keys. A key is safe only for as long as the host stores
// its response. stdmw stores responses for 24 hours by default.
//
// # Other clients that try again
//
// If a client above this transport tries again, each of its tries is a separate
// RoundTrip with another random key. Each try would then be another payment. Such
// clients are github.com/hashicorp/go-retryablehttp, github.com/go-resty/resty with
// SetRetryCount, and the SDKs of many providers. Use one of these settings:
//
//   - The caller sets the key: by [WithKey] in the context of the request, by [Key], or
//     in the header. All tries of the client and of this transport then have that key.
//   - The tries of the other client are turned off: RetryMax = 0, SetRetryCount(0).
//   - The other client is below this transport:
//     New(&retryablehttp.RoundTripper{Client: c}, Hosts(…), Retry(retry.None)). The
//     transport sets the key once, and all tries of the other client have that key.
//
// net/http, below this transport, also repeats a request with an Idempotency-Key under
// the same key, if a kept-alive connection breaks before the response. Neither [Retry]
// nor [UnknownError] counts that repetition. But a repetition by net/http leaves the
// outcome open, like another try. It is noticed in any base that sends requests by
// net/http under the context of the request.
//
// # What it does not promise
//
//   - A response. After an UnknownError only the server knows whether the request was
//     carried out. Repeat the request later under the same key, or ask in another way.
//   - One execution if two keys are used, or if the server ignores keys. Only the
//     server can promise one execution, for as long as it stores the response.
//   - A key that survives a crash of this process, unless the caller stores it.
//   - One execution after the server has restored an older backup of its responses.
package httpretry
