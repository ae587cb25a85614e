package httpretry

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// Option is a setting of a transport. An option panics if its value is not allowed.
type Option func(*config)

// config holds the options of one transport.
type config struct {
	hosts   []string // in lower case, with a port if Hosts got a port
	methods []string
	policy  retry.Policy
	timeout time.Duration // limit of one try; 0: no limit
	key     func(*http.Request) string
}

// defaultRetry tries for about ten seconds.
var defaultRetry = retry.Policy{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5, Attempts: 8}

// Hosts names the hosts that honor idempotency keys. New requires Hosts. Requests to
// other hosts are sent unchanged. "pay.example" names the host on the scheme's default
// port, and "pay.example:8443" names that port. A name does not include subdomains.
// Several Hosts add up.
//
// Name a host only if it promises that two requests with one key are carried out once.
// On a host that ignores the header, a second try is a second payment. Hosts panics if
// there is no host, or if a host is not of the form host or host:port.
func Hosts(hosts ...string) Option {
	if len(hosts) == 0 {
		panic("httpretry: Hosts: there are none")
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		u, err := url.Parse("//" + h)
		if err != nil || u.Hostname() == "" || u.Host != h || strings.Contains(h, "*") {
			panic(fmt.Sprintf("httpretry: Hosts: %q is not of the form host or host:port", h))
		}
		names[i] = strings.ToLower(h)
	}
	return func(c *config) { c.hosts = append(c.hosts, names...) }
}

// Methods sets the methods that are covered, in upper case. The default is POST and
// PATCH, as in stdmw.Idempotent. Requests of other methods are sent unchanged. Name
// only methods for which the hosts honor keys. Methods panics if there is no method, or
// if a method is empty or not in upper case.
func Methods(methods ...string) Option {
	if len(methods) == 0 || slices.ContainsFunc(methods, func(m string) bool { return m == "" || m != strings.ToUpper(m) }) {
		panic(fmt.Sprintf("httpretry: Methods: %q has no method, or one that is empty or not in upper case", methods))
	}
	methods = slices.Clone(methods)
	return func(c *config) { c.methods = methods }
}

// Retry sets the number of tries of a request and the pauses between them. The default
// is 8 tries within about ten seconds. A pause is never shorter than the Retry-After of
// the response. With retry.None each request has a key and one try. Retry panics if p
// is not valid.
func Retry(p retry.Policy) Option {
	if err := p.Validate(); err != nil {
		panic(fmt.Sprintf("httpretry: Retry: %v", err))
	}
	return func(c *config) { c.policy = p }
}

// TryTimeout limits each try to d, from its start until the header of its response has
// arrived. If the transport reads the beginning of a body to judge the response, the
// limit includes that reading. By default only the request's own deadline limits a try,
// and a hung server uses up that deadline with a single try. TryTimeout panics if d is
// not positive.
func TryTimeout(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("httpretry: TryTimeout: %v s is out of range (more than 0)", d.Seconds()))
	}
	return func(c *config) { c.timeout = d }
}

// Key sets the function that makes the key of a request without a key in its header or
// context. By default the key is random. If the key is derived from the caller's own
// order, a repetition after a crash has the same key. A request for which key returns
// "" is sent once, without a key. key must be safe for concurrent use, and must not
// read the body or change the request. Key panics if key is nil.
func Key(key func(r *http.Request) string) Option {
	if key == nil {
		panic("httpretry: Key: the function is nil")
	}
	return func(c *config) { c.key = key }
}
