//go:build unix

package main

import (
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core"
)

// trust limits the time for which the command can run. The engine trusts a lease for 95
// % of its key's TTL. Nearly half of the remaining 5 % is for stopping the command. The
// remaining time allows for clock drift and a busy machine.
type trust struct {
	lease *core.Lease
	last  time.Time     // the latest deadline of the lease that was read
	span  time.Duration // time until the lease's first deadline
	slack time.Duration // maximum time from the deadline to SIGKILL
	grace time.Duration // time from SIGTERM to SIGKILL
}

func newTrust(lease *core.Lease, grace time.Duration) *trust {
	t := &trust{lease: lease, last: lease.Deadline(), grace: grace}
	t.span = time.Until(t.last)
	t.slack = t.span / 40
	if grace == 0 {
		t.grace = t.slack
	}
	return t
}

// stopAt returns the time at which SIGTERM is due, and killAt the time at which SIGKILL
// is due.
func (t *trust) stopAt() time.Time { return t.last.Add(min(0, t.slack-t.grace)) }
func (t *trust) killAt() time.Time { return t.last.Add(min(t.slack, t.grace)) }

// holds reports whether the command may continue. It reads the clocks, so its result is
// right even after the machine was suspended.
func (t *trust) holds() bool {
	deadline := t.lease.Deadline()
	if t.lease.Context().Err() != nil {
		return false
	}
	t.last = deadline
	return time.Now().Before(t.stopAt())
}

// watch passes signals on until the command has exited. If the lease is lost, it stops
// the command. It returns when the whole group has exited or cannot be killed.
func (t *trust) watch(j *job, signals <-chan os.Signal) (lost, stopped bool) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		if !t.holds() {
			return true, j.stop(t.end())
		}
		tick.Reset(max(min(time.Until(t.stopAt()), t.span/20, time.Second), time.Millisecond))
		select {
		case <-tick.C:
		case <-t.lease.Context().Done():
		case s := <-signals:
			if slices.Contains(handed, s) {
				j.signal(s.(syscall.Signal))
			}
		case <-j.ended:
			// The children have the grace period, but at most until killAt.
			kill := time.Now().Add(t.grace)
			if t.killAt().Before(kill) {
				kill = t.killAt()
			}
			return false, j.stop(kill)
		}
	}
}

// end returns the time at which a command that must stop is killed. It is never after
// killAt. If the lease expired while the machine was suspended, the lease's deadline is
// in the past.
func (t *trust) end() time.Time {
	kill := t.killAt()
	if t.lease.Context().Err() == nil {
		return kill
	}
	if past := t.lease.Deadline().Add(t.grace); past.Before(kill) {
		return past
	}
	return kill
}
