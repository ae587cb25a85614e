package retry

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Policy sets the number of attempts of an operation, and the pauses between them. It
// is a plain value, comparable and safe for concurrent use. No function of this package
// changes a Policy.
//
// The zero Policy makes one attempt. In any other policy, a zero field means the
// field's stated default.
type Policy struct {
	// Initial is the first pause. The default is 50 ms, or Max if that is shorter.
	Initial time.Duration
	// Max limits each pause, jitter included. The default is a minute, or Initial if
	// that is longer.
	Max time.Duration
	// Multiplier is the factor from one pause to the next, at least 1. The default is
	// 1, a constant pace.
	Multiplier float64
	// Jitter is the fraction, from 0 to 1, by which each pause is randomly lengthened
	// or shortened. The default is 0, no spread. A pause that would exceed Max by some
	// amount is made shorter than Max by this amount. So callers do not all get the
	// same pause, Max.
	Jitter float64
	// Attempts is the maximum number of attempts, including the first. By default there
	// is no limit, and the context ends the run. In the zero Policy the default is 1.
	Attempts int
}

// The named policies. Do not assign to them. To change a named policy, copy it.
var (
	// LockWait paces a wait until another holder releases a lock. The pauses double from
	// 50 ms to 1 second, ±50%, until the context is done.
	LockWait = Policy{Initial: 50 * time.Millisecond, Max: time.Second, Multiplier: 2, Jitter: 0.5}
	// Hiccup bridges transient failures of a server. It makes three attempts, with
	// pauses of 20 ms ±50% and of 100 to 200 ms.
	Hiccup = Policy{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond, Multiplier: 10, Jitter: 0.5, Attempts: 3}
	// None makes one attempt. It is the zero Policy.
	None = Policy{}
)

const (
	defaultInitial = 50 * time.Millisecond
	defaultMax     = time.Minute
	// shortest is the minimum Initial of a policy without a limit of attempts.
	shortest = time.Millisecond
	// longest is the maximum pause, about 73 years. A longer Initial or Max is reduced
	// to longest. This leaves room to double a pause, and to convert it to a float64
	// and back.
	longest time.Duration = math.MaxInt64 / 4
)

// Validate returns nil, or an error that names the wrong field. A field is wrong if it
// is negative, infinite or NaN. Other errors are a Multiplier between 0 and 1, a Jitter
// above 1, and an Initial above Max. Attempts without a limit need a first pause of at
// least a millisecond, because a shorter pause would be a hot loop.
func (p Policy) Validate() error {
	switch {
	case p.Initial < 0:
		return fmt.Errorf("retry: Initial %v s is negative", p.Initial.Seconds())
	case p.Max < 0:
		return fmt.Errorf("retry: Max %v s is negative", p.Max.Seconds())
	case p.Max > 0 && p.Initial > p.Max:
		return fmt.Errorf("retry: Initial %v s is above Max %v s", p.Initial.Seconds(), p.Max.Seconds())
	case p.Multiplier != 0 && !within(p.Multiplier, 1, math.MaxFloat64):
		return fmt.Errorf("retry: Multiplier %v is out of range (0, or at least 1 and finite)", p.Multiplier)
	case !within(p.Jitter, 0, 1):
		return fmt.Errorf("retry: Jitter %v is out of range (0 to 1)", p.Jitter)
	case p.Attempts < 0:
		return fmt.Errorf("retry: Attempts %d is negative", p.Attempts)
	}
	if full := p.withDefaults(); full.Attempts == 0 && full.Initial < shortest {
		return errors.New("retry: Initial or Max is too short for unbounded Attempts (at least 1 ms)")
	}
	return nil
}

// within reports whether low <= x <= high. It returns false for NaN.
func within(x, low, high float64) bool { return low <= x && x <= high }

// Delays begins a run, and returns a function to call after each failed attempt. The
// function returns the pause before the next attempt, more than 0 and at most Max, or
// false if no attempt is left. Delays is for callers that wait themselves. Do uses the
// same pauses.
//
// Delays is safe for concurrent use. The returned function is not, and it never blocks.
// If Validate refuses p, the function returns false.
func (p Policy) Delays() func() (time.Duration, bool) {
	if p.Validate() != nil {
		p = Policy{}
	}
	s := sequence{policy: p}
	return s.next
}

// withDefaults returns p with the defaults in place of zero fields. p must be valid.
func (p Policy) withDefaults() Policy {
	if p == (Policy{}) {
		p.Attempts = 1
	}
	if p.Initial == 0 {
		p.Initial = defaultInitial
		if p.Max > 0 {
			p.Initial = min(p.Initial, p.Max)
		}
	}
	if p.Max == 0 {
		p.Max = max(p.Initial, defaultMax)
	}
	if p.Multiplier == 0 {
		p.Multiplier = 1
	}
	p.Initial, p.Max = min(p.Initial, longest), min(p.Max, longest)
	return p
}

// sequence yields the pauses of one run of a valid policy. A sequence is set up only at
// the first failure, because most runs have no failure.
type sequence struct {
	policy Policy
	failed int
	steps  backoff.ExponentialBackOff
}

func (s *sequence) next() (time.Duration, bool) {
	if s.failed == 0 {
		s.begin()
	}
	if s.policy.Attempts > 0 && s.failed >= s.policy.Attempts-1 {
		return 0, false
	}
	s.failed++
	d, limit := s.steps.NextBackOff(), s.policy.Max
	// The library limits the interval before it adds the jitter, so d can exceed the
	// limit. Folding d back below the limit keeps the spread. Cutting d would give half
	// of all callers a pause of exactly the limit. No interval is above the limit, so a
	// folded pause never falls below the lower end of the spread.
	if d > limit {
		d = 2*limit - d
	}
	return min(max(d, 1), limit), true
}

func (s *sequence) begin() {
	s.policy = s.policy.withDefaults()
	s.steps = backoff.ExponentialBackOff{
		InitialInterval:     s.policy.Initial,
		RandomizationFactor: s.policy.Jitter,
		Multiplier:          s.policy.Multiplier,
		MaxInterval:         s.policy.Max,
		MaxElapsedTime:      0, // no limit: only the context limits the time
		Stop:                backoff.Stop,
		Clock:               backoff.SystemClock,
	}
	s.steps.Reset()
}
