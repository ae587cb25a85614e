package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
)

func (p *Pipeline) serverOf(ctx context.Context, key name) (*server, error) {
	if p.cluster == nil {
		return p.server, nil
	}
	master, err := p.masterOf(ctx, key.String())
	if err != nil {
		return nil, err
	}
	to, known := p.wayTo(master)
	if !known {
		p.forget()
	}
	return to, nil
}

// masterOf returns the master of a key. The client may first have to ask for the slots.
// That takes at most Limit, and the caller can leave in the meantime. A later call can
// then find the slots.
func (p *Pipeline) masterOf(ctx context.Context, key string) (*redis.Client, error) {
	if p.located.Load() {
		return p.cluster.MasterForKey(ctx, key)
	}
	return Detached(ctx, func() (*redis.Client, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
		defer cancel()
		master, err := p.cluster.MasterForKey(ctx, key)
		if err == nil {
			p.located.Store(true)
		}
		return master, err
	})
}

// wayTo returns the server of a master, and reports whether it was known.
func (p *Pipeline) wayTo(master *redis.Client) (to *server, known bool) {
	way, known := p.masters.Load(master)
	if !known {
		way, known = p.masters.LoadOrStore(master, newServer(master, p.closed.Load()))
	}
	to = way.(*server)
	to.used.Store(time.Now().UnixNano())
	return to, known
}

// forget removes the servers that have been unused for forgetServerAfter, because their
// masters may no longer exist. Callers that still have a removed server may use it.
func (p *Pipeline) forget() {
	p.masters.Range(func(master, to any) bool {
		if to := to.(*server); to.sender.unused() && time.Since(time.Unix(0, to.used.Load())) > forgetServerAfter {
			p.masters.Delete(master)
			go to.close()
		}
		return true
	})
}

// forgetServerAfter is long, because a server that is forgotten too early loses its
// known outage.
const forgetServerAfter = time.Minute

// ErrElsewhere is the error of a Timed call that was not sent, or was refused by a
// server without the slot. A TIME has no key. Only a client of one server is sure to
// send the TIME to the server of the call.
var ErrElsewhere = errors.New("the time of the key's server cannot be asked for")

// follow returns the server for a key after the error reply err, and reports whether
// the slot is about to move there. The client asks one server after another for the
// slots, until one answers. A silent server delays that, so the caller can leave in the
// meantime.
func (p *Pipeline) follow(ctx context.Context, key name, err error) (to *server, asking bool, _ error) {
	p.cluster.ReloadState(ctx)
	addr, asking := redis.IsAskError(err)
	if !asking {
		addr, _ = redis.IsMovedError(err)
	}
	var found atomic.Pointer[redis.Client]
	_, err = Detached(ctx, func() (struct{}, error) {
		return struct{}{}, p.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			if master.Options().Addr == addr {
				found.Store(master)
			}
			return nil
		})
	})
	if master := found.Load(); master != nil {
		to, _ := p.wayTo(master)
		return to, asking, nil
	}
	if ctx.Err() != nil {
		return nil, false, err
	}
	to, err = p.serverOf(ctx, key)
	return to, false, err
}

// elsewhere reports whether err only means that the call has to be sent to another
// server.
func elsewhere(err error) bool {
	return replied(err, "MOVED") || replied(err, "ASK") || replied(err, "READONLY") || !Sent(err) && errors.Is(err, redis.ErrClosed)
}

func replied(err error, code string) bool { return err != nil && redis.HasErrorPrefix(err, code) }

// pursue waits before a call is sent again. The call was tried n times, and each time
// had to be sent to another server. pursue returns false if the call must not be sent
// again. While a slot is handed over, both masters can name each other for a moment. A
// slot that moves several times can already have moved on from the named master. All
// waits together take half a second.
func pursue(ctx context.Context, n int) bool {
	return n <= 10 && clock.Sleep(ctx, time.Millisecond/2<<(n-1)) == nil
}
