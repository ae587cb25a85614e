package main

import "testing"

// TestReport checks the exit code of a run with one order and one client that repeats
// its request. A wrong charge counts more than an unavailable service.
func TestReport(t *testing.T) {
	paid := result{Order: "1", Clicks: 2, Charged: 1, Paid: 1, Refused: 1}
	unserved := result{Order: "1", Clicks: 2, Failed: 2}
	replayed := insistence{Order: "2", Charged: 1, Receipt: "2/1", Replayed: true}
	twice := insistence{Order: "2", Charged: 2, Receipt: "2/2"}
	for name, c := range map[string]struct {
		order  result
		client insistence
		want   int
	}{
		"all charged once":             {paid, replayed, 0},
		"order charged twice":          {result{Order: "1", Clicks: 2, Charged: 2, Paid: 2}, replayed, 1},
		"paid order without a charge":  {result{Order: "1", Clicks: 2, Paid: 2}, replayed, 1},
		"unserved order":               {unserved, replayed, 2},
		"failed click":                 {result{Order: "1", Clicks: 2, Charged: 1, Paid: 1, Failed: 1}, replayed, 2},
		"client without an answer":     {paid, insistence{Order: "2", Charged: 1}, 2},
		"client charged twice":         {paid, twice, 1},
		"client without its receipt":   {paid, insistence{Order: "2", Charged: 1, Receipt: "2/1"}, 1},
		"twice beside unserved order":  {unserved, twice, 1},
		"twice beside a failed click":  {result{Order: "1", Clicks: 2, Charged: 1, Paid: 1, Failed: 1}, twice, 1},
		"twice beside unserved client": {unserved, insistence{Order: "2", Charged: 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := report(config{json: true}, []result{c.order}, []insistence{c.client}); got != c.want {
				t.Errorf("got exit code %d and %v, want %d", got, err, c.want)
			}
		})
	}
}
