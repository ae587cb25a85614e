package histories_test

import "math"

// stretch is an interval in which a claim other than the model's holder may hold a
// key at the server. In a stretch, a busy answer shows nothing. At any other time, a
// busy answer shows that the model's holder held the key.
//
// The causes of a stretch are:
//
//   - A grant whose answer did not reach the Locker, or reached it too late. The stretch
//     begins with the call, and ends when the acquire is granted after all.
//   - A grant without a lease, because the acquire failed or its worker died. The
//     stretch ends when the clean-up is confirmed.
//   - A hold that was passed on to a caller of the same process that had just given up.
//     The stretch ends when the hold is released.
//   - A hold that ended without a confirmed release. The stretch begins when the holder
//     stopped relying on the hold. A confirmed release also causes a stretch, if an
//     attempt to acquire the hold can still be in flight.
//   - A failover that restores holds that had been released. See failover_test.go.
//
// The clean-up is repeated until it is confirmed. Therefore the end of a stretch is
// known, unless the history ends first or the worker died. The deed that killed a worker
// ends when all requests of the worker have reached the server. From then on the
// worker's holds expire.
type stretch struct{ From, To int64 }

const (
	forever = math.MaxInt64
	// life is the maximum duration of a hold that is not extended, in nanoseconds of the
	// monotonic clock. It is longer than ttl, because the hold ends by the server's
	// clock.
	life = int64(ttl + ttl/20)
)

type doubts struct {
	*record
	all    map[string][]stretch // by key
	killed map[string]int64     // by name: time from which a killed process has no requests
	turns  []turn
}

// doubts finds the stretches of each key, and the effects of the deeds on the key.
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

// death returns a time by which all holds of a killed process have expired, or forever if
// process was not killed.
func (d *doubts) death(process string) int64 {
	if at, ok := d.killed[process]; ok {
		return at + life
	}
	return forever
}

func (d *doubts) claim(c *claim) {
	t := c.try
	known, doubtful := c.grants()
	switch {
	case known == nil && len(doubtful) > 0:
		d.add(c.Key, doubtful[0].Call, d.settled(c))
	case t != nil && t.Outcome == "died":
		// The store was asked or may have been asked, and had not answered.
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

// grants returns the call that gave the try its hold, and the other calls that granted c
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

// heard returns the time of the last entry about c.
func (c *claim) heard() int64 {
	last := c.try.Call
	for _, o := range c.calls {
		last = max(last, o.Ret)
	}
	return last
}

// settled returns the time from which c is certainly not held and will not be held
// again. If a call that may acquire the key can still be in flight, a confirmed release
// is not sufficient. In that case only the answer "not held" is sufficient, because the
// server remembers a release with this answer.
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
			// The server may have forgotten the release too early.
			return o.Ret + int64(ttl) + life
		}
		return o.Ret
	}
	return d.death(c.Who)
}

// forgot reports whether the server may have lost data between the times from and to.
func (r *record) forgot(from, to int64) bool {
	for _, deed := range r.deeds {
		if deed.forgets() && deed.From <= to && deed.To >= from {
			return true
		}
	}
	return false
}

// gone returns the time from which a claim that was granted is not held any more.
func (d *doubts) gone(c *claim) int64 {
	return max(c.last().ReleaseRet, d.settled(c))
}

func within(all []stretch, from, to int64) bool {
	for _, s := range all {
		if s.From <= to && s.To >= from {
			return true
		}
	}
	return false
}
