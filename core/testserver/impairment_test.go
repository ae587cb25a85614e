package testserver_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestImpairment_Draw(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		impairment testserver.Impairment
		chances    []float64
		lag        time.Duration
		drop       bool
		toll       testserver.Toll
	}{
		"nothing":          {},
		"delay":            {impairment: testserver.Impairment{Delay: 50 * ms}, lag: 50 * ms, toll: testserver.Toll{Delayed: 1}},
		"jitter":           {testserver.Impairment{Delay: 50 * ms, Jitter: 40 * ms}, []float64{0.5}, 70 * ms, false, testserver.Toll{Delayed: 1}},
		"not lost":         {testserver.Impairment{Loss: 0.1}, []float64{0.1}, 0, false, testserver.Toll{}},
		"lost once":        {testserver.Impairment{Loss: 0.1}, []float64{0, 0.5}, 200 * ms, false, testserver.Toll{Delayed: 1, Lost: 1}},
		"lost twice":       {testserver.Impairment{Loss: 0.1}, []float64{0, 0, 0.5}, 600 * ms, false, testserver.Toll{Delayed: 1, Lost: 2}},
		"lost three times": {testserver.Impairment{Loss: 0.1}, []float64{0, 0, 0}, 1400 * ms, false, testserver.Toll{Delayed: 1, Lost: 3}},
		"dropped":          {testserver.Impairment{Delay: ms, Loss: 1, Drop: 0.1}, []float64{0.05}, 0, true, testserver.Toll{Dropped: 1}},
		"not dropped":      {testserver.Impairment{Drop: 0.1}, []float64{0.1}, 0, false, testserver.Toll{}},
	} {
		var toll testserver.Toll
		chances := c.chances
		lag, drop := c.impairment.Draw(&toll, func() float64 {
			next := chances[0]
			chances = chances[1:]
			return next
		})
		if lag != c.lag || drop != c.drop || toll != c.toll || len(chances) > 0 {
			t.Errorf("%s: got %v, %v and %+v with %d chances left, want %v, %v and %+v", name, lag, drop, toll, len(chances), c.lag, c.drop, c.toll)
		}
	}
}

// echoes starts a server that sends back all that it receives, and returns its address.
func echoes(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func TestProxy_Impair(t *testing.T) {
	t.Parallel()
	dial := func(t *testing.T, p *testserver.Proxy) (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		return conn, bufio.NewReader(conn)
	}
	ask := func(conn net.Conn, r *bufio.Reader) error {
		if _, err := io.WriteString(conn, "a\n"); err != nil {
			return err
		}
		_, err := r.ReadString('\n')
		return err
	}
	t.Run("delay both ways", func(t *testing.T) {
		t.Parallel()
		p := testserver.NewProxy(t, echoes(t))
		conn, r := dial(t, p)
		if err := ask(conn, r); err != nil {
			t.Fatal(err)
		}
		const delay = 100 * time.Millisecond
		p.Impair(testserver.Impairment{Delay: delay})
		start := time.Now()
		if err := ask(conn, r); err != nil || time.Since(start) < 2*delay {
			t.Errorf("got the reply after %v with %v, want at least %v", time.Since(start), err, 2*delay)
		}
		if toll := p.Toll(); toll.Delayed != 2 || toll.Lost+toll.Dropped != 0 {
			t.Errorf("got %+v, want 2 delayed", toll)
		}
		p.Impair(testserver.Impairment{})
		if err := ask(conn, r); err != nil || p.Toll().Delayed != 2 {
			t.Errorf("afterwards: got %v and %+v, want no more delays", err, p.Toll())
		}
	})
	// If the messages waited for each other, twenty of them would take more than 10 s.
	t.Run("messages side by side", func(t *testing.T) {
		t.Parallel()
		p := testserver.NewProxy(t, echoes(t))
		conn, r := dial(t, p)
		if err := ask(conn, r); err != nil {
			t.Fatal(err)
		}
		p.Impair(testserver.Impairment{Delay: 500 * time.Millisecond})
		start := time.Now()
		for range 20 {
			if _, err := io.WriteString(conn, "a\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // separates the message from the next one
		}
		for range 20 {
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if took, limit := time.Since(start), 10*time.Second; took < time.Second || took > limit {
			t.Errorf("got all replies after %v, want it within %v", took, limit)
		}
	})
	t.Run("losses delay", func(t *testing.T) {
		t.Parallel()
		p := testserver.NewProxy(t, echoes(t))
		conn, r := dial(t, p)
		if err := ask(conn, r); err != nil {
			t.Fatal(err)
		}
		p.Impair(testserver.Impairment{Loss: 1})
		start := time.Now()
		if err := ask(conn, r); err != nil || time.Since(start) < 2800*time.Millisecond {
			t.Errorf("got the reply after %v with %v, want at least 2.8s", time.Since(start), err)
		}
		if toll := p.Toll(); toll.Lost != 6 {
			t.Errorf("got %+v, want 6 lost", toll)
		}
	})
	t.Run("connections break", func(t *testing.T) {
		t.Parallel()
		p := testserver.NewProxy(t, echoes(t))
		conn, r := dial(t, p)
		if err := ask(conn, r); err != nil {
			t.Fatal(err)
		}
		p.Impair(testserver.Impairment{Drop: 1})
		if err := ask(conn, r); err == nil {
			t.Error("got a reply, want a closed connection")
		}
		if toll := p.Toll(); toll.Dropped != 1 {
			t.Errorf("got %+v, want 1 dropped", toll)
		}
		p.Impair(testserver.Impairment{})
		if err := ask(dial(t, p)); err != nil {
			t.Errorf("a new connection: got %v", err)
		}
	})
}
