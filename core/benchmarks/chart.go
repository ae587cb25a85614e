package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// lanes are the figures that the chart and README's table show, in order.
var lanes = []lane{
	{section: "own-1", key: "rate", unit: "/s"},
	{section: "own-64", key: "rate", unit: "/s"},
	{section: "own-512", key: "rate", unit: "/s"},
	{section: "one-key", key: "rate", unit: "/s"},
	{section: "processes", key: "rate", unit: "/s"},
	{section: "hand-off", key: "p50", what: ", p50", unit: " ms"},
	{section: "hand-off", key: "p99", what: ", p99", unit: " ms"},
	{section: "crowd", key: "served", what: ", all served", unit: " s"},
}

// lane is one figure of one scenario.
type lane struct {
	section, key string
	what         string // appended to the scenario's title
	unit         string
}

// bar is a contender in a lane.
type bar struct {
	row     *Row
	speed   float64 // in multiples of the best peer: 2 is twice as fast, for rates and for times
	bounded bool    // its true speed is lower
}

// bars returns the contenders that took part in l, and the lane's title.
func (r *Report) bars(l lane) (title string, all []bar) {
	s := r.section(l.section)
	if s == nil {
		return "", nil
	}
	less := slices.ContainsFunc(s.Columns, func(c Column) bool { return c.Key == l.key && c.Better == Less })
	for _, row := range s.Rows {
		v, ok := row.Ratios[l.key]
		if !ok || v <= 0 || colours[row.Contender] == "" {
			continue
		}
		if less {
			v = 1 / v
		}
		all = append(all, bar{row, v, slices.Contains(row.Bounded, l.key)})
	}
	return s.Title + l.what, all
}

// Sizes of the chart, in pixels.
const (
	chartWidth = 880
	chartLeft  = 330 // where bars begin
	chartUnit  = 130 // length of the best peer's bar
	chartMost  = 3.4 // longer bars are cut off
	barHeight  = 13
	laneGap    = 30
)

// colours has a colour for each contender that is legible on white and on black.
var colours = map[string]string{
	"lockkit": "#2f81f7", "lockkit plain keys": "#79a8e8", "redislock": "#c9803b", "redsync": "#b35fa0",
	"rueidislock": "#4f9d5d", "bare commands": "#8b949e",
}

const chartText = "#7b848e"

// chart draws the speed of all contenders, in multiples of the best peer.
func (r *Report) chart() ([]byte, error) {
	var body bytes.Buffer
	y := 70
	for _, l := range lanes {
		title, bars := r.bars(l)
		if len(bars) == 0 {
			continue
		}
		fmt.Fprintf(&body, `<text x="%d" y="%d" text-anchor="end" font-weight="600">%s</text>`+"\n",
			chartLeft-14, y+len(bars)*barHeight/2+4, html.EscapeString(title))
		for i, b := range bars {
			top := y + i*barHeight
			width := max(1.5, min(b.speed, chartMost)*chartUnit)
			fmt.Fprintf(&body, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, chartLeft, top, width, barHeight-2, colours[b.row.Contender])
			fmt.Fprintf(&body, `<text x="%.1f" y="%d" font-size="10">%s</text>`+"\n", chartLeft+width+5, top+barHeight-4, html.EscapeString(b.label(l)))
		}
		y += len(bars)*barHeight + laneGap
	}
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12" fill="%s" role="img">`+"\n",
		chartWidth, y, chartWidth, y, chartText)
	fmt.Fprintf(&svg, "<title>Speed in multiples of the best peer; longer is better</title>\n")
	fmt.Fprintf(&svg, `<text x="%d" y="18" font-weight="600">Speed in multiples of the best peer; longer is better</text>`+"\n", chartLeft)
	fmt.Fprint(&svg, r.legend(chartLeft, 40))
	fmt.Fprintf(&svg, `<line x1="%d" y1="58" x2="%d" y2="%d" stroke="%s" stroke-dasharray="3 3"/>`+"\n", chartLeft+chartUnit, chartLeft+chartUnit, y-laneGap+8, chartText)
	svg.Write(body.Bytes())
	svg.WriteString("</svg>\n")
	return svg.Bytes(), nil
}

func (b bar) label(l lane) string {
	sign := ""
	if b.bounded {
		sign = "< "
	}
	v := b.row.Figures[l.key]
	text := fmt.Sprintf("%s%s × (%s%s)", sign, short(b.speed), thousands(v), l.unit)
	if b.bounded {
		text = fmt.Sprintf("%s%s × (over %s%s)", sign, short(b.speed), thousands(v), l.unit)
	}
	return text
}

// thousands returns a number as text, with a thousands separator.
func thousands(v float64) string {
	if math.Abs(v) < 1000 {
		return short(v)
	}
	n := int(math.Round(v))
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// legend names the colours, in the order of the bars.
func (r *Report) legend(x, y int) string {
	var out bytes.Buffer
	for _, c := range contenders() {
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="9" height="9" fill="%s"/><text x="%d" y="%d" font-size="10">%s</text>`+"\n",
			x, y-9, colours[c.name], x+13, y, html.EscapeString(c.name))
		x += 26 + 6*len(c.name)
	}
	return out.String()
}
