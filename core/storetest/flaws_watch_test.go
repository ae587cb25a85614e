package storetest_test

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// watchFlaws lists flaws of wake-ups, and of calls with a done context.
var watchFlaws = []flaw{
	{"wakes no waiter", []string{
		"watch/release wakes another process",
		"watch/release wakes the same process",
		"watch/watch opened before the claim",
		"watch/one watch of two stops",
		"wake-ups/release of an unknown lease",
		"wake-ups/wake-ups admit all writers",
		"records/finished record wakes all waiters",
	}, func(s *tampered) {
		s.watch = func(context.Context, store.Claim) (<-chan struct{}, error) {
			return make(chan struct{}), nil
		}
	}},
	{"opens a watch a little later", []string{
		"watch/watch is live when returned",
	}, func(s *tampered) {
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			out := make(chan struct{}, 1)
			go func() {
				select {
				case <-time.After(time.Millisecond):
					forward(ctx, s, c, out)
				case <-ctx.Done():
				}
			}()
			return out, nil
		}
	}},
	{"watches only claims that wait already", []string{
		"watch/watch opened before the claim",
		"watch/watch wakes again and again",
	}, func(s *tampered) {
		s.acquire = s.acquireWaiting
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			if _, waits := s.noted(c.Lease); !waits {
				return make(chan struct{}), nil
			}
			return s.Store.Watch(ctx, c)
		}
	}},
	{"wakes a watch once", []string{
		"watch/watch wakes again and again",
		"wake-ups/late waiter is woken again",
		"wake-ups/late fair waiter is woken again",
		"wake-ups/overtaken fair waiter is woken again",
	}, func(s *tampered) {
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			ctx, end := context.WithCancel(ctx)
			woken, err := s.Store.Watch(ctx, c)
			out := make(chan struct{}, 1)
			go func() {
				defer end()
				select {
				case <-woken:
					out <- struct{}{}
				case <-ctx.Done():
				}
			}()
			return out, err
		}
	}},
	{"wakes the whole line", []string{
		"watch/release wakes few waiters",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Wait {
				s.queue(c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			for _, w := range s.queued() {
				// Each release wakes the next of the waiters that are left.
				_ = s.Store.Release(ctx, w)
			}
			return err
		}
	}},
	{"never stops a watch", []string{
		"watch/watch stops with its context",
	}, func(s *tampered) {
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			return s.Store.Watch(s.over, c)
		}
	}},
	{"stops all watches with one", []string{
		"watch/one watch of two stops",
	}, func(s *tampered) {
		ends := make(map[string][]context.CancelFunc)
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			shared, end := context.WithCancel(s.over)
			defer s.lock()()
			ends[c.Lease] = append(ends[c.Lease], end)
			context.AfterFunc(ctx, func() {
				defer s.lock()()
				for _, end := range ends[c.Lease] {
					end()
				}
			})
			return s.Store.Watch(shared, c)
		}
	}},
	{"leaves a goroutine for each watch", []string{
		"watch/watches leave nothing running",
	}, func(s *tampered) {
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			go func() { <-s.over.Done() }()
			return s.Store.Watch(ctx, c)
		}
	}},
	{"wakes at a release only", []string{
		"wake-ups/wake-ups admit all readers",
		"wake-ups/wake-ups admit all fair readers",
		"wake-ups/wake-ups admit all permits",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.acquire = func(ctx context.Context, c store.Claim) (g store.Grant, err error) {
			s.gate(func() bool {
				g, err = s.Store.Acquire(ctx, c)
				return false
			})
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gate(func() bool {
				err = s.Store.Release(ctx, c)
				return true
			})
			return err
		}
	}},
	{"wakes no waiter when another leaves", []string{
		"wake-ups/woken waiter leaves",
		"wake-ups/woken fair waiter leaves",
		"wake-ups/release of an unknown lease",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.acquire = func(ctx context.Context, c store.Claim) (g store.Grant, err error) {
			s.gate(func() bool {
				g, err = s.acquireNotedByLease(ctx, c)
				return true
			})
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gate(func() bool {
				err = s.Store.Release(ctx, c)
				_, held := s.noted(c.Key + c.Lease)
				return held
			})
			return err
		}
	}},
	{"wakes no waiter of kept keys", []string{
		"wake-ups/waiter of kept key",
		"wake-ups/fair waiter of kept key",
		"wake-ups/waiter of kept permits",
		"wake-ups/second waiter of kept key",
		"wake-ups/woken waiter keeps its place",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.acquire = func(ctx context.Context, c store.Claim) (g store.Grant, err error) {
			s.gate(func() bool {
				g, err = s.Store.Acquire(ctx, c)
				return true
			})
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gate(func() bool {
				err = s.Store.Release(ctx, c)
				return c.Keep == 0
			})
			return err
		}
	}},
	{"wakes one waiter of kept permits", []string{
		"wake-ups/waiter beside kept permits",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gateSome(func() (pass int) {
				err = s.Store.Release(ctx, c)
				return 1
			})
			return err
		}
	}},
	{"forgets places for a kept key", []string{
		"wake-ups/woken waiter keeps its place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Wait {
				s.queue(c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			for _, w := range s.queued() {
				if c.Keep > 0 {
					w.TTL = 0
					_ = s.Store.Release(ctx, w)
				}
			}
			return err
		}
	}},
	{"ignores the context", []string{
		"contexts/done context opens no watch",
	}, func(s *tampered) {
		s.watch = func(context.Context, store.Claim) (<-chan struct{}, error) { return nil, nil }
	}},
	{"hides the cause of a context", []string{
		"contexts/done context claims nothing",
		"contexts/done context harms no hold",
		"contexts/release after a done context",
		"contexts/done context opens no watch",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			return g, hideCause(err)
		}
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			return hideCause(s.extendSound(ctx, c))
		})
		s.release = func(ctx context.Context, c store.Claim) error {
			return hideCause(s.Store.Release(ctx, c))
		}
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			woken, err := s.Store.Watch(ctx, c)
			return woken, hideCause(err)
		}
	}},
	{"continues with a done context", []string{
		"contexts/done context claims nothing",
		"contexts/done context harms no hold",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if ctx.Err() != nil {
				time.Sleep(time.Minute)
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"acquires with a done context", []string{
		"contexts/done context claims nothing",
		"contexts/context done during the call",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrUnavailable) {
				c.Lease += "+"
				_, _ = s.Store.Acquire(context.WithoutCancel(ctx), c)
			}
			return g, err
		}
	}},
	{"answers an extension of nothing", []string{
		"extend/extension of nothing answers nothing",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			return append(s.Store.Extend(ctx, claims), store.Extension{})[:max(1, len(claims))]
		}
	}},
}

