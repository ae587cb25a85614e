package histories_test

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// deed is an action of the nemesis, with its time.
type deed struct {
	What     string
	From, To int64
	Who      string `json:",omitempty"` // the process that the nemesis killed

	// Left and At describe a failover. Left has the claims with a hold at the new
	// master, by key. From At on the old master gave no answers.
	Left map[string][]string `json:",omitempty"`
	At   int64               `json:",omitempty"`
}

func (d deed) forgets() bool {
	return d.What == "delete all" || d.What == "restart empty" || d.What == "fail over"
}

// nemesis performs its deeds one after the other, at random.
type nemesis struct {
	*scene
	rand  *rand.Rand
	deeds []deed
}

// Some deeds in wipes make the server lose what it has granted.
var (
	kinds = []string{"kill", "kill", "stop", "stop", "freeze", "cut", "cut", "sever", "lose replies", "lose replies", "lose requests", "flush scripts"}
	wipes = []string{"kill", "stop", "cut", "lose replies", "delete all", "delete all", "restart empty", "restart empty", "fail over", "fail over"}
)

// act performs the next deed. It returns when the deed is over.
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

// while returns a random time between a tenth of a TTL and two and a half TTLs.
func (n *nemesis) while() time.Duration {
	return ttl/10 + time.Duration(n.rand.Int64N(int64(ttl*12/5)))
}

func (n *nemesis) do(this *deed) {
	c, d := n.workers[n.rand.IntN(len(n.workers))], n.while()
	switch what := this.What; what {
	case "kill":
		this.Who = c.name
		c.kill()
		// When the proxy has no connections any more, all requests of the process have
		// reached the server.
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

// bit returns the number of deeds that affected a call, by kind. A deed can affect the
// calls that run between its start and one TTL after its end. It affected such a call
// if the call failed or its worker died.
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
