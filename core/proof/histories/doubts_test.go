package histories_test

import "math"

// A stretch is a time in which a key may be held at the server by a claim that
// the model does not know as its holder. A busy answer in it shows nothing. At any
// other time the holder was the reason for a busy answer.
//
// What makes a stretch is:
//
//   - A grant of which the Locker was not told, or told too late. It begins with
//     the call, and lasts until the acquire comes to a grant after all.
//   - A grant that came to nothing: the acquire failed or its worker died. It lasts
//     until the clean-up is confirmed.
//   - A hold that was passed on to a caller of its process that had just given up.
//     It lasts until it is given back.
//   - A hold that ended otherwise than by a release that was confirmed, from the
//     end of what its holder relied on; also after one that was confirmed, if an
//     attempt to get it may still be on its way.
//   - A fail-over that brings back what was over. See failover_test.go.
//
// Clean-up goes on until it is confirmed, so that without a bound a stretch is
// open only at the end of a history, or where a worker died. The deed that killed
// it is over when all that it had sent has reached the server, and from then on
// what it had expires.
type stretch struct{ From, To int64 }

const (
	forever = math.MaxInt64
	// life is how long a hold lasts at most if it is not extended, in
	// milliseconds of the server's clock.
	life = int64(ttl + ttl/20)
)

type doubts struct {
	*record
	all    map[string][]stretch // by key
	killed map[string]int64     // when nothing of a process was left that died
	turns  []turn
}

// doubts finds the stretches of each key, and what the deeds did to it.
func (r *record) doubts() *doubts {
	d := &doubts{record: r, all: make(map[string][]stretch), killed: make(map[string]int64)}
	for _, deed := range r.deeds {
		if deed.Who != "" {
			d.killed[deed.Who] = deed.To
		}
	}
	for _, c := range r.claims {
		d.claim(c)
	}
	for _, t := range r.tries {
		if t.Outcome == "died" && t.claim == nil {
			d.add(t.Key, t.Call, d.death(process(t.Who)))
		}
	}
	for _, deed := range r.deeds {
		for _, key := range keys {
			switch {
			case deed.What == "fail over":
				d.failOver(deed, key)
			case deed.forgets():
				d.turns = append(d.turns, turn{deed, key, asked{What: "forget"}})
			}
		}
	}
	return d
}

func (d *doubts) add(key string, from, to int64) {
	d.all[key] = append(d.all[key], stretch{from, to})
}

// death is when nothing is held any more of a process that was killed.
func (d *doubts) death(process string) int64 {
	if at, ok := d.killed[process]; ok {
		return at + life
	}
	return forever
}

// claim adds the stretches of c.
func (d *doubts) claim(c *claim) {
	t := c.try
	known, doubtful := c.grants()
	switch {
	case known == nil && len(doubtful) > 0:
		d.add(c.Key, doubtful[0].Call, d.settled(c))
	case t != nil && t.Outcome == "died":
		// The store was asked, or may have been, and had not answered.
		d.add(c.Key, c.heard(), d.death(c.Who))
	case known != nil:
		if len(doubtful) > 0 {
			d.add(c.Key, doubtful[0].Call, t.Ret)
		}
		t = c.last()
		if t.Released != "ok" {
			d.add(c.Key, max(t.Until, t.Ret), d.settled(c))
		} else if len(doubtful) > 0 || d.settled(c) > t.ReleaseRet {
			d.add(c.Key, t.ReleaseCall, d.settled(c))
		}
	}
}

// grants is the call that gave the try its hold, and those beside it that gave c
// the key or may have done so.
func (c *claim) grants() (known *call, doubtful []call) {
	var all []call
	last := -1
	for _, o := range c.calls {
		if o.What != "ask" || o.Outcome != "ok" && o.Outcome != "unknown" {
			continue
		}
		all = append(all, o)
		if t := c.try; t != nil && t.Outcome == "ok" && o.Outcome == "ok" && o.Ret <= t.Ret {
			last = len(all) - 1
		}
	}
	if last < 0 {
		return nil, all
	}
	known = &all[last]
	return known, append(all[:last:last], all[last+1:]...)
}

// heard is when something was last heard of c.
func (c *claim) heard() int64 {
	last := c.try.Call
	for _, o := range c.calls {
		last = max(last, o.Ret)
	}
	return last
}

// settled is when c is certainly not held any more and will not be. If a call may
// be on its way that gets it the key, "held until now" does not settle it, only
// "not held", which the server remembers.
func (d *doubts) settled(c *claim) int64 {
	asked, unsure := int64(0), false
	for _, o := range c.calls {
		if o.What == "ask" && (o.Outcome == "ok" || o.Outcome == "unknown") {
			asked, unsure = max(asked, o.Ret), unsure || o.Outcome == "unknown"
		}
	}
	for _, o := range c.calls {
		if o.What != "leave" || o.Call < asked || o.Outcome != "lost" && (o.Outcome != "ok" || unsure) {
			continue
		}
		if unsure && d.forgot(o.Call, o.Ret+int64(ttl)) {
			// The server may not have remembered it for as long as it should.
			return o.Ret + int64(ttl) + life
		}
		return o.Ret
	}
	return d.death(c.Who)
}

// forgot tells whether the server may have forgotten something in this time.
func (r *record) forgot(from, to int64) bool {
	for _, deed := range r.deeds {
		if deed.forgets() && deed.From <= to && deed.To >= from {
			return true
		}
	}
	return false
}

// gone is when nothing is held any more by a claim that was granted.
func (d *doubts) gone(c *claim) int64 {
	return max(c.last().ReleaseRet, d.settled(c))
}

// within tells whether any of the stretches has a moment of this time.
func within(all []stretch, from, to int64) bool {
	for _, s := range all {
		if s.From <= to && s.To >= from {
			return true
		}
	}
	return false
}
