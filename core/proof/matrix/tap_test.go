package matrix_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// mishap is a disturbance of a message that a server publishes.
type mishap string

const (
	lost    mishap = "lost"
	doubled mishap = "doubled"
	late    mishap = "late"
	garbled mishap = "garbled"
	cut     mishap = "cut off" // the subscription breaks right before it
)

var mishaps = []mishap{lost, doubled, late, garbled, cut}

// tap carries all connections of a program, and applies a mishap to the first message
// about a key.
type tap struct {
	t      *testing.T
	mishap mishap
	about  string // the message's prefix
	trial  int    // chooses how the message is garbled

	mu    sync.Mutex
	bit   int
	text  string        // the message's text
	fired chan struct{} // closed after the first message
	held  func() error  // delivers a late message
}

func newTap(t *testing.T, m mishap, about string, trial int) *tap {
	return &tap{t: t, mishap: m, about: about, trial: trial, fired: make(chan struct{})}
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, ours := net.Pipe()
	go func() {
		_, _ = io.Copy(server, ours)
		_ = server.Close()
	}()
	go func() {
		p.pump(bufio.NewReader(server), ours)
		_ = ours.Close()
		_ = server.Close()
	}()
	return client, nil
}

// pump passes the server's replies on, until either side closes.
func (p *tap) pump(from *bufio.Reader, to net.Conn) {
	var mu sync.Mutex
	pass := func(raw []byte) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := to.Write(raw)
		return err
	}
	for {
		raw, words, err := readReply(from)
		if err != nil {
			return
		}
		all := [][]byte{raw}
		if len(words) == 3 && words[0] == "message" && strings.HasPrefix(words[2], p.about) {
			if all = p.apply(raw, words, pass); all == nil {
				return
			}
		}
		for _, raw := range all {
			if pass(raw) != nil {
				return
			}
		}
	}
}

// apply returns the messages that the program receives instead of raw, nil if its
// connection breaks.
func (p *tap) apply(raw []byte, words []string, pass func([]byte) error) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bit > 0 {
		return [][]byte{raw}
	}
	p.bit, p.text = 1, words[2]
	close(p.fired)
	switch p.mishap {
	case lost:
		return [][]byte{}
	case doubled:
		return [][]byte{raw, raw}
	case late:
		p.held = func() error { return pass(raw) }
		return [][]byte{}
	case garbled:
		of, _, _ := strings.Cut(p.text, "\n")
		text := [...]string{p.text[:len(p.text)/2], of + "\n1 2 3", of + "\n18446744073709551616 -1"}[p.trial%3]
		return [][]byte{fmt.Appendf(nil, "%c3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", raw[0], len(words[1]), words[1], len(text), text)}
	}
	return nil
}

func (p *tap) message() string {
	p.t.Helper()
	select {
	case <-p.fired:
	case <-time.After(patience):
		p.t.Fatal("test setup: no message was published")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// deliver delivers a late message.
func (p *tap) deliver() {
	p.t.Helper()
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held == nil {
		return
	}
	if err := held(); err != nil {
		p.t.Fatalf("the late message finds no reader: %v", err)
	}
}

// readReply reads one reply of a server, and returns the strings in it.
func readReply(r *bufio.Reader) (raw []byte, words []string, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n, _ := strconv.Atoi(string(line[1 : len(line)-2]))
	raw = line
	switch line[0] {
	case '$', '=', '!':
		if n >= 0 {
			text := make([]byte, n+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return nil, nil, err
			}
			raw, words = append(raw, text...), []string{string(text[:n])}
		}
	case '%', '*', '~', '>':
		if line[0] == '%' {
			n *= 2
		}
		for range n {
			more, inner, err := readReply(r)
			if err != nil {
				return nil, nil, err
			}
			raw, words = append(raw, more...), append(words, inner...)
		}
	}
	return raw, words, nil
}
