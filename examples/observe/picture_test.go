package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core/testserver"
)

var write = flag.Bool("write", false, "write dashboard.svg from a run")

// TestPicture checks that dashboard.svg has the rows and panels of dashboard.json in
// their order and places, with their titles, units and expressions. It does not compare
// values, because these differ between runs. `go test -run TestPicture -write` draws
// the picture of a new run.
func TestPicture(t *testing.T) {
	all := panels(t)
	if *write {
		if err := os.WriteFile("dashboard.svg", []byte(picture(all, measure(t, all))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	svg := read(t, "dashboard.svg")
	rest := svg
	for _, p := range all {
		_, after, ok := strings.Cut(rest, p.frame())
		if !ok {
			t.Errorf("dashboard.svg lacks panel %d %q of dashboard.json, or has it elsewhere: go test -run TestPicture -write", p.ID, p.Title)
			continue
		}
		rest = after
	}
	if n := strings.Count(svg, "<g id"); n != len(all) {
		t.Errorf("dashboard.svg has %d rows and panels, dashboard.json has %d", n, len(all))
	}
	if outside := regexp.MustCompile(`<script|href|url\(|@import|@font-face`).FindString(svg); outside != "" || len(svg) > 150_000 {
		t.Errorf("dashboard.svg has %d bytes, and %q", len(svg), outside)
	}
}

// runTime limits the run, which Prometheus scrapes each second. rateTime is the value of
// $__rate_interval in Grafana for that pace.
const runTime, rateTime = 60 * time.Second, "4s"

// line is a series of a panel. It has only finite values, at times since the run began.
type line struct {
	name   string
	points []model.SamplePair
}

// measure runs the example and a Prometheus that scrapes it, and returns the lines of
// each panel by the panel's ID.
func measure(t *testing.T, all []panel) map[int][]line {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		testserver.Missing(t, "prometheus is not installed (apt-get install prometheus, or brew install prometheus)")
	}
	service, server, dir := freeAddr(t), freeAddr(t), t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	scrape := fmt.Sprintf("scrape_configs: [{job_name: shop, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{targets: ['%s']}]}]", service)
	if err := os.WriteFile(file, []byte(scrape), 0o600); err != nil {
		t.Fatal(err)
	}
	testserver.StartProcess(t, exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+dir, "--web.listen-address="+server))
	testserver.Eventually(t, time.Minute, "Prometheus asks the service, which is not up yet", func() bool {
		resp, err := http.Get("http://" + server + "/api/v1/targets")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `"health":"down"`)
	})
	logging.Disable()
	from := model.Now()
	complete, err := run(t.Context(), config{redis: testserver.StartRedis(t).Addr, listen: service, load: runTime, clients: 8, cutEvery: 8 * time.Second, cutBy: 3 * time.Second})
	if err != nil || !complete {
		t.Fatalf("the run: complete %v, error %v", complete, err)
	}
	lines := make(map[int][]line)
	for _, p := range all {
		for _, target := range p.Targets {
			query := url.Values{"query": {withValues(target.Expr, rateTime, runTime.String())}, "step": {"1"}, "start": {from.String()}, "end": {from.Add(runTime).String()}}
			var answer struct{ Data struct{ Result model.Matrix } }
			if err := json.Unmarshal([]byte(get(t, "http://"+server+"/api/v1/query_range?"+query.Encode())), &answer); err != nil {
				t.Fatal(err)
			}
			for _, s := range answer.Data.Result {
				l := line{name: label.ReplaceAllStringFunc(target.LegendFormat, func(name string) string { return string(s.Metric[model.LabelName(strings.Trim(name, "{}"))]) })}
				for _, v := range s.Values {
					if v.Timestamp -= from; !math.IsNaN(float64(v.Value)) && !math.IsInf(float64(v.Value), 0) {
						l.points = append(l.points, v)
					}
				}
				lines[p.ID] = append(lines[p.ID], l)
			}
		}
	}
	return lines
}

var label = regexp.MustCompile(`{{\w+}}`)

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Sizes of the picture, in pixels.
const (
	pictureWidth = 900
	columnWidth  = pictureWidth / 24. // the dashboard has 24 columns
	unitHeight   = 25
	panelGap     = 6
	lineHeight   = 13
	letterWidth  = 6.7 // the mean in a wide system font
)

// These colours are legible on white and on black.
var (
	lineColours  = []string{"#2f81f7", "#c9803b", "#4f9d5d", "#b35fa0", "#d0433f", "#1f9e9e", "#a3891f", "#8b949e"}
	stateColours = map[string]string{"green": "#1a7f37", "orange": "#a84b00", "red": "#c4232d"}
)

