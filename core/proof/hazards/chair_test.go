package hazards_test

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// lead takes part in the election of a key until the worker is ordered to stop. Its work
// checks again and again whether this process leads, and continues for a while after the
// process has stopped leading. For each term, lead reports the start of the term, and
// later the interval in which the worker believed that it led.
func (w *worker) lead(o order) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-w.stop
		cancel()
	}()
	chair, err := leader.New(w.locker, o.Key, leader.Acquire(o.options()...))
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	w.chair = chair
	w.mu.Unlock()
	w.say(report{ID: o.ID, Kind: "candidate", At: mono()})
	err = chair.Run(ctx, func(ctx context.Context) error {
		lease, _ := core.LeaseFromContext(ctx)
		s := span{Key: o.Key, Who: w.Name, From: mono(), Token: lease.Token()}
		w.say(report{ID: o.ID, Kind: "leading", At: s.From, Token: s.Token})
		for at := mono(); ctx.Err() == nil && chair.IsLeader(ctx) == nil; at = mono() {
			s.Until = at
			time.Sleep(time.Millisecond)
		}
		w.say(report{ID: o.ID, Kind: "term", At: mono(), OK: true, Span: s})
		time.Sleep(o.Pause)
		return nil
	})
	w.say(failed(o.ID, "left", err))
}

// Observe reports that a campaign of the worker waits for the leader. A process that has
// resigned also looks at the key, which is no campaign.
func (w *worker) Observe(_ context.Context, e core.Event) {
	w.mu.Lock()
	candidate := w.chair != nil
	w.mu.Unlock()
	if candidate && e.Kind == core.Busy && e.Name != "leader-look" {
		w.say(report{Kind: "campaigning", At: mono()})
	}
}

func (w *worker) resign(o order) {
	w.mu.Lock()
	chair := w.chair
	w.mu.Unlock()
	chair.Resign()
	w.say(report{ID: o.ID, Kind: "resigned", At: mono()})
}
