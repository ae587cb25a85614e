package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
)

// server is a redis-server that the program starts, which stores nothing on disk.
type server struct {
	addr    string
	version string
	control *redis.Client // for requests that are not measured

	cmd   *exec.Cmd
	ended chan struct{}
	dir   string
}

var errNoServer = errors.New("redis-server is not installed (apt-get install redis-server, or brew install redis)")

// startServer starts a redis-server on a free port of 127.0.0.1.
func startServer(ctx context.Context) (*server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errNoServer
	}
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	// Another program may take the port before the server listens on it.
	for range 3 {
		var s *server
		if s, err = runServer(ctx, dir); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func runServer(ctx context.Context, dir string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: l.Addr().String(), dir: dir, ended: make(chan struct{})}
	if err := l.Close(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.addr)
	log := filepath.Join(dir, "log")
	s.cmd = onOneProcessor("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--logfile", log, "--save", "", "--appendonly", "no")
	testserver.EndWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	s.control = redis.NewClient(&redis.Options{Addr: s.addr})
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			text, _ := os.ReadFile(log)
			return nil, errors.Join(fmt.Errorf("redis-server ended at once: %s", text), s.control.Close())
		default:
		}
		info, err := s.info(ctx)
		// A server of another process may have the same port.
		if err == nil && info["process_id"] == strconv.Itoa(s.cmd.Process.Pid) {
			s.version = info["redis_version"]
			return s, nil
		}
	}
	return nil, errors.Join(errors.New("redis-server does not answer"), s.stop())
}

// onOneProcessor returns a command that runs on the last processor, if taskset is
// installed. A server that changes processors makes the figures vary, because it
// sometimes shares a processor with its client.
func onOneProcessor(name string, args ...string) *exec.Cmd {
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		return exec.Command(taskset, append([]string{"-c", strconv.Itoa(runtime.NumCPU() - 1), name}, args...)...)
	}
	return exec.Command(name, args...)
}

func (s *server) stop() error {
	err := s.control.Close()
	_ = s.cmd.Process.Kill()
	<-s.ended
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *server) wipe(ctx context.Context) error { return s.control.FlushAll(ctx).Err() }

// info returns the fields of INFO. The field "info" has the length of INFO's text.
func (s *server) info(ctx context.Context) (map[string]string, error) {
	text, err := s.control.Info(ctx, "all").Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{"info": strconv.Itoa(len(text))}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// work is the work of the server up to some time, or between two times.
type work struct {
	Commands float64 // commands that clients sent
	Calls    float64 // including the commands of scripts
	In, Out  float64 // bytes
	CPU      float64 // seconds
	asking   float64 // bytes of the reply to INFO itself
}

// work returns the work that the server has done so far. The commands in direct count
// as sent by clients, and so do the commands in sentOnly. If direct contains TIME, one
// call of TIME per script does not count as sent by a client.
func (s *server) work(ctx context.Context, direct []string) (work, error) {
	info, err := s.info(ctx)
	if err != nil {
		return work{}, err
	}
	number := func(field string) float64 {
		n, _ := strconv.ParseFloat(info[field], 64)
		return n
	}
	w := work{
		In: number("total_net_input_bytes"), Out: number("total_net_output_bytes"),
		CPU: number("used_cpu_user") + number("used_cpu_sys"), asking: number("info"),
	}
	for field, value := range info {
		name, ok := strings.CutPrefix(field, "cmdstat_")
		if !ok || name == "info" {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		calls, _ := strconv.ParseFloat(first, 64)
		w.Calls += calls
		if name, _, _ = strings.Cut(name, "|"); sentOnly[name] || slices.Contains(direct, name) {
			w.Commands += calls
		}
		if slices.Contains(direct, "time") && (name == "eval" || name == "evalsha") {
			w.Commands -= calls
		}
	}
	return w, nil
}

// sentOnly lists commands that scripts do not call.
var sentOnly = map[string]bool{
	"eval": true, "evalsha": true, "script": true, "fcall": true, "subscribe": true, "unsubscribe": true,
	"ping": true, "hello": true, "client": true, "command": true, "wait": true,
}

func (w work) since(before work) work {
	return work{
		Commands: w.Commands - before.Commands, Calls: w.Calls - before.Calls,
		// The reply to the first INFO was sent after its text was composed.
		In: w.In - before.In, Out: w.Out - before.Out - before.asking, CPU: w.CPU - before.CPU,
	}
}
