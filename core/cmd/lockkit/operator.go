package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/internal/visible"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// operator has the common parts of the commands for operators.
type operator struct {
	where storeFlags
	json  bool
	flags *flag.FlagSet
	out   io.Writer
	errs  io.Writer
}

func newOperator(name string, out, errs io.Writer) *operator {
	o := &operator{flags: flag.NewFlagSet(name, flag.ContinueOnError), out: out, errs: errs}
	o.where.register(o.flags)
	o.flags.BoolVar(&o.json, "json", false, "")
	return o
}

// arguments parses the flags, and checks that the number of arguments after them is at
// least the number least and at most the number most.
func (o *operator) arguments(args []string, help string, least, most int) (code int, ok bool) {
	if code, ok = parse(o.flags, args, help, o.out, o.errs); !ok {
		return code, false
	}
	if n := o.flags.NArg(); n < least || n > most {
		usage, _, _ := strings.Cut(help, "\n")
		return complain(o.errs, exitUsage, fmt.Errorf("%s; see lockkit %s -h", usage, o.flags.Name())), false
	}
	return exitOK, true
}

// answerLimit limits the time for which a command waits for the store, so that an
// operator has a result within ten seconds. The exception is ls -all, which waits this
// long for each page. Tests shorten this limit.
var answerLimit = 8 * time.Second

// inspect calls do with the store, and returns the exit code. ctx times out after
// answerLimit.
func (o *operator) inspect(do func(ctx context.Context, in *inspect.Inspector) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	s, err := o.where.open(10 * time.Second)
	if err != nil {
		return complain(o.errs, status(err), err)
	}
	defer s.close()
	in, err := inspect.New(s.Store)
	if err == nil {
		err = s.connected(ctx)
	}
	if err == nil {
		err = do(ctx, in)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer from %s within %s: %w", s.servers, words.Duration(answerLimit), err)
	}
	if err != nil {
		return complain(o.errs, status(err), err)
	}
	return exitOK
}

// row is a displayed hold, waiting claim or run.
type row struct {
	State   string `json:"state"` // held, waits, kept, run or done
	Key     string `json:"key"`
	Name    string `json:"name"`
	Hold    string `json:"hold,omitempty"`   // the ID of the hold
	Mode    string `json:"mode,omitempty"`   // core.Mode.String
	Weight  int64  `json:"weight,omitempty"` // 0 if exclusive
	Fair    bool   `json:"fair,omitempty"`
	For     int64  `json:"for_ms,omitempty"`  // time held or waited; 0: not known
	Left    int64  `json:"left_ms,omitempty"` // time until it expires
	Attempt int    `json:"attempt,omitempty"`
	Service string `json:"service,omitempty"`
	Version string `json:"version,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Process string `json:"process,omitempty"`
	Trace   string `json:"trace,omitempty"`
	kind    string // mode and weight in words
}

func rowsOf(l inspect.Lock) (rows []row) {
	for _, h := range l.Holds {
		state := "held"
		if h.ID == "" {
			state = "kept"
		}
		rows = append(rows, rowOf(l, h, state))
	}
	for _, h := range l.Waiters {
		rows = append(rows, rowOf(l, h, "waits"))
	}
	if l.Run != nil {
		state := "run"
		if l.Run.Done {
			state = "done"
		}
		rows = append(rows, row{State: state, Key: l.Key, Name: l.Name, Attempt: l.Run.Attempt, Left: l.Run.Left.Milliseconds()})
	}
	return rows
}

func rowOf(l inspect.Lock, h inspect.Hold, state string) row {
	r := row{
		State: state, Key: l.Key, Name: l.Name, Hold: h.ID, Fair: h.Fair,
		For: h.Age.Milliseconds(), Left: h.Left.Milliseconds(), Trace: h.Trace,
		Mode: h.Mode().String(), kind: h.Kind(), Process: h.Process,
	}
	if h.Weight < store.All {
		r.Weight = h.Weight
	}
	if h.Card != nil {
		r.by(*h.Card)
	}
	return r
}

func (r *row) by(c core.Card) {
	r.Service, r.Version, r.Host, r.PID, r.Process = c.Service, c.Version, c.Host, c.PID, c.Process
}

const heading = "STATE       FOR      LEFT  HOLD         KEY\n"

// write writes each row on one line, as a JSON object or as a row of the table.
func (o *operator) write(rows []row) {
	for _, r := range rows {
		if o.json {
			writeJSON(o.out, r)
			continue
		}
		_, _ = fmt.Fprintln(o.out, r)
	}
}

// writeJSON writes v on one line, without characters that control a terminal.
func writeJSON(out io.Writer, v any) {
	if text, err := json.Marshal(v); err == nil {
		_, _ = fmt.Fprintf(out, "%s\n", visible.JSON(text))
	}
}

// String returns a line of the table.
func (r row) String() string {
	var more []string
	add := func(text string) { more = append(more, text) }
	if r.kind != "" {
		add(r.kind)
	}
	if r.Fair {
		add("fair")
	}
	if r.Attempt > 0 {
		add(fmt.Sprintf("attempt %d", r.Attempt))
	}
	if who := strings.TrimSpace(shown(r.Service) + " " + shown(r.Version)); who != "" {
		add(who)
	}
	switch {
	case r.Host != "" || r.PID > 0:
		add(fmt.Sprintf("host %s PID %d", shown(r.Host), r.PID))
	case r.Process != "":
		add("process " + shown(r.Process))
	}
	if r.Trace != "" {
		add("trace " + shown(r.Trace))
	}
	line := fmt.Sprintf("%-5s %9s %9s  %-11s  %s", r.State, span(r.For), span(r.Left), shown(r.Hold), shown(r.Key))
	if len(more) > 0 {
		line += "  (" + strings.Join(more, ", ") + ")"
	}
	return line
}

// span returns a readable text for a duration in milliseconds.
func span(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms <= 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// shown returns a text without characters that control a terminal. Any user of the
// store may have written s. Unless s is one plain word, shown quotes s.
func shown(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar || strings.ContainsRune(" \"'\\`$&|;<>()*?!#~", r)
	}) {
		return strconv.QuoteToGraphic(s)
	}
	return s
}
