package plugs_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/core/testserver"
)

// childEnv is an environment variable that makes the test binary a child, which obtains
// a certificate or migrates a database. Its value is a plan.
const childEnv = "LOCKKIT_PLUGS_CHILD"

type plan struct {
	Addr, Dir string        // the address of a Redis, and the directory of the certificates
	TTL       time.Duration // of a lock on a certificate
	URL       string        // of the database
}

// storage stores certificates in files that all processes share, and locks names by
// package named.
type storage struct {
	*certmagic.FileStorage
	*named.Locks
}

func (s storage) Lock(ctx context.Context, name string) error { return s.Locks.Lock(ctx, name) }

func (s storage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.Locks.TryLock(ctx, name)
}

func (s storage) Unlock(ctx context.Context, name string) error { return s.Locks.Unlock(ctx, name) }

// authority issues certificates. Before each certificate it prints "issuing", and waits
// for a line from the parent process.
type authority struct{ in *bufio.Reader }

func (a authority) IssuerKey() string { return "authority" }

func (a authority) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	fmt.Println("issuing")
	if _, err := a.in.ReadString('\n'); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// work is the main function of a child.
func work(text string) int {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	if p.URL != "" {
		return migrate(p)
	}
	return obtain(p)
}

func obtain(p plan) int {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{
		Storage: storage{&certmagic.FileStorage{Path: p.Dir}, named.New(onRedis(p.Addr), core.TTL(p.TTL))},
		Issuers: []certmagic.Issuer{authority{bufio.NewReader(os.Stdin)}},
		Logger:  zap.NewNop(),
	})
	fmt.Println("begun")
	if err := config.ObtainCertSync(context.Background(), "example.com"); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("obtained")
	return 0
}

// child is a running child process, which is stopped at the end of the test.
type child struct {
	t       *testing.T
	process *testserver.Process
	in      io.WriteCloser
	lines   chan string // closed when the process has exited
}

func startChild(t *testing.T, p plan) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = stdout
	process := testserver.StartProcess(t, cmd)
	_ = stdout.Close()
	c := &child{t, process, in, make(chan string, 100)}
	go func() {
		defer out.Close()
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c
}

// await fails the test unless the child's next line is want.
func (c *child) await(want string) {
	c.t.Helper()
	if line := c.next(); line != want {
		c.t.Fatalf("got %q, want %q", line, want)
	}
}

func (c *child) next() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(patience):
		c.t.Fatalf("it says nothing for %v", patience)
		return ""
	}
}

func (c *child) goOn() {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "go on\n"); err != nil {
		c.t.Fatal(err)
	}
}

func TestCertmagic(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// begin starts two processes. The second process waits for the first process, whose
	// authority is issuing.
	begin := func(t *testing.T, ttl time.Duration) (first, second *child) {
		t.Helper()
		t.Parallel()
		server := testserver.StartRedis(t)
		p := plan{Addr: server.Addr, Dir: t.TempDir(), TTL: ttl}
		first = startChild(t, p)
		first.await("begun")
		first.await("issuing")
		second = startChild(t, p)
		second.await("begun")
		testserver.Eventually(t, patience, "the second one waits for the lock", func() bool {
			return strings.Contains(fmt.Sprint(server.Do("PUBSUB", "CHANNELS")), "lk")
		})
		return first, second
	}
	// Two processes obtain one certificate, which is issued once.
	t.Run("one certificate", func(t *testing.T) {
		first, second := begin(t, time.Minute)
		first.goOn()
		first.await("obtained")
		second.await("obtained") // without "issuing" before it
	})
	// When a process dies while it obtains a certificate, the other process obtains the
	// certificate.
	t.Run("process dies", func(t *testing.T) {
		first, second := begin(t, 2*time.Second)
		first.process.Kill()
		second.await("issuing")
		second.goOn()
		second.await("obtained")
	})
}
