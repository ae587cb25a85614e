package histories_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
)

// register is a resource outside of Redis. For each key it refuses writes with a token
// lower than the highest token that it has seen. It records all writes that arrive.
type register struct {
	Addr string

	mu      sync.Mutex
	highest map[string]uint64
	writes  []write
}

type write struct {
	Key, Lease string
	Token      uint64
	Taken      bool
}

func newRegister(t testing.TB) *register {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &register{Addr: l.Addr().String(), highest: make(map[string]uint64)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			wg.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return r
}

func (r *register) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var w write
		if _, err := fmt.Sscan(in.Text(), &w.Key, &w.Token, &w.Lease); err != nil {
			return
		}
		r.take(w)
		if _, err := conn.Write([]byte("\n")); err != nil {
			return
		}
	}
}

func (r *register) take(w write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.Taken = w.Token >= r.highest[w.Key]; w.Taken {
		r.highest[w.Key] = w.Token
	}
	r.writes = append(r.writes, w)
}

func (r *register) all() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]write(nil), r.writes...)
}
