package testserver

import "time"

// Impairment describes a bad network or a busy server by its effects on the messages of
// each connection. It applies to both directions, and a new connection counts as a
// message. The zero value has no effect.
type Impairment struct {
	// Delay makes each message arrive later by this time. Unlike with Proxy.Delay,
	// messages in flight do not wait for each other.
	Delay time.Duration
	// Jitter adds a random time, less than Jitter, to each delay. Messages keep their
	// order.
	Jitter time.Duration
	// Loss is the probability that a message is lost, from 0 to 1. As with TCP, a lost
	// message is sent again after 200 ms, then after 400 ms, then after 800 ms. A
	// repetition can be lost with the same probability, except the third repetition.
	// Later messages on the connection wait for the lost message.
	Loss float64
	// Drop is the probability that the proxy closes the connection and does not deliver
	// the message.
	Drop float64
}

// Toll counts the effects of an Impairment.
type Toll struct {
	Delayed int // messages that arrived later
	Lost    int // losses of messages; a message can be lost several times
	Dropped int // closed connections
}

// Add returns the sum of t and other.
func (t Toll) Add(other Toll) Toll {
	return Toll{t.Delayed + other.Delayed, t.Lost + other.Lost, t.Dropped + other.Dropped}
}

// A lost message is sent again after firstResend, the minimum of TCP on Linux. A
// message is lost at most maxLosses times.
const (
	firstResend = 200 * time.Millisecond
	maxLosses   = 3
)

// draw returns the delay of a message, or reports with drop that the message's
// connection is closed. It adds the effects to toll. chance returns random numbers from
// 0 to 1.
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
