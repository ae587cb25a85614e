package neighbours_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// election runs the replicas of a service, each in its own process, and the servers and
// the ledger that they share.
type election struct {
	t         *testing.T
	apiserver *neighbours.Driver
	redis     *testserver.Redis
	addr      string // of the API server
	ledger    *ledger
	replicas  []*member
	started   int
}

// member is a replica of a release: "client-go", "both" or "leader".
type member struct {
	*neighbours.Driver
	name, release string
}

func startClientgo(t testing.TB, args ...string) *neighbours.Driver {
	t.Helper()
	program, err := clientgo()
	if err != nil {
		testserver.Missing(t, fmt.Sprintf("client-go cannot be had: %v", err))
	}
	return neighbours.Start(t, exec.Command(program, args...))
}

func newElection(t *testing.T, releases ...string) *election {
	t.Helper()
	e := &election{t: t, redis: testserver.StartRedis(t), ledger: newLedger(t), apiserver: startClientgo(t, "apiserver")}
	var err error
	if e.addr, err = e.apiserver.Ask("test", "address"); err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		e.join(r)
	}
	return e
}

func (e *election) join(release string) {
	e.t.Helper()
	e.started++
	m := &member{release: release, name: fmt.Sprintf("%s-%d", release, e.started)}
	m.Driver = startClientgo(e.t, release, m.name, e.addr, e.redis.Addr, e.ledger.url)
	e.replicas = append(e.replicas, m)
}

// next waits until a replica with another name than not leads, and returns the
// replica's term. If judge finds a violation, next ends the test.
func (e *election) next(not string) *term {
	e.t.Helper()
	x := e.ledger.await(e.t, e.ledger.last(), not)
	if e.judge(); e.t.Failed() {
		e.t.FailNow()
	}
	return x
}

func (e *election) leader() (*member, *term) {
	e.t.Helper()
	for {
		x := e.next("")
		if i := slices.IndexFunc(e.replicas, func(m *member) bool { return m.name == x.who }); i >= 0 {
			return e.replicas[i], x
		} // otherwise the write came from a replica that was killed
	}
}

func (e *election) remove(m *member) {
	e.t.Helper()
	m.Kill()
	e.replicas = slices.DeleteFunc(e.replicas, func(other *member) bool { return other == m })
	e.next(m.name)
}

func (e *election) kill() {
	e.t.Helper()
	m, _ := e.leader()
	e.remove(m)
	e.join(m.release)
}

func (e *election) replace(release string) {
	e.t.Helper()
	m, _ := e.leader()
	if _, err := m.Ask("test", "leave"); err != nil {
		e.t.Fatal(err)
	}
	e.remove(m)
	e.join(release)
}

// pause pauses the leader until another replica leads. Then it resumes the paused
// replica, and waits until that replica's work has returned.
func (e *election) pause() {
	e.t.Helper()
	m, x := e.leader()
	m.Pause()
	e.next(m.name)
	m.Resume()
	e.ledger.awaitEnd(e.t, x)
}

// outage pauses a server, and waits until no replica leads. Then it resumes the server,
// and waits for a leader.
func (e *election) outage(server interface {
	Pause()
	Resume()
}) {
	e.t.Helper()
	e.leader()
	server.Pause()
	testserver.Eventually(e.t, limit, "nobody leads without a server that release 1 needs", func() bool {
		last := e.ledger.last()
		time.Sleep(standstill)
		return e.ledger.last() == last
	})
	server.Resume()
	e.next("")
}

// judge fails the test for each violation. It returns the number of pairs of terms in
// which client-go let two replicas lead after a pause.
func (e *election) judge() int {
	e.t.Helper()
	wrong, allowed := e.ledger.judge()
	for _, text := range wrong {
		e.t.Error(text)
	}
	return allowed
}

// TestLeaderRollout moves a service of two replicas from client-go's leader election to
// package leader, and back, as core/leader/README.md describes. At the steps it pauses,
// kills and replaces the leader.
func TestLeaderRollout(t *testing.T) {
	t.Parallel()
	var twoLead atomic.Int64
	t.Run("rolling steps", func(t *testing.T) {
		t.Run("roll forth", func(t *testing.T) {
			t.Parallel()
			e := newElection(t, "client-go", "client-go")
			// client-go itself does not promise a single leader after a pause. In rare
			// cases an update that was in flight prevents a second leader, so several
			// pauses may be needed.
			for n := 0; ; n++ {
				e.pause()
				if e.judge() > 0 {
					break
				}
				if n == 5 {
					t.Error("client-go had one leader after each pause: core/leader/README.md says that it does not promise that")
					break
				}
			}
			e.kill()
			for _, next := range []string{"both", "both", "leader", "leader"} {
				e.replace(next)
				e.pause()
				e.kill()
				if e.replicas[0].release == "both" && e.replicas[1].release == "both" {
					e.outage(e.apiserver)
					e.outage(e.redis)
				}
			}
			e.apiserver.Kill() // no replica needs the server any more
			e.kill()
			twoLead.Add(int64(e.judge()))
		})
		t.Run("roll back", func(t *testing.T) {
			t.Parallel()
			e := newElection(t, "leader", "leader")
			for _, next := range []string{"both", "both", "client-go", "client-go"} {
				e.replace(next)
				if e.replicas[0].release != e.replicas[1].release {
					e.pause()
					e.kill()
				}
			}
			e.leader()
			twoLead.Add(int64(e.judge()))
		})
		t.Run("step left out", func(t *testing.T) {
			t.Parallel()
			e := newElection(t, "client-go", "leader")
			testserver.Eventually(t, limit, "two lead", func() bool {
				wrong, _ := e.ledger.judge()
				return len(wrong) > 0
			})
		})
	})
	t.Run("version on the page", func(t *testing.T) {
		version := neighbour{row: "client-go %s", pkg: "k8s.io/client-go v"}.title(t)
		page, err := os.ReadFile("../../leader/README.md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), version) {
			t.Errorf("core/leader/README.md does not have %s, which golang/go.mod has", version)
		}
	})
	tally.Note(t, tally.Facts{Part: "neighbours", Runs: 2, Violations: map[string]int{"overlaps": 0, "stale writes": 0},
		Expected: map[string]int{"overlaps": int(twoLead.Load())}})
}

// TestOvertakenRelease shows that, with ReleaseOnCancel, the cancellation of an
// election can release another replica's Lease. So the work of a replica with client-go
// must not cancel its election when another replica has the Lease.
func TestOvertakenRelease(t *testing.T) {
	t.Parallel()
	got, err := startClientgo(t, "overtake").Ask("test", "holder")
	if want := "holder="; got != want || err != nil {
		t.Errorf("got %s, %v, want %s: core/leader/README.md says that the Lease is released", got, err, want)
	}
}
