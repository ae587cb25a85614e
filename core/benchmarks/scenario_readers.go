package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

const (
	readerGoroutines = 64
	readerCrowd      = 2000
	readerTrip       = 15 * time.Millisecond
)

func readers() scenario {
	sc := scenario{
		name: "readers", title: "readers of one key",
		about: fmt.Sprintf("Acquire and release with core.Shared by %d goroutines, each with its own key, and then all with one key. In and out are the "+
			"times in which %d goroutines acquire one key, and then release it. In the second row the server's replies come %v later. A proxy of the program is between client and server.",
			readerGoroutines, readerCrowd, readerTrip),
		columns: []Column{
			{Key: "own", Title: "own keys, cycles/s", Better: More},
			{Key: "one", Title: "one key, cycles/s", Better: More},
			{Key: "ratio", Title: "one to own", Digits: 2, Better: More},
			{Key: "in", Title: "in, s", Digits: 2, Better: Less},
			{Key: "out", Title: "out, s", Digits: 2, Better: Less},
		},
		run: func(b *bench, s *Section) error {
			near, err := openReaders(b.server.addr, 0)
			if err != nil {
				return err
			}
			far, err := openReaders(b.server.addr, readerTrip)
			if err != nil {
				return errors.Join(err, near.close())
			}
			return b.interleave(s, b.rounds, []station{b.readers("lockkit", near), b.readers("lockkit, 15 ms away", far)})
		},
	}
	for _, who := range []string{"lockkit", "lockkit, 15 ms away"} {
		sc.targets = append(sc.targets, target{who: who, key: "ratio", least: true, limit: 0.6},
			target{who: who, key: "in", limit: 2}, target{who: who, key: "out", limit: 2})
	}
	return sc
}

// openReaders returns locks whose acquire is shared. Each reply of the server is delayed.
func openReaders(addr string, delay time.Duration) (*locks, error) {
	proxy, err := startDistant(addr, delay)
	if err != nil {
		return nil, err
	}
	client := goRedis(opening{addr: proxy.Addr().String(), conns: readerGoroutines})
	store, err := redisstore.New(client)
	if err != nil {
		return nil, errors.Join(err, client.Close(), proxy.Close())
	}
	locker, err := core.New(store, core.WithDefaults(core.TTL(ttl), core.Shared()))
	if err != nil {
		return nil, errors.Join(err, store.Close(), client.Close(), proxy.Close())
	}
	return lockerLocks(locker, store.Close, client.Close, proxy.Close), nil
}

func (b *bench) readers(name string, l *locks) station {
	return station{contender: contender{name: name, kind: Kit}, close: l.close, round: func(round int) (o outcome, err error) {
		prefix := fmt.Sprintf("readers:%s:%d", name, round)
		rate := func(key func(g int) string) float64 {
			gates := make([]gate, readerGoroutines)
			for g := range gates {
				gates[g] = newGate() // readers may be inside together
			}
			t, runErr := load{
				goroutines: readerGoroutines, key: key, gate: func(g int) gate { return gates[g] },
				get: func(int) acquirer { return l.acquire }, warm: b.window / 5, window: b.window, drain: b.drain, cancelable: true,
				mark: func() error { return nil },
			}.run(b.ctx)
			err = errors.Join(err, runErr)
			o.add(t)
			return t.total() / t.Took
		}
		own := rate(func(g int) string { return fmt.Sprint(prefix, ":", g) })
		one := rate(func(int) string { return prefix })
		in, out, crowdErr := b.readerCrowd(l, prefix+":crowd")
		o.figures = map[string]float64{"own": own, "one": one, "ratio": one / max(own, 1), "in": in, "out": out}
		return o, errors.Join(err, crowdErr)
	}}
}

// readerCrowd makes a crowd of readers acquire and release key. in and out are the
// times of the acquires and of the releases, in seconds.
func (b *bench) readerCrowd(l *locks, key string) (in, out float64, err error) {
	held, errs := make([]lease, readerCrowd), make([]error, readerCrowd)
	timed := func(f func(i int)) float64 {
		start := time.Now()
		var all sync.WaitGroup
		for i := range readerCrowd {
			all.Go(func() { f(i) })
		}
		all.Wait()
		return time.Since(start).Seconds()
	}
	in = timed(func(i int) { held[i], errs[i] = l.acquire(b.ctx, key) })
	out = timed(func(i int) {
		if errs[i] == nil {
			errs[i] = held[i].Release(b.ctx)
		}
	})
	return in, out, errors.Join(errs...)
}

// startDistant listens for clients of the server at addr. The server's data arrives at
// the clients after delay.
func startDistant(addr string, delay time.Duration) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			go forwardLate(client, server, delay)
		}
	}()
	return listener, nil
}

// late is data of the server, with the time at which the data arrives.
type late struct {
	data []byte
	due  time.Time
}

// forwardLate copies from server to client, and closes client at the end.
func forwardLate(client, server net.Conn, delay time.Duration) {
	pieces := make(chan late, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 16<<10)
			n, err := server.Read(data)
			if err != nil {
				return
			}
			pieces <- late{data[:n], time.Now().Add(delay)}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		_, _ = client.Write(p.data) // after an error, the rest is read and dropped
	}
	client.Close()
}
