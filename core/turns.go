package core

import "time"

// turns makes a process share its keys where waiters cannot be woken, as with plain
// keys. The waiters of other processes poll there. A process that asks at once after
// each release would find the key free, and they would find it taken, for seconds. So a
// process that has rivals has a key for a turn. After the turn it waits for a step of
// its pace before it asks.
//
// It holds some keys that other processes had lately. The mutex of waiters guards it.
type turns map[string]*turn

// turn is the time in which this process has a key, by one hold after the other.
type turn struct {
	rivals time.Time // until then other processes are assumed to want the key
	began  time.Time // zero while the process does not have the key
	ended  time.Time // zero if another process has had the key since
}

// noteRival records that another process has key, for which this one waits.
func (ts turns) noteRival(key string) {
	if len(ts) >= mostContended && ts[key] == nil {
		clear(ts)
	}
	ts[key] = &turn{rivals: time.Now().Add(pollEvery)}
}

// noteGrant records that this process has key.
func (ts turns) noteGrant(key string) {
	if t := ts[key]; t != nil && t.began.IsZero() {
		t.began, t.ended = time.Now(), time.Time{}
	}
}

// noteRelease records that this process is about to release key. A turn lasts for
// passTime: the next grant continues a turn that is younger.
func (ts turns) noteRelease(key string) {
	t, now := ts[key], time.Now()
	switch {
	case t == nil:
	case now.After(t.rivals):
		delete(ts, key)
	case !t.began.IsZero() && now.Sub(t.began) >= passTime:
		t.began, t.ended = time.Time{}, now
	}
}

// rest returns how long this process leaves key to others after its turn: at most step
// from then on.
func (ts turns) rest(key string, step time.Duration) time.Duration {
	if t := ts[key]; t != nil && !t.ended.IsZero() {
		return time.Until(t.ended.Add(step))
	}
	return 0
}
