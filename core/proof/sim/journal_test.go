package sim_test

import (
	"sync"
	"time"
)

// hold is a stretch of time in which somebody relied on a key.
type hold struct {
	key    string
	client int
	owner  string
	nested bool
	weight int64
	limit  int64
	token  uint64
	asked  time.Duration // when the store was asked the question that it granted
	from   time.Duration // when Acquire returned
	until  time.Duration // when Release was called, or the lease's context ended
	freed  time.Duration // when Release returned
}

// write is one that a register accepted.
type write struct {
	by *hold
	at time.Duration
}

// register is a resource that refuses older tokens than it has seen.
type register struct {
	highest  uint64
	accepted []write
	refused  int
}

// wait is an Acquire that returned, with a lease or without.
type wait struct {
	key         string
	from, until time.Duration
	granted     bool
	outcome     string
}

// answer is what a Do came to.
type answer struct {
	key         string
	from, until time.Duration
	value       string // of one that succeeded
	ok          bool
}

// work is a stretch in which the fn of a Do ran under a context that had not
// ended.
type work struct {
	key         string
	called      time.Duration // when Do was
	from, until time.Duration
}

// journal is what the run's oracles judge.
type journal struct {
	now func() time.Duration

	mu        sync.Mutex
	holds     []*hold
	registers map[string]*register
	waits     []wait
	answers   []answer
	works     []*work
	wipes     []time.Duration
	asked     map[string]time.Duration // by lease and key: the question that was granted
	placed    map[string]time.Duration // by lease and key: the last question that left it waiting
	ended     map[string]time.Duration // by lease: when Release was called
	late      int                      // extensions of a lease after that
	calls     map[string]int           // of the stores, by outcome
	history   []call                   // the same one by one, if it is kept
	keep      bool
	left      []string // what was still there when all was over
	stuck     []string
}

func newJournal(now func() time.Duration) *journal {
	return &journal{
		now: now, registers: make(map[string]*register), asked: make(map[string]time.Duration),
		placed: make(map[string]time.Duration), ended: make(map[string]time.Duration), calls: make(map[string]int),
	}
}

// begin notes a hold, which lasts until end.
func (j *journal) begin(h *hold) *hold {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.from, h.until, h.freed = j.now(), -1, -1
	j.holds = append(j.holds, h)
	return h
}

// end notes that nobody relies on h any more, if nobody has before.
func (j *journal) end(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.until < 0 {
		h.until = j.now()
	}
}

// free notes that h's release has returned.
func (j *journal) free(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.freed = j.now()
}

// write has h write to the key's register.
func (j *journal) write(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.registers[h.key]
	if r == nil {
		r = &register{}
		j.registers[h.key] = r
	}
	if h.token < r.highest {
		r.refused++
		return
	}
	r.highest = h.token
	r.accepted = append(r.accepted, write{h, j.now()})
}

// wiped notes that the server is empty.
func (j *journal) wiped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wipes = append(j.wipes, j.now())
}

// lostAt is when the server forgot what it was asked for at the given time, -1
// if it did not. What was under way at that moment may have been forgotten.
func (j *journal) lostAt(asked time.Duration) time.Duration {
	for _, w := range j.wipes {
		if w >= asked {
			return w
		}
	}
	return -1
}
