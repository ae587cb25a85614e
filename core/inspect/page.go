package inspect

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/visible"
)

// page is the content of one response, in HTML and in JSON. It contains keys only if
// keys may be shown.
type page struct {
	View      string     `json:"view"`
	Notice    string     `json:"notice,omitempty"`
	Error     string     `json:"error,omitempty"`
	Keys      bool       `json:"keys"` // keys are shown
	Held      []longRow  `json:"held,omitempty"`
	Waiting   []longRow  `json:"waiting,omitempty"`
	Processes []process  `json:"processes,omitempty"`
	Locks     []lockRow  `json:"locks,omitempty"`
	Next      string     `json:"next,omitempty"` // sealed; empty on the last page
	Lock      *lockRow   `json:"lock,omitempty"`
	Sure      *confirmed `json:"confirm,omitempty"`
	More      int        `json:"more,omitempty"` // number of omitted rows of Held and Waiting

	Revoke bool `json:"may_revoke,omitempty"` // the operator's rights for Lock
	Now    bool `json:"may_release,omitempty"`
	code   int
}

// ref identifies a lock, by its key if keys are shown, otherwise by name and digest.
type ref struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
	Key    string `json:"key,omitempty"`
	Sealed string `json:"lock,omitempty"` // the sealed key for the forms of this page
}

type lockRow struct {
	ref
	Holds   []holdRow `json:"holds,omitempty"`
	Waiters []holdRow `json:"waiters,omitempty"`
	Run     *runRow   `json:"run,omitempty"`
}

type holdRow struct {
	ID      string   `json:"id,omitempty"` // empty for the rest of a revoked hold
	Mode    string   `json:"mode"`
	Weight  int64    `json:"weight"`
	Fair    bool     `json:"fair,omitempty"`
	Age     ms       `json:"age_ms"`
	Left    ms       `json:"left_ms"`
	Process *process `json:"process,omitempty"`
	Trace   string   `json:"trace,omitempty"`
	Kind    string   `json:"-"` // mode and weight in words
}

type runRow struct {
	Attempt int  `json:"attempt"`
	Done    bool `json:"done"`
	Left    ms   `json:"left_ms"`
}

type longRow struct {
	ref
	Hold    string  `json:"hold,omitempty"`
	Mode    string  `json:"mode,omitempty"`
	For     ms      `json:"for_ms"`
	Process process `json:"process"`
	Trace   string  `json:"trace,omitempty"`
}

type process struct {
	ID      string    `json:"id"`
	Service string    `json:"service,omitempty"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Start   time.Time `json:"start,omitzero"`
}

// confirmed is a hold whose release must be confirmed.
type confirmed struct {
	ref
	Hold holdRow `json:"hold"`
}

func processOf(c core.Card) process {
	return process{ID: c.Process, Service: c.Service, Version: c.Version, Host: c.Host, PID: c.PID, Start: c.Start}
}

// String returns a short description of the process.
func (p process) String() string {
	words := strings.TrimSpace(visible.Text(p.Service) + " " + visible.Text(p.Version))
	if p.Host != "" {
		words = strings.TrimSpace(words + " on " + visible.Text(p.Host))
	}
	if p.PID != 0 {
		words += fmt.Sprintf(", PID %d", p.PID)
	}
	if words == "" {
		return visible.Text(p.ID)
	}
	return words
}

// ms is a duration, in JSON in milliseconds.
type ms time.Duration

// MarshalJSON implements json.Marshaler.
func (d ms) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(d).Milliseconds(), 10), nil
}

// String returns the rounded duration, or "unknown" if it is not positive.
func (d ms) String() string {
	t := time.Duration(d)
	switch {
	case t <= 0:
		return "unknown"
	case t < time.Second:
		return t.Round(time.Millisecond).String()
	case t < time.Minute:
		return t.Round(100 * time.Millisecond).String()
	case t < 24*time.Hour:
		return t.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd%dh", t/(24*time.Hour), t%(24*time.Hour)/time.Hour)
}

//go:embed page.html
var source string

var pages = template.Must(template.New("page").Funcs(template.FuncMap{"visible": visible.Text}).Parse(source))

func (h *handler) ref(p *page, name, digest, key string) ref {
	f := ref{Name: name, Digest: digest}
	if key != "" {
		f.Sealed = h.seal.close("lock", key)
	}
	if p.Keys {
		f.Key = key
	}
	return f
}

func (h *handler) overview(p *page, o Overview) {
	fill := func(list []Long) (rows []longRow) {
		p.More += max(0, len(list)-mostRows)
		for _, l := range list[:min(len(list), mostRows)] {
			rows = append(rows, longRow{
				ref: h.ref(p, l.Name, l.Digest, l.Key), Hold: l.Hold, Mode: l.Mode, For: ms(l.For), Process: processOf(l.Process), Trace: l.Trace,
			})
		}
		return rows
	}
	p.Held, p.Waiting = fill(o.Held), fill(o.Waiting)
	for _, c := range o.Processes {
		p.Processes = append(p.Processes, processOf(c))
	}
}

func (h *handler) locks(p *page, locks []Lock, next string) {
	for _, l := range locks {
		p.Locks = append(p.Locks, h.row(p, l))
	}
	if next != "" {
		p.Next = h.seal.close("page", next)
	}
}

// one turns p into a page that shows one lock.
func (h *handler) one(r *http.Request, p *page, l Lock) {
	row := h.row(p, l)
	p.Lock = &row
	_, p.Revoke = h.may(r, RevokeHold)
	_, p.Now = h.may(r, ReleaseNow)
}

// sure turns p into a page that asks the operator to confirm a release.
func (h *handler) sure(p *page, l Lock, x Hold) {
	p.Sure = &confirmed{h.ref(p, l.Name, l.Digest, l.Key), holdRowOf(x)}
}

func (h *handler) row(p *page, l Lock) lockRow {
	row := lockRow{ref: h.ref(p, l.Name, l.Digest, l.Key)}
	for _, x := range l.Holds {
		row.Holds = append(row.Holds, holdRowOf(x))
	}
	for _, x := range l.Waiters {
		row.Waiters = append(row.Waiters, holdRowOf(x))
	}
	if l.Run != nil {
		row.Run = &runRow{l.Run.Attempt, l.Run.Done, ms(l.Run.Left)}
	}
	return row
}

func holdRowOf(h Hold) holdRow {
	row := holdRow{ID: h.ID, Mode: h.Mode().String(), Kind: h.Kind(), Weight: h.Weight, Fair: h.Fair, Age: ms(h.Age), Left: ms(h.Left), Trace: h.Trace}
	if h.ID == "" {
		row.Kind = "rest of a revoked hold"
	}
	switch {
	case h.Card != nil:
		p := processOf(*h.Card)
		row.Process = &p
	case h.Process != "":
		row.Process = &process{ID: h.Process}
	}
	return row
}
