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

// Option is a setting of a transport. Those that are given a bad value panic.
type Option func(*config)

// config holds the options of one transport.
type config struct {
	hosts   []string // in lower case, as Hosts has them
	methods []string
	policy  retry.Policy
	timeout time.Duration // of one try; 0: none
	key     func(*http.Request) string
}

// defaultRetry tries for about ten seconds, as that of grpcmw.
var defaultRetry = retry.Policy{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5, Attempts: 8}

// Hosts names the hosts that honor idempotency keys. New requires it. Requests to other
// hosts pass by unchanged. "pay.example" is that host on the scheme's own port, and
// "pay.example:8443" is that port. A host counts without its subdomains. Several Hosts
// add up.
//
// Name a host only if it promises that two requests with one key are carried out once. On
// a host that ignores the header, a second try is a second payment. Hosts panics if there
// are none, or if one is not of the form host or host:port.
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
// PATCH, as stdmw.Idempotent has it. Requests of other methods pass by unchanged. Name
// only methods for which the hosts honor keys. It panics if there are none, or if one is
// empty or not in upper case.
func Methods(methods ...string) Option {
	if len(methods) == 0 || slices.ContainsFunc(methods, func(m string) bool { return m == "" || m != strings.ToUpper(m) }) {
		panic(fmt.Sprintf("httpretry: Methods: %q has no method, or one that is empty or not in upper case", methods))
	}
	methods = slices.Clone(methods)
	return func(c *config) { c.methods = methods }
}

// Retry sets how many tries a request has and the pauses between them. The default is 8
// tries within about ten seconds. A pause is never shorter than the Retry-After of the
// response. retry.None gives each request its key and one try. It panics if p is not
// valid.
func Retry(p retry.Policy) Option {
	if err := p.Validate(); err != nil {
		panic(fmt.Sprintf("httpretry: Retry: %v", err))
	}
	return func(c *config) { c.policy = p }
}

// TryTimeout limits each try to d, from its start until the header of its response has
// come. The default is no limit apart from the request's own deadline, which a hung server
// uses up with a single try. It panics if d is not positive.
func TryTimeout(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("httpretry: TryTimeout is %v, it must be positive", d))
	}
	return func(c *config) { c.timeout = d }
}

// Key sets how the key of a request is made if neither its header nor its context has one.
// By default it is random. With a key that is made of the caller's own order, a repetition
// after a crash has the same key. A request for which key returns "" is sent once, without
// a key. key must not read the body or change the request, and is called by many
// goroutines. Key panics if key is nil.
func Key(key func(r *http.Request) string) Option {
	if key == nil {
		panic("httpretry: Key: the function is nil")
	}
	return func(c *config) { c.key = key }
}
