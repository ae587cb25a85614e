package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// report prints the values of the metrics, and reports whether they show each expected
// event.
func (s *service) report(ctx context.Context, sent *sent, cuts int) (complete bool, err error) {
	lost := s.lost.Load() // before the metrics, which may count a later loss
	all, err := s.scrape(ctx)
	if err != nil {
		return false, err
	}
	fmt.Printf("%d requests were answered as they should be, %d busy, %d while Redis was away; cuts of the network: %d\n",
		sent.of(200), sent.of(409), sent.of(503), cuts)
	rows := []struct {
		name, label, value, says string
		least                    float64
	}{
		{"lockkit_acquire_duration_seconds_count", "lockkit_outcome", "acquired", "locks were acquired", 1},
		{"lockkit_acquire_duration_seconds_count", "lockkit_outcome", "busy", "callers found the key busy, and left", 1},
		{"lockkit_acquire_duration_seconds_count", "lockkit_contended", "true", "acquires did not find the key free", 1},
		{"lockkit_acquire_duration_seconds_count", "error_type", "unavailable", "acquires failed, since Redis was away", 1},
		{"lockkit_extensions_total", "error_type", "unavailable", "extensions failed, and were tried again", 1},
		{"lockkit_losses_total", "lockkit_name", "shipping", "leases were lost: work went on without its lock", float64(max(1, lost))},
		{"lockkit_cleanups_total", "", "", "claims of unknown outcome were released", 1},
		{"lockkit_overruns_total", "", "", "leases were held for longer than MaxHold", 1},
		{"lockkit_passes_total", "", "", "leases went to the next waiter of the process", 1},
		{"lockkit_call_duration_seconds_count", "lockkit_outcome", "ran", "payments were made", 1},
		{"lockkit_call_duration_seconds_count", "lockkit_outcome", "replayed", "payments were asked for again, and answered", 1},
		{"lockkit_misuses_total", "", "", "first requests of a route that is set up wrong", 1},
	}
	fmt.Println("What the metrics show:")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	complete = true
	for _, r := range rows {
		n, series, mark := all.sum(r.name, r.label, r.value), r.name, ""
		if r.label != "" {
			series = fmt.Sprintf("%s{%s=%q}", r.name, r.label, r.value)
		}
		if n < r.least {
			mark, complete = "MISSING", false
		}
		_, _ = fmt.Fprintf(table, "%.0f\t%s\t%s\t%s\n", n, r.says, series, mark)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	fmt.Println("A Prometheus that has scraped all this would have LockLost, LockOverrun and LockMisused of rules.yaml fire now.")
	return complete, nil
}

type samples model.Vector

// scrape reads the metrics from /metrics, like a Prometheus.
func (s *service) scrape(ctx context.Context) (samples, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %s", resp.Status)
	}
	return parse(resp.Body)
}

func parse(r io.Reader) (samples, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	var all samples
	for _, f := range families {
		v, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// sum returns the sum of the samples with this name and this value of the label. If
// label is "", it returns the sum of all samples with this name.
func (all samples) sum(name, label, value string) (n float64) {
	for _, s := range all {
		if string(s.Metric[model.MetricNameLabel]) == name && (label == "" || string(s.Metric[model.LabelName(label)]) == value) {
			n += float64(s.Value)
		}
	}
	return n
}
