package hazards_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// register is a resource outside of Redis that refuses writes with a token lower than
// the highest token that it has seen. Its twin, a second resource, accepts every write.
type register struct {
	Addr string

	mu      sync.Mutex
	highest uint64
	refused int
	value   string // the name of the last writer
	twin    string // the name of the twin's last writer
}

func newRegister(t *testing.T) *register {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &register{Addr: l.Addr().String()}
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
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var token uint64
		var who string
		if _, err := fmt.Sscan(in.Text(), &token, &who); err != nil {
			return
		}
		answer := "refused\n"
		if r.write(token, who) {
			answer = "written\n"
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// write reports whether the register accepted the write.
func (r *register) write(token uint64, who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.twin = who
	if token < r.highest {
		r.refused++
		return false
	}
	r.highest, r.value = token, who
	return true
}

func (r *register) last() (value, twin string, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.twin, r.refused
}

type writer struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialRegister(addr string) (*writer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &writer{conn, bufio.NewReader(conn)}, nil
}

func (w *writer) write(token uint64, who string) (bool, error) {
	if _, err := fmt.Fprintln(w.conn, token, who); err != nil {
		return false, err
	}
	answer, err := w.in.ReadString('\n')
	return strings.TrimSpace(answer) == "written", err
}
