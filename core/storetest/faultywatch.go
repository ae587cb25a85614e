package storetest

import (
	"context"

	"github.com/lockkit/lockkit/core/store"
)

type faultyWatch struct {
	store  store.Watcher
	faults *Faults
}

type watching struct {
	woken <-chan struct{}
	err   error
}

func (f faultyWatch) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	open, end := context.WithCancel(ctx)
	r := pass(ctx, f.faults, f.faults.take(OpWatch, []store.Claim{c}), func(context.Context) watching {
		// The watch has its own context, because it lasts longer than the call.
		woken, err := f.store.Watch(open, c)
		return watching{woken, err}
	}, func(err error) watching { return watching{err: err} })
	if r.err != nil {
		end()
		return nil, r.err
	}
	out := make(chan struct{}, 1)
	f.faults.opened(out, end)
	go f.forward(open, r.woken, out)
	return out, nil
}

func (f faultyWatch) forward(open context.Context, woken <-chan struct{}, out chan struct{}) {
	defer f.faults.ended(out)
	for {
		select {
		case <-open.Done():
			return
		case _, ok := <-woken:
			if !ok {
				return
			}
			if f.faults.deaf() || open.Err() != nil {
				continue
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}
}

func (f *Faults) opened(out chan struct{}, end context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches == nil {
		f.watches = make(map[chan struct{}]context.CancelFunc)
	}
	f.watches[out] = end
}

func (f *Faults) ended(out chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[out]()
	delete(f.watches, out)
	close(out)
}

func (f *Faults) deaf() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.muted
}
