package otellock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// otherName is the label of the names that have no series of their own, as semantic
// conventions have it for values that are not listed.
const otherName = "_OTHER"

// names has the series of each name, at most so many, and of the others together: a
// careless caller cannot make a series of each of its names.
type names struct {
	most     int
	constant []attribute.KeyValue
	other    *series

	known atomic.Pointer[map[string]*series] // is replaced, never changed
	full  atomic.Bool                        // other was asked for

	mu sync.Mutex // of what replaces known
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

// of returns the series of the name, and tells whether they are asked for the first
// time.
func (n *names) of(name string) (s *series, isNew bool) {
	known := *n.known.Load()
	if s = known[name]; s != nil {
		return s, false
	}
	if len(known) >= n.most {
		return n.other, !n.full.Load() && n.full.CompareAndSwap(false, true)
	}
	if s, isNew = n.add(name); s == nil {
		return n.of(name) // others have taken what was left
	}
	return s, isNew
}

// all calls f with each series, until it returns false.
func (n *names) all(f func(*series) bool) {
	for _, s := range *n.known.Load() {
		if !f(s) {
			return
		}
	}
	f(n.other)
}

// add gives the name series of its own, nil if there is no room.
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
