package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sys/unix"
)

func main() {
	if child, code := runChild(); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // clients log each failed connection to a server that is down
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(log)
	short := flags.Bool("short", false, "a quick look")
	full := flags.Bool("full", false, "held leases for two minutes, by all contenders")
	run := flags.String("run", "", "only scenarios whose names contain one of these, separated by commas")
	from := flags.String("from", "", "measure nothing, take the results of this `file`")
	jsonFile := flags.String("json", "", "write the results to this `file`")
	chartFile := flags.String("chart", "", "draw the chart into this SVG `file`")
	readme := flags.String("readme", "", "write the table into this `file`, between the markers of speed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	scale := defaultScale
	if *short {
		scale = shortScale
	}
	if *full {
		scale = fullScale
	}
	report, err := (*Report)(nil), error(nil)
	if *from != "" {
		report, err = readReport(*from)
	} else {
		report, err = measure(ctx, scale, strings.Split(*run, ","), out, log)
	}
	if err != nil {
		return err
	}
	if len(report.Failures) > 0 {
		return errors.New("FAILED\n" + strings.Join(report.Failures, "\n"))
	}
	return errors.Join(
		toFile(*jsonFile, report.json),
		toFile(*chartFile, report.chart),
		report.intoReadme(*readme),
	)
}

// measure runs the picked scenarios, and prints each one when it is complete.
func measure(ctx context.Context, sc scale, picked []string, out, log io.Writer) (report *Report, err error) {
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	b := &bench{scale: sc, ctx: ctx, server: s, report: newReport(sc.name, s.version), log: log}
	b.report.write(out)
	others := watchOthers()
	for _, scenario := range scenarios(sc) {
		if !pickedBy(picked, scenario.name) {
			continue
		}
		section, err := b.run(scenario)
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		section.write(out)
	}
	if len(b.report.Sections) == 0 {
		return nil, errors.New("no scenario has such a name")
	}
	w, err := s.work(ctx, nil)
	b.report.Machine.Others = others.share(w.CPU + cpuSoFar() + cpuOf(unix.RUSAGE_CHILDREN))
	fmt.Fprintf(out, "\nOther programs used %.0f %% of the machine.\n", b.report.Machine.Others)
	return b.report, err
}

func pickedBy(parts []string, name string) bool {
	for _, p := range parts {
		if strings.Contains(name, p) {
			return true
		}
	}
	return false
}

func readReport(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	return r, json.Unmarshal(text, r)
}

func (r *Report) json() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", " ")
	return append(text, '\n'), err
}

// toFile writes a file, unless the path is empty.
func toFile(path string, content func() ([]byte, error)) error {
	if path == "" {
		return nil
	}
	text, err := content()
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
