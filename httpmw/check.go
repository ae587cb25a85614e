package httpmw

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// Check reports an engine whose middlewares cannot work. Call Check when e has all its
// routes, before e serves. It fails with core.ErrInvalid if no route of e has a path
// parameter that a Param names. The error lists all such parameters. It also fails if
// e.ContextWithFallback is false and the program has made a Lock or an Idempotent.
// gin's default is false. Work with c itself as its context is then not canceled when
// the lock is lost, and does not find the lease. If such work acquires the same key, it
// waits for the lock of its own request. Check does not see a later change of
// ContextWithFallback.
//
// gin does not report the middlewares of a route, so Check has these limits:
//
//   - Check does not report a name if any other route has that parameter. The first
//     request to the route that lacks the parameter notifies the observer of
//     core.Misused.
//   - Check considers each Param and each middleware that the program has made since
//     the last Check, mounted or not. A program with several engines has to check each
//     engine before it makes the routes of the next engine.
//   - Check does not know a Param that is made inside a running KeyFunc.
//
// A later Check of the same engine considers the names and middlewares of its earlier
// Checks, and those that are new since the last Check.
func Check(e *gin.Engine) error {
	if e == nil {
		return fmt.Errorf("httpmw: check: the engine is nil: %w", core.ErrInvalid)
	}
	there := make(map[string]bool)
	for _, route := range e.Routes() {
		for segment := range strings.SplitSeq(route.Path, "/") {
			if name, ok := parameter(segment); ok {
				there[name] = true
			}
		}
	}
	var problems []error
	for _, name := range asked.of(e) {
		switch {
		case name == anyMiddleware && !e.ContextWithFallback:
			problems = append(problems, fmt.Errorf("httpmw: check: the engine's ContextWithFallback is false: set it, or a *gin.Context used as a context.Context ignores the loss of a lock: %w", core.ErrInvalid))
		case name != anyMiddleware && !there[name]:
			problems = append(problems, fmt.Errorf("httpmw: check: no route has a path parameter %q: %w", name, core.ErrInvalid))
		}
	}
	return errors.Join(problems...)
}

// anyMiddleware is the entry in names that records that the program has made a
// middleware. No parameter has this empty name.
const anyMiddleware = ""

// parameter returns the name of the parameter in a segment of a route's path. In gin, a
// segment has at most one parameter, which extends to the segment's end.
func parameter(segment string) (name string, ok bool) {
	for i := 0; i < len(segment); i++ {
		switch segment[i] {
		case '\\':
			i++ // a colon that does not begin a parameter
		case ':', '*':
			return segment[i+1:], true
		}
	}
	return "", false
}

// asked holds the names that this program has passed to Param, and anyMiddleware.
var asked = names{fresh: make(map[string]bool), checked: make(map[weak.Pointer[gin.Engine]]map[string]bool)}

type names struct {
	mu      sync.Mutex
	fresh   map[string]bool // since the last Check
	checked map[weak.Pointer[gin.Engine]]map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh[name] = true
}

// of returns the names that are new since the last Check, and the names of earlier
// checks of e.
func (n *names) of(e *gin.Engine) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := weak.Make(e)
	if n.checked[at] == nil {
		n.checked[at] = make(map[string]bool)
		runtime.AddCleanup(e, n.forget, at)
	}
	maps.Copy(n.checked[at], n.fresh)
	clear(n.fresh)
	return slices.Sorted(maps.Keys(n.checked[at]))
}

func (n *names) forget(at weak.Pointer[gin.Engine]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.checked, at)
}
