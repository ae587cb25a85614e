package testserver

import "time"

// Impairment describes a bad network or a busy server, by what happens to the messages of
// each connection. It is about both directions, and a new connection counts as a message.
// The zero value does nothing.
type Impairment struct {
	// Delay makes each message arrive that much later. Messages on the way do not wait for
	// each other, other than with Proxy.Delay.
	Delay time.Duration
	// Jitter adds a random time below it. Messages keep their order.
	Jitter time.Duration
	// Loss is the probability that a message is lost, from 0 to 1. It is sent again after
	// 200 ms, then after 400 ms, then after 800 ms, as by TCP, and is lost with that
	// probability again, except for the last time. What follows on the connection waits.
	Loss float64
	// Drop is the probability that the connection is closed in place of the message.
	Drop float64
}

// Toll counts what an Impairment has done.
type Toll struct {
	Delayed int // messages that arrived later
	Lost    int // messages that were lost, counted again when they were lost again
	Dropped int // connections
}

// Add returns the sum of both.
func (t Toll) Add(other Toll) Toll {
	return Toll{t.Delayed + other.Delayed, t.Lost + other.Lost, t.Dropped + other.Dropped}
}

// The times after which TCP sends a lost message again on a short way: the least one of
// Linux, and twice as long after each loss.
const (
	firstResend = 200 * time.Millisecond
	maxLosses   = 3
)

// draw returns how much later a message arrives, or that its connection is closed, and
// counts that. chance returns random numbers from 0 to 1.
func (i Impairment) draw(toll *Toll, chance func() float64) (lag time.Duration, drop bool) {
	if i.Drop > 0 && chance() < i.Drop {
		toll.Dropped++
		return 0, true
	}
	lag = i.Delay
	if i.Jitter > 0 {
		lag += time.Duration(chance() * float64(i.Jitter))
	}
	resend := firstResend
	for n := 0; n < maxLosses && i.Loss > 0 && chance() < i.Loss; n++ {
		toll.Lost++
		lag += resend
		resend *= 2
	}
	if lag > 0 {
		toll.Delayed++
	}
	return lag, false
}
