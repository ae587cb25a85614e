package taskmw

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	// inLine limits the tasks of a key that wait in a worker's slot.
	inLine = 1
	// soonAtMost limits the tasks of a key that come back within a tick.
	soonAtMost = 64
	// rateAtMost limits an estimate: the tasks that a key can run in a period, computed
	// from the duration of its tasks. The count of tasks that have run in a period has
	// no such limit.
	rateAtMost = 16
	// laterAtLeast is the minimum number of tasks of a key that come back each second.
	laterAtLeast = 20
	// laterAtMost is the maximum pause. A long pause can leave a key unused. With a
	// short pause, many tasks come back while their key is still busy.
	laterAtMost = 30 * time.Second
)

// place is a key for which tasks can wait.
type place struct {
	locker *core.Locker
	run    string // the name of an Idempotent, or "" for a Lock
	key    string
}

// crowds has a crowd for each key for which a task of one server waits, or was recently
// refused. It decides which task waits in a worker's slot, and when the other tasks
// come back.
type crowds struct {
	tick    time.Duration // interval at which the server takes up rescheduled tasks
	period  time.Duration // interval in which all due tasks come back
	waiting int           // the number of tasks that wait, for any key
	most    int           // the limit of waiting; tasks that must wait can exceed it

	mu    sync.Mutex
	of    map[place]*crowd
	swept time.Time
}

// crowd has the counts and times of one key's tasks.
type crowd struct {
	waiting int           // the number of tasks that wait in their slots
	refused time.Time     // the last time at which a task was refused
	next    time.Time     // the time at which the last task that is not in soon comes back
	hold    time.Duration // a moving average of the times for which tasks had the key; 0 if unknown

	period    int64                // the period of the fields below
	soon      map[string]time.Time // time of refusal, by ID, of tasks of the next tick
	ran, last int                  // number of runs in this period and in the one before
}

func newCrowds(tick time.Duration, slots int) *crowds {
	// asynq stores the time of a rescheduled task in whole seconds.
	return &crowds{tick: tick, period: max(tick, time.Second), most: max(slots/2, 1), of: map[place]*crowd{}}
}

// enter reports whether a task may wait, and returns the task's crowd. If must is set,
// the task waits. leave has to be called for a task that waits.
func (s *crowds) enter(places []place, task string, must bool) (c *crowd, wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	var full *crowd
	for _, p := range places {
		if c := s.of[p]; c != nil {
			delete(c.soon, task)
			if c.waiting >= inLine && full == nil {
				full = c
			}
		}
	}
	if !must && (full != nil || s.waiting >= s.most) {
		if full == nil {
			full = s.at(places[0])
		}
		full.refused = now
		return full, false
	}
	s.waiting++
	for _, p := range places {
		s.at(p).waiting++
	}
	return s.at(places[0]), true
}

func (s *crowds) at(p place) *crowd {
	c := s.of[p]
	if c == nil {
		c = &crowd{}
		s.of[p] = c
	}
	return c
}

// leave ends the wait of a task.
func (s *crowds) leave(places []place, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.waiting--
	for _, p := range places {
		c := s.of[p]
		c.waiting--
		if !granted {
			c.refused = now
		}
		if c.idle(now, s.period) {
			delete(s.of, p)
		}
	}
}

// held records the time for which a task had its keys.
func (s *crowds) held(places []place, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range places {
		c := s.of[p]
		if c == nil {
			continue
		}
		c.begin(now, s.period)
		c.ran++
		if c.hold == 0 {
			c.hold = d
		}
		c.hold = max((c.hold+d)/2, 1)
	}
}

// sweep removes idle crowds, at most once in two periods.
func (s *crowds) sweep(now time.Time) {
	if now.Sub(s.swept) < 2*s.period {
		return
	}
	s.swept = now
	for p, c := range s.of {
		if c.idle(now, s.period) {
			delete(s.of, p)
		}
	}
}

func (c *crowd) idle(now time.Time, period time.Duration) bool {
	return c.waiting == 0 && now.Sub(c.refused) > 2*period
}

// begin starts the period that contains the time now, unless that period has begun
// already.
func (c *crowd) begin(now time.Time, period time.Duration) {
	n := now.UnixNano() / int64(period)
	if n == c.period {
		return
	}
	c.last = c.ran
	if n > c.period+1 {
		c.last = 0
	}
	c.period, c.ran, c.soon = n, 0, nil
}

// pause returns the time until a refused task comes back; 0 means the next tick. About
// as many tasks as the key can still run in this period come back at the next tick. The
// other tasks are spread over the next periods.
func (s *crowds) pause(c *crowd, task string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	c.begin(now, s.period)
	c.refused = now
	rate := max(c.ran, c.last)
	if c.hold > 0 {
		rate = max(rate, min(int(s.period/c.hold), rateAtMost))
	}
	left := s.period - time.Duration(now.UnixNano()%int64(s.period))
	need := min(2+int(1.5*float64(rate)*float64(left)/float64(s.period)), soonAtMost)
	if len(c.soon) >= need {
		// Tasks that have not come back here by now were delivered to other servers.
		maps.DeleteFunc(c.soon, func(_ string, since time.Time) bool { return now.Sub(since) > 2*s.tick })
	}
	if len(c.soon) < need {
		if c.soon == nil {
			c.soon = map[string]time.Time{}
		}
		c.soon[task] = now
		return 0
	}
	if then := now.Add(left); c.next.Before(then) {
		c.next = then
	}
	c.next = c.next.Add(time.Second / time.Duration(laterAtLeast+2*rate))
	return min(c.next.Sub(now), laterAtMost/2+rand.N(laterAtMost/2))
}
