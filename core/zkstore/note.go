package zkstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// note is the data of a claim's node or of a kept node, with times that count from the
// write. The order of the queue does not depend on notes. A kept node leaves the queue
// when the life in its note has passed. "30000" is a claim that did not wait, "10000
// w30000" a claim that waits, and "30000 a1200" a hold that was extended. All numbers
// are milliseconds.
type note struct {
	life  time.Duration // the time for which the node stays if it is not written again
	waits bool
	ttl   time.Duration // of a waiting claim: its lifetime once it is granted
	held  bool          // the holder has written this note
	age   time.Duration // if held: the time between the grant and the write
}

func (n note) text() []byte {
	text := strconv.AppendInt(nil, n.life.Milliseconds(), 10)
	switch {
	case n.waits:
		text = strconv.AppendInt(append(text, " w"...), n.ttl.Milliseconds(), 10)
	case n.held:
		text = strconv.AppendInt(append(text, " a"...), n.age.Milliseconds(), 10)
	}
	return text
}

// parseNote returns a zero note for an invalid text.
func parseNote(text []byte) note {
	life, more, two := strings.Cut(string(text), " ")
	n := note{}
	var ok bool
	if n.life, ok = millis(life); !ok {
		return note{}
	}
	switch {
	case !two:
		return n
	case strings.HasPrefix(more, "w"):
		n.waits = true
		n.ttl, ok = millis(more[1:])
	case strings.HasPrefix(more, "a"):
		n.held = true
		n.age, ok = millis(more[1:])
	default:
		ok = false
	}
	if !ok {
		return note{}
	}
	return n
}

// millis parses a duration of at most a hundred years, so that a sum of two durations
// does not overflow.
func millis(s string) (time.Duration, bool) {
	const most = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 || ms > most {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// left returns the maximum remaining time of a hold. since is the time since its node
// was written. If the claim has waited, left returns the TTL. Such a claim may have
// been granted just now, because a grant does not always write the node.
func (n note) left(since time.Duration) time.Duration {
	if n.waits {
		return n.ttl
	}
	return min(max(n.life-since, 0), n.life)
}

func noteOf(c store.Claim) note {
	return note{life: life(c), waits: c.Wait, ttl: c.TTL}
}

// note returns the note for a write after which h lasts at least for ttl. A write never
// shortens h. The caller holds the mutex.
func (h *hold) note(ttl time.Duration) note {
	n := note{life: max(ttl, time.Until(h.until)), held: true}
	if h.admitted {
		n.age = max(time.Since(h.granted), 0)
	}
	return n
}
