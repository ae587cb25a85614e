package sim_test

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// network is one server and the connections to it.
type network struct {
	server *miniredis.Miniredis
	plan   plan
	began  time.Time
	wg     sync.WaitGroup // counts deliveries in flight

	mu      sync.Mutex
	links   map[*link]struct{}
	sent    map[int]uint64        // number of commands, by client
	paused  map[int]time.Duration // time until which nothing passes, by client
	bit     [faults]int
	doubled []time.Duration // times at which duplicates had arrived
	eternal map[string]bool // keys that were seen without an expiry
}

func newNetwork(p plan) *network {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	return &network{
		server: server, plan: p, began: time.Now(), links: make(map[*link]struct{}),
		sent: make(map[int]uint64), paused: make(map[int]time.Duration), eternal: make(map[string]bool),
	}
}

func (n *network) now() time.Duration { return time.Since(n.began) }

// dialer returns a function that connects a client. If looks is true, the client checks
// idle connections before it reuses them.
func (n *network) dialer(client int, looks bool) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		server, err := n.server.Dial()
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		l := &link{
			network: n, client: client, server: server, back: far,
			out: make(chan []byte, 1000), gone: make(chan struct{}), broken: make(chan struct{}),
		}
		n.mu.Lock()
		n.links[l] = struct{}{}
		n.mu.Unlock()
		l.run()
		c := &conn{Conn: near, link: l}
		if looks {
			return open{c}, nil
		}
		return c, nil
	}
}

// next counts a client's command, and returns the command's fault and the fault's
// duration.
func (n *network) next(client int, f frame) (fault, time.Duration) {
	n.mu.Lock()
	n.sent[client]++
	number := n.sent[client]
	n.mu.Unlock()
	if n.now() > n.plan.until {
		return none, 0
	}
	return n.plan.of(client, number, f)
}

func (n *network) bite(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bit[f]++
}

// pause stops all messages between a client and the server, in both directions.
func (n *network) pause(client int, until time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused[client] = max(n.paused[client], until)
}

func (n *network) pass(client int) {
	for held := false; ; held = true {
		n.mu.Lock()
		left := n.paused[client] - n.now()
		if left > 0 && !held {
			n.bit[pause]++
		}
		n.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// breakAll breaks all connections, as a crash of the server does.
func (n *network) breakAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bit[break_]++
	for l := range n.links {
		l.cut()
	}
}

// double delivers a command a second time, on a separate connection.
func (n *network) double(f frame, after time.Duration) {
	n.wg.Go(func() {
		time.Sleep(after)
		conn, err := n.server.Dial()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(f.raw); err == nil {
			_, _ = conn.Read(make([]byte, 1<<16))
			n.bite(duplicate)
			n.mu.Lock()
			n.doubled = append(n.doubled, n.now())
			n.mu.Unlock()
		}
	})
}

// inspect records the keys without an expiry.
func (n *network) inspect() {
	for _, key := range n.server.Keys() {
		if n.server.TTL(key) == 0 && n.server.Exists(key) && n.server.TTL(key) == 0 && n.server.Exists(key) {
			n.mu.Lock()
			n.eternal[key] = true
			n.mu.Unlock()
		}
	}
}
