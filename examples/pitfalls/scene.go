package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// scene shows one mistake: the naive side makes the mistake, and the other side uses
// the kit. The same verdict judges both sides. It reads Redis and reports whether the
// lock failed.
type scene struct {
	title      string
	naive, kit side
	verdict    func(context.Context, *stage) (failed bool, seen string)
}

// side is one version of a scene. why explains the outcome in one line.
type side struct {
	why  string
	play func(context.Context, *stage)
}

// scenes has the mistakes in the order in which people usually make them.
var scenes = []scene{
	noExpiry, expiryApart,
	blindDelete, compareApart,
	shortLease, nestedCall,
	noToken,
}

// ttl is the TTL of holders that lose their lock or depend on extensions. It is short
// enough to wait for its expiry, and long enough for a busy machine.
const ttl = 2 * time.Second

// long is the TTL of the other naive locks that expire.
const long = time.Minute

var order = core.Key("order", "42")

// outcome is the verdict, or the reason why there is none.
type outcome struct {
	failed bool
	seen   string
	err    error
}

// perform plays one side and evaluates the verdict, and then clears the stage.
func perform(ctx context.Context, s *stage, side side, verdict func(context.Context, *stage) (bool, string)) (o outcome) {
	s.ctx = ctx
	defer s.watchMachine()()
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
			if s.stoodStill() && !errors.Is(r.error, errStoodStill) {
				o.err = fmt.Errorf("%w: %w", errStoodStill, r.error)
			}
		default:
			panic(r)
		}
	}()
	side.play(ctx, s)
	o.failed, o.seen = verdict(ctx, s)
	return o
}

// unplayable is the value of a panic that ends a scene. It means that the scene cannot
// continue, and shows nothing about the lock.
type unplayable struct{ error }

// must returns v. If err is not nil, the scene cannot continue, and must panics.
func must[T any](v T, err error) T {
	if err != nil {
		panic(unplayable{err})
	}
	return v
}

// granted reports whether an attempt was granted the lock. It returns false if the lock
// was busy, and panics after other errors.
func granted(_ *core.Lease, err error) bool {
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	must(0, err)
	return true
}

// need panics if ok is false, because then the scene would show nothing.
func need(ok bool, what string) {
	if !ok {
		panic(unplayable{fmt.Errorf("the scene went otherwise: %s", what)})
	}
}
