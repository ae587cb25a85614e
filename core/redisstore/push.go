package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The script that makes room admits a waiter with Push whose process listens, and
// publishes the grant. Other waiters are only woken. So a key goes to another process in
// one message, and no other claim is granted in between.
//
// The waiter does not know the time of the grant. But the grant came after the waiter's
// last question, and the waiter knows when it sent that. The grant lasts for the time
// since then and WINDOW of clock.lua. Before it expires the waiter extends it, or has
// died and the key is free again. A message counts only if it names the place that this
// question got, because an earlier grant may have expired.

const (
	// minPushValidity is the least remaining validity of a pushed grant that is used.
	minPushValidity = time.Second / 2
	// maxPushValidity exceeds the length of any grant by message.
	maxPushValidity = store.WaiterLife
	// maxClockDrift is the largest allowed difference between the clocks of the wall and
	// of the process. After a larger one the machine may have been suspended.
	maxClockDrift = 5 * time.Millisecond
)

// place is the place of a watching claim in the wait list.
type place struct {
	asked time.Time // the time of the question that renewed it
	until string    // its deadline, which names it
}

// pushed is a grant that came by message.
type pushed struct {
	until string // of the place
	token uint64
	valid time.Duration
}

// readPush reads the text of a grant after its key and lease; lua/messages.lua has its
// form. It returns nil if the text is not valid.
func readPush(text string) *pushed {
	f := strings.Split(text, " ")
	if len(f) != 3 {
		return nil
	}
	token, err := strconv.ParseUint(f[1], 10, 64)
	ms, err2 := strconv.ParseInt(f[2], 10, 64)
	if err != nil || err2 != nil || ms <= 0 || ms > maxPushValidity.Milliseconds() {
		return nil
	}
	return &pushed{f[0], token, time.Duration(ms) * time.Millisecond}
}

// pushable reports whether c can be granted by message. A lease that is shorter than a
// place is not worth it. In a cluster it is not known whether a process listens, and
// WAIT is no part of a message.
func (s *Store) pushable(c *store.Claim) bool {
	return c.Wait && c.Push && c.Record == nil && c.Via == "" && c.MinToken <= anyToken && c.TTL >= store.WaiterLife &&
		!s.foreign() && !s.acks && !s.silent && s.cluster == nil
}

// pushedTo takes the grant that has come for a claim, and reports whether the claim is
// watching.
func (s *Store) pushedTo(of string) (g *store.Grant, watching bool) {
	watching = s.hub.Each(of, func(w *watched) {
		p := w.pushed
		w.pushed = nil
		if g == nil && p != nil && p.until == w.place.until {
			g = p.grant(w.place.asked, time.Now())
		}
	})
	return g, watching
}

// grant returns the grant with its validity at now, counted from asked. It returns nil
// if too little is left, or if the machine may have been suspended.
func (p *pushed) grant(asked, now time.Time) *store.Grant {
	age := now.Sub(asked)
	if drift := now.Round(0).Sub(asked.Round(0)) - age; drift.Abs() > maxClockDrift {
		return nil
	}
	// The clocks of two machines are not equally fast.
	left := p.valid - age - age/50
	if left < minPushValidity {
		return nil
	}
	return &store.Grant{Token: p.token, Valid: left}
}