// picture draws the dashboard, light or dark according to the reader's preference.
func picture(all []panel, lines map[int][]line) string {
	var b strings.Builder
	last := all[len(all)-1].GridPos
	height := (last.Y + last.H) * unitHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>The dashboard over a run of examples/observe</title>
<style>
text { fill: #59636e; font: 11px system-ui, sans-serif } .title { fill: #1f2328; font-weight: 600 } .row { font-size: 14px }
.panel { fill: #f6f8fa; stroke: #d1d9e0 } .grid { fill: none; stroke: #d1d9e0 } .figure { fill: #fff; font-size: 26px; font-weight: 600 }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .title { fill: #f0f6fc } .panel { fill: #151b23; stroke: #3d444d } .grid { stroke: #3d444d } .figure { fill: #fff } }
</style>
`, pictureWidth, height, pictureWidth, height)
	for _, p := range all {
		b.WriteString(p.frame())
		switch p.Type {
		case "stat":
			p.figure(&b, lines[p.ID])
		case "timeseries":
			p.graph(&b, lines[p.ID])
		}
		b.WriteString("</g>\n")
	}
	return b.String() + "</svg>\n"
}

func (p panel) size() (width, height float64) {
	return float64(p.GridPos.W)*columnWidth - panelGap, float64(p.GridPos.H*unitHeight - panelGap)
}

// frame returns the part of a row or a panel that does not depend on the run.
func (p panel) frame() string {
	at := fmt.Sprintf(`<g id="panel%d" transform="translate(%.1f %d)">`, p.ID, float64(p.GridPos.X)*columnWidth+panelGap/2, p.GridPos.Y*unitHeight+panelGap/2)
	if p.Type == "row" {
		return at + `<text class="title row" y="17">` + html.EscapeString(p.Title) + "</text>"
	}
	w, h := p.size()
	title := ""
	for i, part := range p.title() {
		title += fmt.Sprintf(`<tspan x="8" y="%d">%s</tspan>`, 18+i*lineHeight, html.EscapeString(part))
	}
	var exprs []string
	for _, target := range p.Targets {
		exprs = append(exprs, html.EscapeString(target.Expr))
	}
	return fmt.Sprintf(`%s<desc>%s: %s</desc><rect class="panel" width="%.1f" height="%.0f" rx="4"/><text class="title">%s</text>`,
		at, p.FieldConfig.Defaults.Unit, strings.Join(exprs, "; "), w, h, title)
}

// title returns the title in one line, or in two if it is longer than the panel is wide.
func (p panel) title() []string {
	w, _ := p.size()
	most := int((w - 16) / letterWidth)
	at := strings.LastIndex(p.Title[:min(most, len(p.Title)*2/3)], " ")
	if len(p.Title) <= most || at < 0 {
		return []string{p.Title}
	}
	return []string{p.Title[:at], p.Title[at+1:]}
}

// figure draws the last value on the colour of its threshold.
func (p panel) figure(b *strings.Builder, lines []line) {
	value, colour := p.FieldConfig.Defaults.NoValue, "green"
	if len(lines) > 0 && len(lines[0].points) > 0 {
		v := float64(lines[0].points[len(lines[0].points)-1].Value)
		value = p.text(v)
		for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
			if v >= s.Value {
				colour = s.Color
			}
		}
	}
	w, h := p.size()
	fmt.Fprintf(b, `<rect x="8" y="40" width="%.1f" height="%.0f" rx="3" fill="%s"/><text class="figure" x="%.1f" y="%.0f" text-anchor="middle">%s</text>`,
		w-16, h-48, stateColours[colour], w/2, h/2+25, value)
}

func (p panel) graph(b *strings.Builder, lines []line) {
	w, h := p.size()
	most, x, rows := 0., 8., 0.
	var legend strings.Builder
	for i, l := range lines {
		for _, v := range l.points {
			most = max(most, float64(v.Value))
		}
		long := 24 + letterWidth*float64(len(l.name))
		if x > 8 && x+long > w+6 {
			x, rows = 8, rows+1
		}
		fmt.Fprintf(&legend, `<rect x="%.0f" y="%.0f" width="10" height="3" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`,
			x, rows*lineHeight-5, lineColours[i%len(lineColours)], x+14, rows*lineHeight, html.EscapeString(l.name))
		x += long
	}
	most = cmp.Or(p.FieldConfig.Defaults.Max, roundUp(most))
	left, right := 14+letterWidth*float64(max(len(p.text(most)), len(p.text(most/2)))), w-10
	top, bottom := 20+lineHeight*float64(len(p.title())), h-25-(rows+1)*lineHeight
	for i, anchor := range []string{"start", "middle", "end"} {
		part := float64(i) / 2
		y := bottom - part*(bottom-top)
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left, y, right, left-5, y+4, p.text(part*most))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%.0f s</text>`, left+part*(right-left), bottom+14, anchor, part*runTime.Seconds())
	}
	for i, l := range lines {
		var path strings.Builder
		before := model.Time(math.MinInt32)
		for _, v := range l.points {
			how := "L"
			if v.Timestamp-before > 1500 {
				how = "M"
			}
			before = v.Timestamp
			fmt.Fprintf(&path, "%s%.1f %.1f", how, left+float64(v.Timestamp)/1000/runTime.Seconds()*(right-left), bottom-float64(v.Value)/most*(bottom-top))
			if how == "M" {
				path.WriteString("h0") // a single value is a dot
			}
		}
		fmt.Fprintf(b, `<path class="line" stroke="%s" d="%s"/>`, lineColours[i%len(lineColours)], path.String())
	}
	fmt.Fprintf(b, `<g transform="translate(0 %.1f)">%s</g>`, bottom+33, legend.String())
}

// roundUp returns the top of an axis for values up to v.
func roundUp(v float64) float64 {
	if v == 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 1.5, 2, 3, 4, 6, 8} {
		if v <= n*power {
			return n * power
		}
	}
	return 10 * power
}

func (p panel) text(v float64) string {
	unit := map[string]string{"s": " s", "ops": "/s", "percentunit": " %"}[p.FieldConfig.Defaults.Unit]
	switch {
	case p.FieldConfig.Defaults.Unit == "percentunit":
		v *= 100
	case p.FieldConfig.Defaults.Unit == "s" && v > 0 && v < .9995:
		v, unit = v*1000, " ms"
	case v >= 999.5:
		v, unit = v/1000, "k"+unit
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + unit
}