// gated is a watch that receives only the wake-ups that gate forwards.
type gated struct {
	claim store.Claim
	out   chan struct{}
}

func (s *tampered) watchGated(_ context.Context, c store.Claim) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	defer s.lock()()
	s.gates = append(s.gates, gated{c, out})
	return out, nil
}

// gate calls call. If call returns true, gate forwards the wake-ups that the call caused.
func (s *tampered) gate(call func() (pass bool)) {
	s.gateSome(func() (pass int) {
		if call() {
			pass = math.MaxInt
		}
		return pass
	})
}

// gateSome calls call, and forwards at most as many of the call's wake-ups as call
// returns.
func (s *tampered) gateSome(call func() (pass int)) {
	unlock := s.lock()
	gates := append([]gated(nil), s.gates...)
	unlock()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	woken := make([]<-chan struct{}, len(gates))
	for i, g := range gates {
		woken[i], _ = s.Store.Watch(ctx, g.claim)
	}
	pass := call()
	for i, g := range gates {
		if pass > 0 && len(woken[i]) > 0 {
			pass--
			select {
			case g.out <- struct{}{}:
			default:
			}
		}
	}
}

func forward(ctx context.Context, s *tampered, c store.Claim, out chan<- struct{}) {
	woken, err := s.Store.Watch(ctx, c)
	if err != nil {
		return
	}
	for {
		select {
		case <-woken:
			out <- struct{}{}
		case <-ctx.Done():
			return
		}
	}
}

func hideCause(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return store.ErrUnavailable
	}
	return err
}
