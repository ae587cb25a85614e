package soak_test

import (
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// nemesis performs its deeds one after the other, at random.
type nemesis struct {
	server   *testserver.Redis
	services []*service
	deeds    map[string]int
}

func (n *nemesis) act() {
	s := n.services[rand.N(len(n.services))]
	forget(n.services) // an hour's recorded commands would look like a leak
	d := ttl/10 + rand.N(ttl)
	deed := []string{"freeze", "cut", "sever", "lose replies", "lose requests", "flush scripts"}[rand.N(6)]
	switch deed {
	case "freeze":
		n.server.Pause()
		time.Sleep(d)
		n.server.Resume()
	case "cut":
		s.proxy.Partition()
		time.Sleep(d)
		s.proxy.Heal()
	case "sever":
		for _, s := range n.services {
			s.proxy.Sever()
		}
	case "lose replies":
		n.inject(s, testserver.CloseReply)
	case "lose requests":
		n.inject(s, testserver.CloseRequest)
	case "flush scripts":
		n.server.Do("SCRIPT", "FLUSH")
	}
	n.deeds[deed]++
}

func (n *nemesis) inject(s *service, a testserver.Action) {
	for _, script := range []string{"acquire", "extend", "release"} {
		f := s.proxy.Inject(testserver.Match{Script: script, Times: 3}, a)
		defer s.proxy.Remove(f)
	}
	time.Sleep(ttl / 10)
}
