package histories_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// A history with fewer workers or events than these is not evidence.
const (
	workers       = 8
	leastCalls    = 10_000
	leastGrants   = 500
	leastToOthers = 30 // grants of each key to another holder than before
	leastUnknown  = 20
	leastBites    = 10
	leastBusy     = 1000            // busy answers that only the holder can explain
	leastFollow   = 50              // leases whose hold was passed on to them
	longest       = 4 * time.Minute // time limit of a history
)

var keys = []string{"k:1", "k:2", "k:3", "k:4"}

// scene is a server with its workers and their history.
type scene struct {
	t        *testing.T
	wiped    bool
	mistake  string
	server   *testserver.Redis
	replica  *testserver.Redis // set if the scene is wiped
	register *register
	history  *history
	workers  []*child
	started  int
}

func newScene(t *testing.T, wiped bool, mistake string) *scene {
	t.Helper()
	s := &scene{t: t, wiped: wiped, mistake: mistake, register: newRegister(t), history: &history{}}
	s.server = testserver.StartRedis(t)
	if wiped {
		s.replica = testserver.StartRedis(t)
		follow(s.replica, s.server)
	}
	s.workers = make([]*child, workers)
	for i := range s.workers {
		s.start(i)
	}
	return s
}

func (s *scene) start(i int) {
	s.started++
	var proxy *testserver.Proxy
	if old := s.workers[i]; old != nil {
		proxy = old.proxy
	} else {
		proxy = testserver.NewRedisProxy(s.t, s.server.Addr)
	}
	s.workers[i] = newChild(s.t, plan{
		Name: fmt.Sprintf("w%d", s.started), Addr: proxy.Addr, Register: s.register.Addr, Keys: keys, Lanes: 1 + i%2*4, Mistake: s.mistake,
	}, proxy, s.history)
}

func (s *scene) replace(name string) {
	s.start(slices.IndexFunc(s.workers, func(c *child) bool { return c.name == name }))
}

func (s *scene) finish() {
	s.t.Helper()
	for _, c := range s.workers {
		c.finish()
	}
	late := time.After(patience)
	for _, c := range s.workers {
		select {
		case <-c.gone:
		case <-late:
			s.t.Fatalf("%s did not end within %v", c.name, patience)
		}
	}
}

// count returns the number of histories of a kind: 1, or long with LONG=1.
func count(long int) int {
	if os.Getenv("LONG") == "1" {
		return long
	}
	return 1
}

func TestHistories(t *testing.T) {
	testserver.RequireRedis(t)
	for i := range count(150) {
		// The history of each key is a possible history of a lock.
		t.Run(fmt.Sprintf("nemesis run %d", i+1), func(t *testing.T) {
			t.Parallel()
			run(t, false)
		})
	}
	for i := range count(50) {
		// The register takes no stale write.
		t.Run(fmt.Sprintf("server that forgets run %d", i+1), func(t *testing.T) {
			t.Parallel()
			run(t, true)
		})
	}
}

// run creates and judges a history. If porcupine reaches no verdict in time, run saves
// the history and creates another history. A second history without a verdict fails the
// test.
func run(t *testing.T, wiped bool) {
	if decided(t, wiped, false) {
		return
	}
	decided(t, wiped, true)
}

// decided creates and judges a history. It returns false if porcupine reached no
// verdict. A missing verdict counts as a fault only for the last history.
func decided(t *testing.T, wiped, last bool) bool {
	seed := rand.Uint64()
	if text := os.Getenv("LOCKKIT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKKIT_SEED=%d", seed)
	s := newScene(t, wiped, "")
	n := &nemesis{scene: s, rand: rand.New(rand.NewPCG(seed, 0))}
	v := &verdict{wiped: wiped}
	for start := time.Now(); ; {
		n.act()
		if s.history.size() < leastCalls && time.Since(start) < longest {
			continue
		}
		if v.judge(s.history.read(n.deeds), s.register.all()); v.vacuous() == "" || time.Since(start) > longest {
			break
		}
	}
	s.finish()
	v.judge(s.history.read(n.deeds), s.register.all())
	v.porcupine()
	v.note(t, seed, s.server)
	t.Log(v)
	if why := v.vacuous(); why != "" {
		t.Errorf("test setup: %s", why)
	}
	undecided := v.linear == porcupine.Unknown
	for _, fault := range v.faults(last) {
		t.Error(fault)
	}
	if t.Failed() || undecided {
		v.save(t, seed, s, n.deeds)
	}
	return !undecided
}

type verdict struct {
	wiped                  bool
	calls, grants, unknown int
	// losses counts the leases that passed a hold on, and whose release reported the
	// loss of the hold.
	follows, losses         int // leases whose hold was passed on to them; see above
	others, bites, outcomes map[string]int
	wrong                   []string
	overlaps, tokens, stale []string
	passed                  []string
	late, refused           int // stale writes that arrived; all writes that were refused
	script                  *script
	linear                  porcupine.CheckResult
	info                    porcupine.LinearizationInfo
	checked                 bool
}

