package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A scene is one mistake, made and then not made. Its verdict, the same for
// both sides, looks into Redis and tells whether the lock failed.
type scene struct {
	title      string
	naive, kit side
	verdict    func(context.Context, *stage) (failed bool, seen string)
}

// A side plays its part of a scene; why says in a line what comes of it.
type side struct {
	why  string
	play func(context.Context, *stage)
}

// scenes is the road, in the order in which it is usually walked.
var scenes = []scene{
	noExpiry, expiryApart,
	blindDelete, compareApart,
	shortLease, nestedCall,
	noToken,
}

// ttl is the lease of holders that are going to lose it, or would without being
// extended: short enough to wait for, and long enough for a busy machine.
const ttl = 2 * time.Second

// long is the lease of holders that are not going to.
const long = time.Minute

// order is what is locked.
var order = core.Key("order", "42")

// outcome is what the verdict says, or why there is none.
type outcome struct {
	failed bool
	seen   string
	err    error
}

// perform plays one side and reads the verdict, then clears the stage.
func perform(ctx context.Context, s *stage, side side, verdict func(context.Context, *stage) (bool, string)) (o outcome) {
	s.ctx = ctx
	defer func() {
		if err := s.clear(); err != nil && o.err == nil {
			o.err = err
		}
	}()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case unplayable:
			o.err = r.error
		default:
			panic(r)
		}
	}()
	side.play(ctx, s)
	o.failed, o.seen = verdict(ctx, s)
	return o
}

// unplayable ends a scene by panic: its script cannot go on, which says nothing
// about the lock.
type unplayable struct{ error }

// must is a command that has to work for the scene to go on.
func must[T any](v T, err error) T {
	if err != nil {
		panic(unplayable{err})
	}
	return v
}

// granted tells whether an attempt got the lock, or found it busy.
func granted(_ *core.Lease, err error) bool {
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	must(0, err)
	return true
}

// need ends a scene that would show nothing.
func need(ok bool, what string) {
	if !ok {
		panic(unplayable{fmt.Errorf("the scene went otherwise: %s", what)})
	}
}
