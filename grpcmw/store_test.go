package grpcmw_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// stub is a store whose answers a test can replace.
type stub struct {
	*memstore.Store
	acquire  atomic.Pointer[error] // the error of Acquire
	extend   atomic.Pointer[error] // the error of Extend
	unheard  atomic.Bool           // Acquire is done, and its answer lost
	attempts atomic.Int32
	releases atomic.Int32
}

func (s *stub) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.attempts.Add(1)
	if err := s.acquire.Load(); err != nil {
		return store.Grant{}, *err
	}
	g, err := s.Store.Acquire(ctx, c)
	if s.unheard.Load() {
		return store.Grant{}, errors.New("the reply was lost")
	}
	return g, err
}

func (s *stub) Release(ctx context.Context, c store.Claim) error {
	s.releases.Add(1)
	return s.Store.Release(ctx, c)
}

func (s *stub) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if err := s.extend.Load(); err != nil {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = *err
		}
		return answers
	}
	return s.Store.Extend(ctx, claims)
}

// reasons collects the errors that an outer interceptor sees.
type reasons struct {
	mu   sync.Mutex
	list []error
}

func (r *reasons) option() grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		reply, err := next(ctx, req)
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.list = append(r.list, err)
		}
		return reply, err
	})
}

func (r *reasons) last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return nil
	}
	return r.list[len(r.list)-1]
}
