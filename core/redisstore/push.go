package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The script that makes room can admit a waiter and publish the grant. The waiter's
// claim must be pushable, its last request at most ASKED of clock.lua old, and its
// process must listen. All other waiters are only woken. So a key moves to another
// process with one message, and no other claim is granted in between.
//
// The waiter does not know the time of the grant. But the grant was made after the
// waiter's last request, and the waiter knows the time of that request. The grant lasts
// for the time since that request plus WINDOW of clock.lua. The waiter extends the
// grant before it expires. If the waiter has died, the grant expires and the key is
// free again. A message counts only if it names the place of the waiter's last request.
// An earlier grant may have expired.

const (
	// minPushValidity is the least remaining validity with which a pushed grant is used.
	minPushValidity = time.Second / 2
	// maxPushValidity is longer than any grant by message.
	maxPushValidity = store.WaiterLife
	// maxClockDrift is the maximum allowed drift between the wall clock and the
	// monotonic clock. A larger drift can mean that the machine was suspended.
	maxClockDrift = 5 * time.Millisecond
)

// place is the place of a watching claim in the wait list.
type place struct {
	asked time.Time // the time of the request that last renewed the place
	until string    // the place's deadline, which identifies it
}

// pushed is a grant that arrived by message.
type pushed struct {
	until string // identifies the place
	token uint64
	valid time.Duration
}

// readPush parses the text of a grant after its key and lease. lua/messages.lua
// describes the format. readPush returns nil if the text is invalid.
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

// pushable reports whether c can be granted by message. It excludes claims with a
// record, with Via, or with a MinToken that some tokens do not satisfy. It excludes
// leases that are shorter than a place's lifetime, because the gain would be small. It
// excludes Clusters, in which a script does not know whether a process listens. It
// excludes WithReplicas, because a message cannot carry the result of a WAIT. With
// WithPlainKeys, WithRedisson and WithoutScriptedWakeUps no script sends grants.
func (s *Store) pushable(c *store.Claim) bool {
	return c.Wait && c.Push && c.Record == nil && c.Via == "" && c.MinToken <= anyToken && c.TTL >= store.WaiterLife &&
		!s.foreign() && !s.acks && !s.silent && s.cluster == nil
}

// pushedTo removes and returns the grant that has arrived for a claim, or nil. It also
// reports whether the claim has a watch.
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

// grant returns the grant with its validity at now. asked is the time of the waiter's
// last request. grant returns nil if too little validity is left, or if the machine may
// have been suspended.
func (p *pushed) grant(asked, now time.Time) *store.Grant {
	age := now.Sub(asked)
	if drift := now.Round(0).Sub(asked.Round(0)) - age; drift.Abs() > maxClockDrift {
		return nil
	}
	// The 2 % are for clocks of two machines that run at different rates.
	left := p.valid - age - age/50
	if left < minPushValidity {
		return nil
	}
	return &store.Grant{Token: p.token, Valid: left}
}
