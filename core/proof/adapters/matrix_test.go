package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// An outcome is what a request came to, as its client sees it.
type outcome string

const (
	done        outcome = "done"        // the handler's answer
	replayed    outcome = "replayed"    // the answer of an earlier run; a task: done without being run
	busy        outcome = "busy"        // and when to ask again
	gone        outcome = "gone"        // the client did not wait for it
	timeout     outcome = "timeout"     // its time was up
	crashed     outcome = "crashed"     // the service's answer to a panic
	unavailable outcome = "unavailable" // the handler did not run, since the store is down
	refused     outcome = "refused"     // the rule is wrong
)

// A cell says what an event comes to on one adapter. The first request is the one
// that the event hits; then it is sent again, to another replica.
type cell struct {
	adapter, event string
	first          outcome
	cause          error // of the end of the first handler's context; nil: it did not end
	lock           then  // under a Lock
	once           then  // under Idempotent and Lock
}

// ends tells whether the first handler's context may have ended with this cause.
func (c cell) ends(cause error) bool {
	if c.cause == deadline && (c.adapter == "unary" || c.adapter == "stream") && cause == canceled {
		return true // the client's clock was first, and it told the server
	}
	return errors.Is(cause, c.cause)
}

// then is what comes of a request that is sent again.
type then struct {
	effects int     // that there were before
	again   outcome // of the request
	total   int     // effects in the end
}

var (
	canceled = context.Canceled
	deadline = context.DeadlineExceeded
	lost     = core.ErrLost
	closed   = core.ErrClosed
)

// The table. asynq delivers a task again whose handler's context has ended, or
// that has panicked, so that there the first request goes on with a second run.
var table = []cell{
	{"gin", "disconnect", gone, canceled, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "disconnect", gone, canceled, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "disconnect", gone, canceled, then{1, done, 2}, then{}},
	{"task", "disconnect", done, canceled, then{2, done, 3}, then{1, replayed, 1}},

	{"gin", "deadline", timeout, deadline, then{1, done, 2}, then{1, done, 2}},
	{"unary", "deadline", timeout, deadline, then{1, done, 2}, then{1, done, 2}},
	{"stream", "deadline", timeout, deadline, then{1, done, 2}, then{}},
	{"task", "deadline", done, deadline, then{2, done, 3}, then{2, replayed, 2}},

	{"gin", "panic", crashed, nil, then{1, done, 2}, then{1, done, 2}},
	{"unary", "panic", crashed, nil, then{1, done, 2}, then{1, done, 2}},
	{"stream", "panic", crashed, nil, then{1, done, 2}, then{}},
	{"task", "panic", done, nil, then{2, done, 3}, then{2, replayed, 2}},

	// The effect is the successor's; that of the loser is refused.
	{"gin", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "lost lease", done, lost, then{1, done, 2}, then{}},
	{"task", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},

	// Two duplicates are sent away; as tasks, they are delivered again.
	{"gin", "duplicates", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "duplicates", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "duplicates", done, nil, then{1, done, 2}, then{}},
	{"task", "duplicates", done, nil, then{3, done, 4}, then{1, replayed, 1}},

	// Many requests of one order, one after the other.
	{"gin", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},
	{"unary", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},
	{"stream", "rush", done, nil, then{4, done, 5}, then{}},
	{"task", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},

	// There is no replay without Idempotent, which a stream cannot have.
	{"gin", "replay", done, nil, then{}, then{1, replayed, 1}},
	{"unary", "replay", done, nil, then{}, then{1, replayed, 1}},
	{"stream", "replay", refused, nil, then{}, then{0, refused, 0}},
	{"task", "replay", done, nil, then{}, then{1, replayed, 1}},

	{"gin", "restart", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "restart", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "restart", done, lost, then{1, done, 2}, then{}},
	{"task", "restart", done, lost, then{1, done, 2}, then{1, replayed, 1}},

	{"gin", "shutdown", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "shutdown", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "shutdown", done, nil, then{1, done, 2}, then{}},
	{"task", "shutdown", done, nil, then{1, done, 2}, then{1, replayed, 1}},

	// The time for the shutdown is over, and the locks are closed while the handler
	// runs. Its answer is kept all the same.
	{"gin", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "late shutdown", done, closed, then{1, done, 2}, then{}},
	{"task", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
}

// scenes play the events. Each returns what came of the first request.
var scenes = map[string]func(*stage) answer{
	"disconnect": disconnect, // hazard 47
	"deadline":   overtime,   // hazards 47 and 61
	"panic":      panics,     // hazard 50
	"lost lease": deleted,    // hazards 38 and 58
	"duplicates": duplicates,
	"rush":       rush,
	"replay":     replay,
	"restart":    restart, // hazards 30 and 58
	// hazard 49
	"shutdown":      shutdown,
	"late shutdown": shutdown,
}

// Every adapter under every fault: the answer of its client, how often the effect took
// place, what the handler is told, and the state of the key. Every second trial is
// under Idempotent as well, if the adapter has it. Each key must have an expiry, and
// in the end there must be none: hazards 25 and 51.
func TestAdapters(t *testing.T) {
	book := newBook(t)
	queue := testserver.StartRedis(t)
	for adapter, open := range fronts {
		server := testserver.StartRedis(t)
		for _, c := range table {
			if c.adapter != adapter {
				continue
			}
			for n := 1; n <= trials(); n++ {
				idempotent := c.lock == then{} || c.once != then{} && n%2 == 0
				t.Run(fmt.Sprintf("%s/%s/trial %d", adapter, c.event, n), func(t *testing.T) {
					t.Parallel()
					s := newStage(t, book, c, open, n, idempotent)
					s.server, s.queue = server, queue
					if c.event == "restart" {
						s.server = testserver.StartRedis(t)
					}
					s.run()
				})
			}
		}
	}
	if cells := len(fronts) * len(scenes); len(table) != cells {
		t.Errorf("the table has %d cells, want %d", len(table), cells)
	}
}