func (v *verdict) judge(r *record, writes []write) {
	tries := r.tries
	v.calls, v.unknown, v.follows, v.losses, v.wrong, v.outcomes = 0, 0, 0, 0, nil, make(map[string]int)
	for _, t := range tries {
		if t.Follows {
			v.follows++
		}
		if t.passed() && t.Released == "lost" {
			v.losses++
		}
		if t.Wrong != "" {
			v.wrong = append(v.wrong, fmt.Sprintf("%s: %s: %s", t.Key, t.Lease, t.Wrong))
		}
		v.outcomes[t.Outcome]++
		v.unknown += t.unknown()
		if v.calls++; t.Outcome == "ok" {
			v.calls++ // the release of the try
		}
	}
	v.grants, v.others, v.bites = len(granted(tries)), toOthers(tries), bit(r.deeds, tries)
	v.overlaps, v.tokens, v.passed = overlaps(tries), append(tokensBack(tries), tokensShared(r)...), passedWrongly(r.claims)
	v.stale, v.late = staleWrites(tries, writes, true), len(staleWrites(tries, writes, false))
	v.refused = 0
	for _, w := range writes {
		if !w.Taken {
			v.refused++
		}
	}
	v.script = r.operations()
}

func (v *verdict) porcupine() {
	v.linear, v.info = porcupine.CheckOperationsVerbose(model, v.script.all, patience)
	v.checked = true
}

// vacuous returns the reason why the history is not evidence, or "".
func (v *verdict) vacuous() string {
	var why []string
	for _, c := range []struct {
		what     string
		n, least int
	}{
		{"calls", v.calls, leastCalls}, {"grants", v.grants, leastGrants}, {"unknown outcomes", v.unknown, leastUnknown}, {"faults that bit", sum(v.bites), leastBites},
		{"busy answers that only the holder explains", v.script.busy, leastBusy}, {"leases whose hold was passed on to them", v.follows, leastFollow},
	} {
		if c.n < c.least {
			why = append(why, fmt.Sprintf("%d %s, want %d", c.n, c.what, c.least))
		}
	}
	for _, key := range keys {
		if v.others[key] < leastToOthers {
			why = append(why, fmt.Sprintf("%d grants of %s to another holder, want %d", v.others[key], key, leastToOthers))
		}
	}
	return strings.Join(why, "; ")
}

func (v *verdict) faults(last bool) []string {
	all := slices.Concat(v.tokens, v.stale, v.passed, v.wrong)
	if !v.wiped {
		all = append(all, v.overlaps...)
	}
	if v.checked && (v.linear == porcupine.Illegal || v.linear == porcupine.Unknown && last) {
		all = append(all, fmt.Sprintf("porcupine: the history is %s: %s", v.linear, stuck(v.info, v.script)))
	}
	return all
}

func (v *verdict) String() string {
	return fmt.Sprintf("%d calls, %d grants, %d of them passed on (%d with a loss), to another holder %v, outcomes %v, %d unknown, %d busy answers judged and %d excused, faults that bit %v, %d overlaps, %d stale writes came, %d writes were refused, porcupine: %v",
		v.calls, v.grants, v.follows, v.losses, v.others, v.outcomes, v.unknown, v.script.busy, v.script.excused, v.bites, len(v.overlaps), v.late, v.refused, v.linear)
}

func (v *verdict) note(t *testing.T, seed uint64, server *testserver.Redis) {
	f := tally.Facts{
		Part: "histories", Runs: 1, Seeds: fmt.Sprint(seed), Faults: v.bites, Outcomes: v.outcomes, Grants: v.grants, ToOthers: sum(v.others),
		Violations: map[string]int{"tokens back": len(v.tokens), "stale writes": len(v.stale), "passed on wrongly": len(v.passed), "histories that are not a lock's": 0},
		Expected:   map[string]int{"stale writes that a resource without tokens would take": v.late},
		Versions:   map[string]string{"redis-server": server.Field("server", "redis_version")},
	}
	f.Outcomes["unknown"] = v.unknown
	if v.linear == porcupine.Illegal {
		f.Violations["histories that are not a lock's"] = 1
	}
	if v.wiped {
		f.Expected["overlaps where the server forgot"] = len(v.overlaps)
	} else {
		f.Violations["overlaps"] = len(v.overlaps)
	}
	tally.Note(t, f)
}

// save writes the history, the nemesis's deeds, the server's log and porcupine's picture
// into a new directory.
func (v *verdict) save(t *testing.T, seed uint64, s *scene, deeds []deed) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("lockkit-history-%d-", seed))
	if err != nil {
		t.Error(err)
		return
	}
	var log strings.Builder
	for _, e := range s.history.entries {
		line, _ := json.Marshal(e)
		fmt.Fprintf(&log, "%s\n", line)
	}
	done, _ := json.Marshal(deeds)
	for name, content := range map[string]string{"history.jsonl": log.String(), "deeds.json": string(done), "server.log": s.server.Output()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	if v.checked {
		err = porcupine.VisualizePath(model, v.info, filepath.Join(dir, "history.html"))
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("the history, the nemesis's deeds, the server's log and a picture are in %s", dir)
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}
