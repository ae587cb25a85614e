//go:build unix

package main

import (
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core"
)

// trust decides how long the command may run. The engine trusts a lease for 95 % of the
// time that the key lasts. Half of the rest is for the command to exit, and half is
// left for clocks that run at different rates and a busy machine.
type trust struct {
	lease *core.Lease
	last  time.Time     // the latest deadline of the lease that was seen
	span  time.Duration // the validity of the lease when it was granted
	slack time.Duration // from the deadline to SIGKILL, at the most
	grace time.Duration // from SIGTERM to SIGKILL
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

// stopAt returns when SIGTERM is due, and killAt when SIGKILL is.
func (t *trust) stopAt() time.Time { return t.last.Add(min(0, t.slack-t.grace)) }
func (t *trust) killAt() time.Time { return t.last.Add(min(t.slack, t.grace)) }

// holds reports whether the command may go on. It asks the clocks, even after the
// machine was suspended.
func (t *trust) holds() bool {
	deadline := t.lease.Deadline()
	if t.lease.Context().Err() != nil {
		return false
	}
	t.last = deadline
	return time.Now().Before(t.stopAt())
}

// watch passes signals on until the command has exited, or stops it when the lease is
// lost. It returns when nothing of its group is left, or cannot be killed.
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
			// The children have the grace, as long as the lease was valid for it.
			kill := time.Now().Add(t.grace)
			if t.killAt().Before(kill) {
				kill = t.killAt()
			}
			return false, j.stop(kill)
		}
	}
}

// end returns when the command, which has to stop, is killed: not later than killAt. A
// lease that expired while the machine was suspended has its deadline in the past.
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
