package testserver

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// RabbitMQ is a RabbitMQ server for one test, on a free port of 127.0.0.1, without
// plugins. It stops with the test. Its methods fail the test if the server does not
// carry them out, and are safe for concurrent use.
type RabbitMQ struct {
	*Process
	Addr string // host:port for AMQP, the same after a Restart
}

// StartRabbitMQ starts a server with the given settings, in the form of rabbitmq.conf:
// "consumer_timeout = 10000". StartRabbitMQ returns when the server answers. It skips
// or fails the test like RequireRabbitMQ.
func StartRabbitMQ(t testing.TB, settings ...string) *RabbitMQ {
	t.Helper()
	RequireRabbitMQ(t)
	dir := tempDir(t)
	// If no port mapper of Erlang is running, the server starts a port mapper and
	// leaves it running. So StartRabbitMQ starts a port mapper, which stops with the
	// test.
	mapper := newProcess(t, "epmd", tempDir(t))
	port := 0
	mapper.ready = func(int) bool { return !free(port) }
	mapper.command = func() (*exec.Cmd, error) {
		return exec.Command(program("epmd"), "-port", fmt.Sprint(port), "-address", "127.0.0.1"), nil
	}
	mapper.begin(func() { port = freePort(t) })

	s := &RabbitMQ{Process: newProcess(t, "rabbitmq-server", dir)}
	node := func() string { return fmt.Sprintf("test-%d-%d@", os.Getpid(), portOf(s.Addr)) }
	s.ready = func(int) bool { return bytes.Contains(greetingAMQP(s.Addr), []byte(node())) }
	s.command = func() (*exec.Cmd, error) {
		config := []byte(fmt.Sprintf("listeners.tcp.1 = %s\nlog.console.level = error\n", s.Addr))
		for _, line := range settings {
			config = append(append(config, line...), '\n')
		}
		cmd := exec.Command(rabbitMQScript())
		cmd.Env = append(os.Environ(), "HOME="+dir, "RABBITMQ_NODENAME="+node()+"localhost", "RABBITMQ_CONF_ENV_FILE=/dev/null",
			"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_LOGS=-", "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
			"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"),
			fmt.Sprint("RABBITMQ_DIST_PORT=", portOf(s.Addr)+10000), fmt.Sprint("ERL_EPMD_PORT=", port), "ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			"NOTIFY_SOCKET="+filepath.Join(dir, "none")) // makes the script exec the server
		if err := os.WriteFile(filepath.Join(dir, "plugins"), []byte("[].\n"), 0o600); err != nil {
			return nil, err
		}
		return cmd, os.WriteFile(filepath.Join(dir, "rabbitmq.conf"), config, 0o600)
	}
	s.begin(func() { s.Addr = local(freePort(t)) })
	return s
}

// rabbitMQScript returns the script that starts the server. Debian's script in PATH
// would switch to another user first.
func rabbitMQScript() string {
	const debian = "/usr/lib/rabbitmq/bin/rabbitmq-server"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return program("rabbitmq-server")
}

// URL returns the URL for AMQP clients.
func (s *RabbitMQ) URL() string { return "amqp://guest:guest@" + s.Addr + "/" }

// greetingAMQP returns the first message of the server at addr, which contains the name
// of its node.
func greetingAMQP(addr string) []byte {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return nil
	}
	greeting := make([]byte, 4096)
	n, _ := conn.Read(greeting)
	return greeting[:n]
}
