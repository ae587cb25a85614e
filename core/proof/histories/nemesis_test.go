package histories_test

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// deed is something that the nemesis did, and when.
type deed struct {
	What     string
	From, To int64
	Who      string `json:",omitempty"` // the process that it killed

	// Of a failover: which claims the new master had a hold of, by key, and a time
	// from which on the old one gave no answers.
	Left map[string][]string `json:",omitempty"`
	At   int64               `json:",omitempty"`
}

// forgets tells that the server may have lost what it had.
func (d deed) forgets() bool {
	return d.What == "delete all" || d.What == "restart empty" || d.What == "fail over"
}

// nemesis does one bad thing after the other.
type nemesis struct {
	*scene
	rand  *rand.Rand
	deeds []deed
}

// The kinds of deeds. Those that wipe make the server forget what it has granted.
var (
	kinds = []string{"kill", "kill", "stop", "stop", "freeze", "cut", "cut", "sever", "lose replies", "lose replies", "lose requests", "flush scripts"}
	wipes = []string{"kill", "stop", "cut", "lose replies", "delete all", "delete all", "restart empty", "restart empty", "fail over", "fail over"}
)

// act does the next thing. It returns when that is over.
func (n *nemesis) act() {
	all := kinds
	if n.wiped {
		all = wipes
	}
	d := deed{What: all[n.rand.IntN(len(all))], From: mono()}
	n.do(&d)
	d.To = mono()
	n.deeds = append(n.deeds, d)
	if d.Who != "" {
		n.replace(d.Who)
	}
	time.Sleep(time.Duration(n.rand.Int64N(int64(ttl / 4))))
}

// a while is up to two lease lengths and a half.
func (n *nemesis) while() time.Duration {
	return ttl/10 + time.Duration(n.rand.Int64N(int64(ttl*12/5)))
}

func (n *nemesis) do(this *deed) {
	c, d := n.workers[n.rand.IntN(len(n.workers))], n.while()
	switch what := this.What; what {
	case "kill":
		this.Who = c.name
		c.kill()
		// Whatever it had sent has reached the server when its connections are gone.
		testserver.Eventually(n.t, patience, "the connections of a dead process end", func() bool { return c.proxy.Links() == 0 })
	case "stop":
		c.signal(syscall.SIGSTOP)
		time.Sleep(d)
		c.signal(syscall.SIGCONT)
	case "freeze":
		n.server.Pause()
		time.Sleep(d)
		n.server.Resume()
	case "cut":
		c.proxy.Partition()
		time.Sleep(d)
		c.proxy.Heal()
	case "sever":
		for _, c := range n.workers {
			c.proxy.Sever()
		}
	case "lose replies", "lose requests":
		action := testserver.CloseReply
		if what == "lose requests" {
			action = testserver.CloseRequest
		}
		for _, c := range n.workers {
			script := []string{"acquire", "release", "extend"}[n.rand.IntN(3)]
			f := c.proxy.Inject(testserver.Match{Script: script, Times: 2}, action)
			defer c.proxy.Remove(f)
		}
		time.Sleep(ttl / 10)
	case "flush scripts":
		n.server.Do("SCRIPT", "FLUSH")
	case "delete all":
		n.server.Do("FLUSHALL")
	case "restart empty":
		n.server.RestartEmpty()
	case "fail over":
		n.failOver(this)
	default:
		panic("no such deed: " + what)
	}
}

// bit is how many deeds, by kind, befell a call: one that failed, or whose worker
// died, went on at some time from the deed's beginning to a little after its end.
func bit(deeds []deed, tries []*try) map[string]int {
	n := make(map[string]int)
	for _, d := range deeds {
		for _, t := range tries {
			if t.failed() && t.Call <= d.To+int64(ttl) && t.end() >= d.From {
				n[d.What]++
				break
			}
		}
	}
	return n
}
