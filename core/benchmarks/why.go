package main

import (
	"fmt"
	"runtime"
)

// why returns the reason why a target is not met, with figures of the same run, or "" if
// the run does not have them.
type why = func(s *Section, t target) string

// twoTrips explains the figures of a lone caller. Each step of a cycle waits for the
// previous step.
func twoTrips(s *Section, t target) string {
	kit, bare := s.row(t.who), s.row("bare commands")
	if kit == nil || bare == nil {
		return ""
	}
	longer := 1e6/kit.Figures["rate"] - 1e6/bare.Figures["rate"]
	scripts := kit.Figures["serverCPU"] - bare.Figures["serverCPU"]
	calls, least := "", ""
	if kit.Figures["calls"] > bare.Figures["calls"]+0.5 {
		calls = fmt.Sprintf(", as its scripts make %.0f calls instead of %.0f", kit.Figures["calls"], bare.Figures["calls"])
	}
	if scripts > 0 {
		least = fmt.Sprintf(", with which a client that costs nothing more would reach %s ×", short(1/(1+scripts*bare.Figures["rate"]/1e6)))
	}
	return fmt.Sprintf("a cycle takes %.0f µs longer than with the bare commands; the server works %.0f µs more for it%s%s; the client works %.0f µs more",
		longer, scripts, calls, least, kit.Figures["clientCPU"]-bare.Figures["clientCPU"]) + whenCancelled(s, t)
}

// whenCancelled returns a text with the ratio that the bare commands reach if a canceled
// context ends their wait. The wait in the kit's calls ends in this case. The wait in
// the calls of peers on go-redis does not.
func whenCancelled(s *Section, t target) string {
	if r := s.row(bareDetached().name); r != nil {
		return fmt.Sprintf("; the bare commands, if the end of a context ends their wait, reach %s ×", short(r.Ratios[t.key]))
	}
	return ""
}

// busyMachine explains the figures of many goroutines. It names the figures that a
// server or processors would reach if they never waited.
func busyMachine(s *Section, t target) string {
	kit := s.row(t.who)
	peer := s.bestPeerFigure(t.key)
	if kit == nil || peer == 0 || kit.Figures["serverCPU"] == 0 {
		return ""
	}
	server, client := kit.Figures["serverCPU"], kit.Figures["clientCPU"]
	both := server + client
	return fmt.Sprintf("a cycle takes %.1f µs of the server, which has one core. If the server never waited, the figure would be %s ×. "+
		"A cycle also takes %.1f µs of the client. If none of the %d cores ever waited, the figure would be %s ×. They were busy for %.0f %% of the time",
		server, short(1e6/server/peer), client, runtime.NumCPU(), short(float64(runtime.NumCPU())*1e6/both/peer), kit.Figures["rate"]*both/1e4/float64(runtime.NumCPU()))
}

// passing explains the figures of hand-offs by those of the yardsticks.
func passing(s *Section, t target) string {
	bare := s.row("bare commands")
	if bare == nil {
		return ""
	}
	v, ok := bare.Ratios[t.key]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("BLPOP and RPUSH of a token, without any lock, reach %s ×", short(v))
	if least := s.row(bareMessage().name); least != nil {
		text += fmt.Sprintf(", the least lock that a script passes on by message %s ×", short(least.Ratios[t.key]))
	}
	return text
}

// polls explains the figures of very many waiters.
func polls(*Section, target) string {
	return "a waiter asks every few seconds, even while others are served, because a message can be lost"
}

// extensions explains the figures of holders that only hold.
func extensions(s *Section, t target) string {
	kit := s.row(t.who)
	if kit == nil || kit.Figures["commands"] == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f µs for each of %.0f extensions a second, sent in pipelines", kit.Figures["cpu"]/100*1e6/kit.Figures["commands"], kit.Figures["commands"])
}

// allOfAMajority explains the figures of Redlock: each step of a cycle sends requests
// to all servers at once.
func allOfAMajority(s *Section, t target) string {
	kit, peer := s.row(t.who), s.row(t.of)
	if kit == nil || peer == nil {
		return ""
	}
	return fmt.Sprintf("the client works %.0f µs for a cycle, redsync's %.0f µs: every request is followed to its end, also when its caller has left",
		kit.Figures["clientCPU"], peer.Figures["clientCPU"])
}

// bestPeerFigure returns the best figure of a peer, or 0 if no peer has the figure.
func (s *Section) bestPeerFigure(key string) float64 {
	best := 0.0
	for _, c := range s.Columns {
		if c.Key != key {
			continue
		}
		for _, r := range s.Rows {
			v, ok := r.Figures[key]
			if ok && r.Kind == Peer && (best == 0 || c.Better == More && v > best || c.Better == Less && v < best) {
				best = v
			}
		}
	}
	return best
}
