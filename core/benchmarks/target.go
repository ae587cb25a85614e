package main

import (
	"fmt"
	"math"
)

// target is a figure that the kit should reach in a scenario.
type target struct {
	who   string  // name of the contender
	key   string  // key of a column
	of    string  // bestPeer, the name of a contender, or "" for the figure itself
	least bool    // limit is a minimum; otherwise a maximum
	limit float64 // a ratio or a figure
	why   why     // returns the reason if the target is not met; can be nil
}

const bestPeer = "the best peer"

// Verdict is the result of checking a target.
type Verdict struct {
	Target string
	Value  float64
	Text   string // Value as text
	Met    bool
	Why    string `json:",omitempty"` // why it is not met
}

// judge compares s with its targets. It omits targets that were not measured.
func (s *Section) judge(targets []target) {
	for _, t := range targets {
		value, ok := s.reached(t)
		if !ok {
			continue
		}
		v := Verdict{Target: s.describe(t), Value: value, Met: value <= t.limit}
		if t.least {
			v.Met = value >= t.limit
		}
		v.Text = short(value)
		if t.of != "" {
			v.Text += " ×"
		}
		if !v.Met && t.why != nil {
			v.Why = t.why(s, t)
		}
		s.Verdicts = append(s.Verdicts, v)
	}
}

func (s *Section) reached(t target) (float64, bool) {
	row := s.row(t.who)
	if row == nil {
		return 0, false
	}
	var v float64
	var ok bool
	switch t.of {
	case "":
		v, ok = row.Figures[t.key]
	case bestPeer:
		v, ok = row.Ratios[t.key]
	default:
		if other := s.row(t.of); other != nil {
			v, ok = ratio(row, other, t.key)
		}
	}
	return v, ok
}

func (s *Section) describe(t target) string {
	title := t.key
	for _, c := range s.Columns {
		if c.Key == t.key {
			title = c.Title
		}
	}
	sign := "≤"
	if t.least {
		sign = "≥"
	}
	text := fmt.Sprintf("%s: %s %s %s", t.who, title, sign, short(t.limit))
	if t.of != "" {
		text += " × " + t.of
	}
	return text
}

// short returns a number as text with a readable number of digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a == math.Trunc(a) && a < 1e6:
		return fmt.Sprintf("%.0f", v)
	case a < 0.1:
		return fmt.Sprintf("%.3f", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
