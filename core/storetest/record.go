package storetest

import (
	"bytes"
	"strings"
	"sync"

	"github.com/lockkit/lockkit/core/store"
)

var recordCases = []testCase{
	{"finished record answers without claiming", []Feature{Records}, func(e *env) {
		e.finish("answer")
		c := e.run("again")
		e.answered(e.other, c, "answer")
		e.notExtended(e.other, c)
		e.isFree()
	}},
	{"Retain is the time left", []Feature{Records}, func(e *env) {
		e.finish("answer")
		e.sleep(e.units(5))
		g := e.acquire(e.other, e.run("again"))
		if g.Record == nil || g.Record.Retain > e.long-e.units(5) || g.Record.Retain <= 0 {
			e.Fatalf("acquire: got record %+v, want one that is kept for less than %v", g.Record, e.long-e.units(5))
		}
	}},
	{"finished record answers repeatedly", []Feature{Records}, func(e *env) {
		e.finish("answer")
		c := e.run("again")
		for range 3 {
			e.answered(e.store, c, "answer")
			e.answered(e.other, e.run("again"), "answer")
		}
	}},
	{"finished record of a held key", []Feature{Records}, func(e *env) {
		e.finish("answer")
		e.acquire(e.store, e.exclusive())
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"finished record answers a waiter", []Feature{Records}, func(e *env) {
		c, w := e.run("begun"), e.run("again")
		w.Wait = true
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, w, "answer")
		e.notReleased(e.other, w)
		e.isFree()
	}},
	{"finished record wakes all waiters", []Feature{Records, Watching}, func(e *env) {
		c := e.run("begun")
		e.acquire(e.store, c)
		var all sync.WaitGroup
		for range 4 {
			w := e.run("again")
			w.Wait = true
			e.busy(e.other, w)
			woken := e.watch(e.other, w)
			all.Go(func() {
				if err := e.getIn(e.other, w, woken); err != nil {
					e.Errorf("a waiter: %v", err)
				}
			})
		}
		e.release(e.store, e.done(c, "answer"))
		all.Wait()
	}},
	{"claim without a record", []Feature{Records}, func(e *env) {
		e.finish("answer")
		c := e.exclusive()
		e.acquire(e.store, c)
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"record outlives later holds", []Feature{Records}, func(e *env) {
		e.finish("answer")
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.isFree()
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"record expires after Retain", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.acquire(e.store, c)
		last := e.done(c, "answer")
		last.Record.Retain = e.units(10)
		e.release(e.store, last)
		e.answered(e.other, e.run("again"), "answer")
		e.outlive(last.Record.Retain)
		next := e.run("anew")
		e.begins(e.other, next, "anew", 1)
	}},
	{"last write renews the retention", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.Record.Retain = e.units(5)
		e.acquire(e.store, c)
		e.release(e.store, e.done(c, "answer"))
		e.outlive(e.units(5))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"record of any bytes", []Feature{Records}, func(e *env) {
		for _, value := range []string{
			"", "\x00\xff\xfe binary", strings.Repeat("long ", 20_000), "line\r\nbreak", `{"json":"\u0000"}`,
		} {
			e.key += "+"
			c := e.run("begun")
			e.acquire(e.store, c)
			e.release(e.store, e.done(c, value))
			e.answered(e.other, e.run("again"), value)
		}
	}},
	{"record belongs to one key", []Feature{Records}, func(e *env) {
		e.finish("answer")
		e.key += ":elsewhere"
		e.begins(e.store, e.run("begun"), "begun", 1)
	}},
}

// run returns a claim of a new owner with a record.
func (e *env) run(value string) store.Claim {
	c := e.exclusive()
	c.Record = &store.Record{Value: []byte(value), Retain: e.long}
	return c
}

// done returns the claim with which the holder of c releases c and saves answer.
func (e *env) done(c store.Claim, answer string) store.Claim {
	c.Record = &store.Record{Value: []byte(answer), Attempt: 1, Done: true, Retain: e.long}
	return c
}

// finish makes the first run of the key and saves its answer.
func (e *env) finish(answer string) {
	e.Helper()
	c := e.run("begun")
	e.acquire(e.store, c)
	e.release(e.store, e.done(c, answer))
}

// begins acquires c, and fails the case unless c is granted as a run with this attempt
// and value.
func (e *env) begins(s store.Store, c store.Claim, value string, attempt int) {
	e.Helper()
	r := e.acquire(s, c).Record
	switch {
	case r == nil:
		e.Fatal("acquire: granted without a record")
	case r.Done:
		e.Fatalf("acquire: answered with %q, want a run", r.Value)
	case string(r.Value) != value || r.Attempt != attempt:
		e.Fatalf("acquire: got attempt %d with value %q, want attempt %d with %q",
			r.Attempt, r.Value, attempt, value)
	case r.Retain <= 0 || r.Retain > c.Record.Retain:
		e.Fatalf("acquire: the record is kept for %v, want at most %v", r.Retain, c.Record.Retain)
	}
}

// answered acquires c, and fails the case unless s returns a finished record with answer.
func (e *env) answered(s store.Store, c store.Claim, answer string) {
	e.Helper()
	r := e.acquire(s, c).Record
	if r == nil || !r.Done {
		e.Fatalf("acquire: got record %+v, want a finished one", r)
	}
	if !bytes.Equal(r.Value, []byte(answer)) {
		e.Fatalf("acquire: answered with %.40q, want %.40q", r.Value, answer)
	}
	if r.Retain <= 0 || r.Retain > e.long {
		e.Fatalf("acquire: the answer is kept for %v, want at most %v", r.Retain, e.long)
	}
}
