package otellock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// otherName is the label of names without their own series. OpenTelemetry's semantic
// conventions use this text for unlisted values.
const otherName = "_OTHER"

// names has the series of each name, up to a limit, and one series for all other names.
// The limit protects against a caller that uses many names.
type names struct {
	most     int
	constant []attribute.KeyValue
	other    *series

	known atomic.Pointer[map[string]*series] // the map is replaced, never changed
	full  atomic.Bool                        // of has returned other

	mu sync.Mutex // serializes replacements of known
}

func newNames(most int, constant []attribute.KeyValue) *names {
	n := &names{most: most, constant: slices.Clone(constant)}
	n.other = n.series(otherName)
	n.known.Store(&map[string]*series{})
	return n
}

func (n *names) series(label string) *series {
	return &series{label: label, base: append(slices.Clip(n.constant), keyName.String(label))}
}

// of returns the series of the name. isNew reports whether this call is the first call
// that returns the series.
func (n *names) of(name string) (s *series, isNew bool) {
	known := *n.known.Load()
	if s = known[name]; s != nil {
		return s, false
	}
	if len(known) >= n.most {
		return n.other, !n.full.Load() && n.full.CompareAndSwap(false, true)
	}
	if s, isNew = n.add(name); s == nil {
		return n.of(name) // other names have taken the remaining room
	}
	return s, isNew
}

// all passes each series to f, until f returns false.
func (n *names) all(f func(*series) bool) {
	for _, s := range *n.known.Load() {
		if !f(s) {
			return
		}
	}
	f(n.other)
}

// add returns the series of the name, or nil if there is no room. isNew reports whether
// add has created the series.
func (n *names) add(name string) (s *series, isNew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := *n.known.Load()
	if s = known[name]; s != nil || len(known) >= n.most {
		return s, false
	}
	more := maps.Clone(known)
	s = n.series(name)
	more[name] = s
	n.known.Store(&more)
	return s, true
}
