package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Net is a network of hosts on this machine. Each host can be cut off. The test itself
// reaches all hosts. The network is removed at the end of the test, even if the test's
// process is killed. A namespace and its links exist only as long as a process in the
// namespace.
type Net struct {
	t      testing.TB
	hub    *Host
	prefix string // prefix of all addresses: "198.18.7."
	hosts  int
}

// Host is a network namespace with one address.
type Host struct {
	IP string

	net    *Net
	number int
	pid    string // the process that keeps the namespace alive
	link   string // the hub's end of the link
}

// NewNet returns a network without hosts. If Redis, ip or nsenter is not installed, or
// if namespaces cannot be created, it skips or fails the test like RequireRedis.
func NewNet(t testing.TB) *Net {
	t.Helper()
	RequireRedis(t)
	n := &Net{t: t}
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			Missing(t, program+" is not installed (apt-get install iproute2 util-linux)")
		}
	}
	for try := 1; ; try++ {
		err := n.build()
		if err == nil {
			return n
		}
		if os.Geteuid() != 0 || try == 5 {
			Missing(t, fmt.Sprintf("no network namespaces can be made (it needs Linux and root): %v", err))
		}
	}
}

// build creates the hub, a host with a bridge that is linked to the test's own
// namespace.
func (n *Net) build() error {
	// The addresses belong to the range for tests of network devices. Another program
	// may use the same addresses.
	n.prefix = fmt.Sprintf("198.%d.%d.", 18+rand.N(2), rand.N(256))
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if strings.HasPrefix(a.String(), n.prefix) {
			return fmt.Errorf("%s is taken", a)
		}
	}
	if n.hub, err = n.newHost(); err != nil {
		return err
	}
	mine := fmt.Sprintf("lk%08x", rand.Uint32())
	return firstError(
		n.hub.run("ip", "link", "add", "hub", "type", "bridge"),
		n.hub.run("ip", "link", "set", "hub", "up"),
		run(exec.Command("ip", "link", "add", mine, "type", "veth", "peer", "name", "uplink", "netns", n.hub.pid)),
		n.hub.run("ip", "link", "set", "uplink", "master", "hub", "up"),
		run(exec.Command("ip", "addr", "add", n.prefix+"1/24", "dev", mine)),
		run(exec.Command("ip", "link", "set", mine, "up")),
	)
}

// newHost creates a namespace without links.
func (n *Net) newHost() (*Host, error) {
	cmd := exec.Command("sleep", "infinity")
	if err := InNamespace(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Host{net: n, pid: strconv.Itoa(cmd.Process.Pid)}, nil
}

// Host adds a host to the network and returns it. It fails the test if the host cannot
// be created.
func (n *Net) Host() *Host {
	n.t.Helper()
	h, err := n.newHost()
	if err == nil {
		n.hosts++
		h.number = n.hosts
		h.IP, h.link = n.prefix+strconv.Itoa(n.hosts+1), "down"+strconv.Itoa(n.hosts)
		err = firstError(
			n.hub.run("ip", "link", "add", h.link, "type", "veth", "peer", "name", "eth0", "netns", h.pid),
			n.hub.run("ip", "link", "set", h.link, "master", "hub", "up"),
			h.run("ip", "addr", "add", h.IP+"/24", "dev", "eth0"),
			h.run("ip", "link", "set", "eth0", "up"),
			h.run("ip", "link", "set", "lo", "up"),
		)
	}
	if err != nil {
		n.t.Fatalf("testserver: host: %v", err)
	}
	return h
}

// addr returns the address of a server on the host. It adds the host's number to port,
// because Sentinel distinguishes servers by their ports.
func (h *Host) addr(port int) string {
	return net.JoinHostPort(h.IP, strconv.Itoa(port+h.number))
}

// Command returns a command that runs on the host, or on this machine if h is nil.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	if h == nil {
		return exec.Command(name, args...)
	}
	// nsenter executes the program without a fork, so the program has nsenter's process
	// ID.
	return exec.Command("nsenter", append([]string{"--target", h.pid, "--net", name}, args...)...)
}

// Cut cuts the host off the network. No connection is closed.
func (h *Host) Cut() {
	h.net.t.Helper()
	if err := h.net.hub.run("ip", "link", "set", h.link, "down"); err != nil {
		h.net.t.Fatalf("testserver: cut: %v", err)
	}
}

// Join undoes Cut.
func (h *Host) Join() {
	h.net.t.Helper()
	if err := h.net.hub.run("ip", "link", "set", h.link, "up"); err != nil {
		h.net.t.Fatalf("testserver: join: %v", err)
	}
}

// StartSentinel starts the servers like the function StartSentinel, on three hosts. Node
// i and sentinel i run on host i.
func (n *Net) StartSentinel(args ...string) (*Sentinel, []*Host) {
	n.t.Helper()
	s := &Sentinel{t: n.t}
	var hosts []*Host
	for i := range 3 {
		host := n.Host()
		hosts = append(hosts, host)
		a := append([]string{"--protected-mode", "no"}, args...)
		if i > 0 {
			a = append(a, "--replicaof", fmt.Sprint(hosts[0].IP), strconv.Itoa(s.Nodes[0].Port()))
		}
		s.Nodes = append(s.Nodes, startRedis(n.t, &Redis{args: a, host: host}))
	}
	for _, replica := range s.Nodes[1:] {
		awaitLink(n.t, replica)
	}
	for _, host := range hosts {
		s.Sentinels = append(s.Sentinels, startSentinel(n.t, host, s.Nodes[0]))
	}
	s.AwaitOK()
	return s, hosts
}

// Without returns s without node i and sentinel i, for the time in which they are cut
// off.
func (s *Sentinel) Without(i int) *Sentinel {
	return &Sentinel{
		t:         s.t,
		Nodes:     append(append([]*Redis(nil), s.Nodes[:i]...), s.Nodes[i+1:]...),
		Sentinels: append(append([]*Redis(nil), s.Sentinels[:i]...), s.Sentinels[i+1:]...),
	}
}

func (h *Host) run(name string, args ...string) error { return run(h.Command(name, args...)) }

func run(cmd *exec.Cmd) error {
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
