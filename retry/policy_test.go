package retry_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/retry"
)

const ms = time.Millisecond

// draw returns up to n pauses of one run.
func draw(p retry.Policy, n int) []time.Duration {
	var out []time.Duration
	next := p.Delays()
	for range n {
		d, ok := next()
		if !ok {
			break
		}
		out = append(out, d)
	}
	return out
}

func TestPolicy_Pauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy retry.Policy
		want   []time.Duration // the first six pauses
	}{
		{"the zero policy has none", retry.Policy{}, nil},
		{"None has none", retry.None, nil},
		{"one attempt has none", retry.Policy{Initial: ms, Attempts: 1}, nil},
		{"n attempts have n-1", retry.Policy{Initial: ms, Attempts: 3}, []time.Duration{ms, ms}},
		{"growing up to Max", retry.Policy{Initial: 10 * ms, Max: 70 * ms, Multiplier: 2},
			[]time.Duration{10 * ms, 20 * ms, 40 * ms, 70 * ms, 70 * ms, 70 * ms}},
		{"no multiplier", retry.Policy{Initial: 10 * ms, Max: time.Second},
			[]time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms}},
		{"no Initial is 50ms", retry.Policy{Attempts: 3}, []time.Duration{50 * ms, 50 * ms}},
		{"no Initial and shorter Max", retry.Policy{Max: 5 * ms, Attempts: 3}, []time.Duration{5 * ms, 5 * ms}},
		{"multiplier alone", retry.Policy{Multiplier: 2},
			[]time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms}},
		{"no Max is a minute", retry.Policy{Initial: 25 * time.Second, Multiplier: 2},
			[]time.Duration{25 * time.Second, 50 * time.Second, time.Minute, time.Minute, time.Minute, time.Minute}},
		{"no Max and longer Initial", retry.Policy{Initial: time.Hour, Multiplier: 9, Attempts: 3},
			[]time.Duration{time.Hour, time.Hour}},
		{"multiplier beyond any duration", retry.Policy{Initial: ms, Max: time.Hour, Multiplier: math.MaxFloat64, Attempts: 4},
			[]time.Duration{ms, time.Hour, time.Hour}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := draw(c.policy, 6); !slices.Equal(got, c.want) {
				t.Errorf("pauses %v, want %v", got, c.want)
			}
		})
	}
}

func TestNamedPolicies(t *testing.T) {
	t.Parallel()
	type span struct{ low, high time.Duration }
	for _, c := range []struct {
		name   string
		policy retry.Policy
		want   []span
		ends   bool
	}{
		{"LockWait", retry.LockWait, []span{
			{25 * ms, 75 * ms}, {50 * ms, 150 * ms}, {100 * ms, 300 * ms}, {200 * ms, 600 * ms}, {400 * ms, 1000 * ms}, {500 * ms, 1000 * ms}, {500 * ms, 1000 * ms}}, false},
		{"Hiccup", retry.Hiccup, []span{{10 * ms, 30 * ms}, {100 * ms, 200 * ms}}, true},
		{"None", retry.None, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.policy.Validate(); err != nil {
				t.Fatal(err)
			}
			for range 500 {
				got := draw(c.policy, len(c.want)+1)
				if ended := len(got) == len(c.want); ended != c.ends {
					t.Fatalf("%d pauses, want %d, ending: %v", len(got), len(c.want), c.ends)
				}
				for i, w := range c.want {
					if got[i] < w.low-1 || got[i] > w.high+1 {
						t.Fatalf("pause %d is %v, want %v to %v", i+1, got[i], w.low, w.high)
					}
				}
			}
		})
	}
}

func TestJitter_BelowMax(t *testing.T) {
	t.Parallel()
	const n = 4000
	p := retry.Policy{Initial: time.Second, Max: time.Second, Jitter: 0.5}
	seen := make(map[time.Duration]int)
	var upper int
	for _, d := range draw(p, n) {
		if d < 500*ms-1 || d > time.Second {
			t.Fatalf("pause %v is not between 500ms and 1s", d)
		}
		seen[d]++
		if d > 750*ms {
			upper++
		}
	}
	for d, times := range seen {
		if times > 5 { // practically impossible by chance, among half a billion values
			t.Errorf("%v was drawn %d times of %d", d, times, n)
		}
	}
	if upper < n*2/5 || upper > n*3/5 { // 12 standard deviations from a half
		t.Errorf("%d of %d pauses lie in the upper half", upper, n)
	}
}

