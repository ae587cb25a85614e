package redisstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// fleet is a sender for each master of a cluster.
type fleet struct {
	cluster *redis.ClusterClient
	known   atomic.Bool // where the slots are; the client need not ask
	senders sync.Map    // *redis.Client to *sender
	closed  atomic.Bool
}

// senderOf returns the sender to the master of a key, nil if that is not known.
func (f *fleet) senderOf(ctx context.Context, key string) *sender {
	if !f.known.Load() {
		return nil
	}
	master, err := f.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil
	}
	if s, ok := f.senders.Load(master); ok {
		return s.(*sender)
	}
	fresh := newSender(master)
	fresh.closed = f.closed.Load()
	s, known := f.senders.LoadOrStore(master, fresh)
	if !known {
		f.forget(master)
	}
	return s.(*sender)
}

// forget drops the senders that have nothing to do, but for one: their masters
// may be gone. Who still has one of them may use it.
func (f *fleet) forget(but *redis.Client) {
	f.senders.Range(func(master, s any) bool {
		if master != but && s.(*sender).idle() {
			f.senders.Delete(master)
		}
		return true
	})
}

func (f *fleet) close() {
	f.closed.Store(true)
	f.senders.Range(func(_, s any) bool {
		s.(*sender).close()
		return true
	})
}
