package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// outcome is the result of a request as its client sees it.
type outcome string

const (
	done        outcome = "done"        // the handler's response
	replayed    outcome = "replayed"    // an earlier run's response; for a task: done without a run
	busy        outcome = "busy"        // the key is busy, and the response has a time for a retry
	gone        outcome = "gone"        // the client did not wait for the response
	timeout     outcome = "timeout"     // the request's timeout
	crashed     outcome = "crashed"     // the service's response to a panic
	unavailable outcome = "unavailable" // the handler did not run, because the store is unavailable
	refused     outcome = "refused"     // the rule is invalid
)

// cell has the expected effects of an event on one adapter. The event hits the first
// request. Then the same request is sent again, to another replica.
type cell struct {
	adapter, event string
	first          outcome
	cause          error // cause of the first handler's context; nil if the context was not done
	lock           then  // with Lock
	once           then  // with Idempotent and Lock
}

// ends reports whether the first handler's context may be done with this cause.
func (c cell) ends(cause error) bool {
	if c.cause == deadline && (c.adapter == "unary" || c.adapter == "stream") && cause == canceled {
		return true // the client's timeout expired first, and the client notified the server
	}
	return errors.Is(cause, c.cause)
}

// then is the expected result of a request that is sent again.
type then struct {
	effects int     // before the repeated request
	again   outcome // of the repeated request
	total   int     // at the end
}

var (
	canceled = context.Canceled
	deadline = context.DeadlineExceeded
	lost     = core.ErrLost
	closed   = core.ErrClosed
)

// table lists the cells. asynq delivers a task again if the task was canceled or timed
// out, or if its handler panicked. Such a task has a second run, unless Idempotent has
// stored its result.
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

	// The successor's effect is accepted, and the effect of the run that lost its lease
	// is refused.
	{"gin", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "lost lease", done, lost, then{1, done, 2}, then{}},
	{"task", "lost lease", done, lost, then{1, done, 2}, then{1, replayed, 1}},

	// Two duplicates are refused as busy. If they are tasks, they are delivered again.
	{"gin", "duplicates", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "duplicates", done, nil, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "duplicates", done, nil, then{1, done, 2}, then{}},
	{"task", "duplicates", done, nil, then{3, done, 4}, then{1, replayed, 1}},

	// Four requests for one order run one after the other.
	{"gin", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},
	{"unary", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},
	{"stream", "rush", done, nil, then{4, done, 5}, then{}},
	{"task", "rush", done, nil, then{4, done, 5}, then{4, replayed, 4}},

	// Without Idempotent there is no replay, and a stream cannot have Idempotent.
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

	// The time for the shutdown is over, and the locker is closed while the handler
	// runs. Nevertheless the response is stored.
	{"gin", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
	{"unary", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
	{"stream", "late shutdown", done, closed, then{1, done, 2}, then{}},
	{"task", "late shutdown", done, closed, then{1, done, 2}, then{1, replayed, 1}},
}

// scenes play the events. Each returns the answer to the first request.
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

// TestAdapters checks each cell of the table: the client's response, the number of
// effects, the cause in the handler's context, and the state of the key. Every second
// trial also uses Idempotent, if the adapter has it. Each trial of a replay uses
// Idempotent. Each key must have an expiry, and no key may be left at the end: hazards
// 25 and 51.
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
				t.Run(fmt.Sprintf("%s %s trial %d", adapter, c.event, n), func(t *testing.T) {
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
