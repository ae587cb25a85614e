package pgtest

import (
	"sync"
	"testing"
	"time"
)

// Kind is what happens to a statement.
type Kind int

// The kinds.
const (
	LoseRequest Kind = iota // the connection breaks before the server sees it
	LoseReply               // the connection breaks when the server has done it
	Silence                 // the server does it, and nothing is heard of that
	HoldRequest             // it arrives when Deliver is called, whether somebody waits for it or not
)

// Fault befalls one statement.
type Fault struct {
	kind    Kind
	parts   []string
	bit     chan struct{}
	deliver chan struct{}
	arrived chan struct{}
	once    sync.Once
}

// Await fails the test unless the fault befalls a statement.
func (f *Fault) Await(t testing.TB) {
	t.Helper()
	select {
	case <-f.bit:
	case <-time.After(20 * time.Second):
		t.Fatalf("pgtest: no statement with %q came", f.parts)
	}
}

// Bit is closed when the fault befalls a statement.
func (f *Fault) Bit() <-chan struct{} { return f.bit }

// Deliver lets a held statement go on, and waits until the server has answered.
func (f *Fault) Deliver(t testing.TB) {
	t.Helper()
	f.once.Do(func() { close(f.deliver) })
	select {
	case <-f.arrived:
	case <-time.After(20 * time.Second):
		t.Fatal("pgtest: the server did not answer what was held")
	}
}