func TestValidate_Field(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy retry.Policy
		field  string // "" if the policy is valid
	}{
		{"a negative Initial", retry.Policy{Initial: -1, Max: 1, Attempts: 2}, "Initial"},
		{"a negative Max", retry.Policy{Max: -1, Attempts: 2}, "Max"},
		{"an Initial above Max", retry.Policy{Initial: 2 * ms, Max: ms, Attempts: 2}, "Initial"},
		{"a negative Multiplier", retry.Policy{Multiplier: -2, Attempts: 2}, "Multiplier"},
		{"a shrinking Multiplier", retry.Policy{Initial: ms, Multiplier: 0.99, Attempts: 2}, "Multiplier"},
		{"a Multiplier of NaN", retry.Policy{Multiplier: math.NaN(), Attempts: 2}, "Multiplier"},
		{"an infinite Multiplier", retry.Policy{Multiplier: math.Inf(1), Attempts: 2}, "Multiplier"},
		{"a negative Jitter", retry.Policy{Jitter: -0.1, Attempts: 2}, "Jitter"},
		{"a Jitter above one", retry.Policy{Jitter: 1.01, Attempts: 2}, "Jitter"},
		{"a Jitter of NaN", retry.Policy{Jitter: math.NaN()}, "Jitter"},
		{"negative Attempts", retry.Policy{Attempts: -1}, "Attempts"},
		{"endless attempts of a microsecond", retry.Policy{Initial: time.Microsecond, Multiplier: 2}, "Attempts"},
		{"endless attempts with tiny Max", retry.Policy{Max: time.Microsecond}, "Attempts"},
		{"the zero policy", retry.Policy{}, ""},
		{"attempts alone", retry.Policy{Attempts: 3}, ""},
		{"a few attempts a nanosecond apart", retry.Policy{Initial: 1, Attempts: 3}, ""},
		{"an endless constant pace", retry.Policy{Initial: ms}, ""},
		{"the largest of everything", retry.Policy{Initial: math.MaxInt64, Max: math.MaxInt64, Multiplier: math.MaxFloat64, Jitter: 1, Attempts: math.MaxInt}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.policy.Validate()
			switch {
			case c.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.field != "" && err == nil:
				t.Errorf("accepted")
			case c.field != "" && !strings.Contains(err.Error(), c.field):
				t.Errorf("%q does not name %s", err, c.field)
			}
			if c.field != "" && len(draw(c.policy, 3)) > 0 {
				t.Error("a refused policy has pauses")
			}
		})
	}
}

func TestPolicy_Runs(t *testing.T) {
	t.Parallel()
	p := retry.Policy{Initial: ms, Max: 16 * ms, Multiplier: 2, Attempts: 7}
	want := []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 16 * ms, 16 * ms}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if got := draw(p, 10); !slices.Equal(got, want) {
					t.Errorf("pauses %v, want %v", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDelays(f *testing.F) {
	for _, p := range []retry.Policy{
		retry.None, retry.LockWait, retry.Hiccup, {Attempts: 1000}, {Multiplier: 2}, {Initial: 1, Max: 1, Jitter: 1, Attempts: 50},
		{Initial: ms, Max: ms, Jitter: 1}, {Initial: 3, Max: 7, Multiplier: 1.1, Jitter: 0.9, Attempts: 99},
		{Initial: math.MaxInt64, Max: math.MaxInt64, Multiplier: math.MaxFloat64, Jitter: 1},
		{Initial: math.MaxInt64, Max: math.MaxInt64, Jitter: 0.5},
		{Initial: ms, Max: math.MaxInt64, Multiplier: 1.0000001, Jitter: 1}, {Multiplier: math.NaN(), Jitter: math.Inf(-1), Attempts: -1},
	} {
		f.Add(int64(p.Initial), int64(p.Max), p.Multiplier, p.Jitter, p.Attempts)
	}
	f.Fuzz(func(t *testing.T, initial, most int64, multiplier, jitter float64, attempts int) {
		p := retry.Policy{Initial: time.Duration(initial), Max: time.Duration(most), Multiplier: multiplier, Jitter: jitter, Attempts: attempts}
		const n = 256
		got := draw(p, n)
		switch valid := p.Validate() == nil; {
		case !valid || p == retry.Policy{}:
			if len(got) != 0 {
				t.Fatalf("%+v, valid: %v, has pauses", p, valid)
			}
			return
		case p.Attempts > 0 && len(got) != min(n, p.Attempts-1), p.Attempts == 0 && len(got) != n:
			t.Fatalf("%+v has %d pauses", p, len(got))
		}
		first := min(p.Initial, math.MaxInt64/4)
		if first == 0 {
			first = 50 * ms
			if p.Max > 0 {
				first = min(first, p.Max)
			}
		}
		limit := p.Max
		if limit == 0 {
			limit = max(time.Minute, p.Initial)
		}
		// The bound leaves room for the rounding of a float64 with 53 bits.
		low := time.Duration((1-p.Jitter)*float64(first)*(1-1e-9)) - 2
		var sum float64
		for i, d := range got {
			if d <= 0 || d > limit || d < low {
				t.Fatalf("%+v: pause %d is %v, want above 0, %v to %v", p, i+1, d, low, limit)
			}
			sum += float64(d)
		}
		// Each draw is on average at least half of the first pause, so at least 0.5 ms.
		// The mean of n draws is practically never below 0.1 ms by chance.
		if p.Attempts == 0 && sum/n < float64(ms)/10 {
			t.Errorf("%+v spins: %v for %d attempts", p, time.Duration(sum), n)
		}
	})
}
