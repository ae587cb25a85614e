package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// documentedRights returns the rights of the users in README.md. further contains the
// additional rights by their purpose.
func documentedRights(t *testing.T) (basic []string, further map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	prose := strings.Join(strings.Fields(string(text)), " ")
	find := func(pattern string) []string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(prose)
		if m == nil {
			t.Fatalf("README.md does not say %s", pattern)
		}
		return strings.Fields(m[1])
	}
	const words = `((?:(?:resetchannels|[~&+][^ ` + "`" + `,]+) ?)+)`
	basic = find("ACL SETUSER locks on >secret " + words)
	further = map[string][]string{
		"operator":          find("ACL SETUSER operator on >secret " + words),
		"plain":             find("With plain keys: `" + words),
		"plain operator":    find("With plain keys: [^.]* `" + words + "` for operators"),
		"redisson":          find("With `WithRedisson`: `" + words),
		"redisson operator": find("With `WithRedisson`: [^.]* `" + words + "` for operators"),
		"cluster":           find("`" + words + "` in addition in a Cluster"),
		"replicas":          find("`" + words + "` with `WithReplicas`"),
	}
	return basic, further
}

// TestDocumentedRights checks that the rights in README.md are sufficient for all
// operations of a Store, on one server and in a Cluster with moving slots.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	basic, further := documentedRights(t)
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		// No other user can connect. By default a new user may use all channels, as in
		// Redis 6.2.
		server := testserver.StartRedis(t, append(fit, "--acl-pubsub-default", "allchannels")...)
		as := login(t, server, "locks", basic...)
		asks := testclient.Redis(t, server.Addr)
		if err := asks.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">other").Err(); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, testclient.Redis(t, server.Addr, as))
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		plays(t, s, "rights")
		wrong := newStore(t, testclient.Redis(t, server.Addr, func(o *redis.Options) { o.Username, o.Password = "locks", "guessed" }))
		_, err := wrong.Acquire(t.Context(), claimed())
		wantIs(t, "acquire with a wrong password", err, store.ErrUnavailable)
		if err != nil && (strings.Contains(err.Error(), "guessed") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("the error %q shows a password", err)
		}
	})
	t.Run("plain keys", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, fit...)
		as := login(t, server, "locks", append(further["plain"], "~lk1:*")...)
		s := newStore(t, testclient.Redis(t, server.Addr, as), redisstore.WithPlainKeys())
		c := claimed()
		acquire(t, s, c)
		if err := extend(s, c); err != nil {
			t.Errorf("extend: %v", err)
		}
		c.Keep = time.Second
		release(t, s, c)
	})
	t.Run("Redisson", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, append(fit, "--acl-pubsub-default", "allchannels")...)
		rights := append(further["redisson"], "~test:*")
		as := login(t, server, "locks", append(rights, "~check:*", "+info")...)
		s := newStore(t, testclient.Redis(t, server.Addr, as), redisstore.WithRedisson())
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		c := claimed()
		acquire(t, s, c)
		state, err := s.Look(t.Context(), c.Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Revoke(t.Context(), c.Key, state.Holds[0].ID, time.Second); err != nil {
			t.Error(err)
		}
		server.Do("SET", "another", "program's")
		login(t, server, "locks", append(rights, further["redisson operator"]...)...)
		if states, _, err := s.List(t.Context(), "", 1000); err != nil || len(states) != 1 || states[0].Key != c.Key {
			t.Errorf("list: got %v, %v, want the key", states, err)
		}
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testserver.StartCluster(t, true, append(fit, testserver.NoFailover...)...)
		for _, node := range cluster.Nodes {
			login(t, node, "locks", slices.Concat(basic, further["cluster"], further["replicas"])...)
		}
		client := testclient.Cluster(t, cluster, func(o *redis.ClusterOptions) { o.Username, o.Password = "locks", "secret" })
		s := newStore(t, client, redisstore.WithReplicas(1, 2*time.Second))
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		for i, key := range []string{"rights:0", "rights:1", "rights:2", "rights:3", "rights:4", "rights:5"} {
			plays(t, s, key)
			if i == 2 {
				// A slot is moving, so the client is sent to another node.
				moved := claimOf("rights:moved")
				slot := testserver.Slot(keyOf(moved.Key))
				acquire(t, s, moved)
				from := cluster.Master(slot)
				to := cluster.Nodes[0]
				if to == from {
					to = cluster.Nodes[1]
				}
				m := cluster.BeginMigration(slot, to)
				for m.MoveKeys(10) > 0 {
				}
				if err := extend(s, moved); err != nil {
					t.Errorf("extend: %v", err)
				}
				m.Finish()
				release(t, s, moved)
			}
		}
	})
}

func plays(t *testing.T, s *redisstore.Store, key string) {
	t.Helper()
	for _, st := range scene(s, key, false) {
		if err := st.do(); !errors.Is(err, st.want) {
			t.Errorf("%s: got %v, want %v", st.name, err, st.want)
		}
	}
	handedOver(t, s, s)
}

// TestTLS locks over TLS with certificates on both sides, including wake-ups and
// extensions. A connection that lacks one of the certificates, or TLS itself, is
// refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	ca.issue(t, dir, "server")
	ca.issue(t, dir, "client")
	port := freePort(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	testserver.StartRedis(t, append(fit, "--tls-port", strconv.Itoa(port), "--requirepass", "secret",
		"--tls-cert-file", in("server.crt"), "--tls-key-file", in("server.key"), "--tls-ca-cert-file", in("ca.crt"))...)
	pair, err := tls.LoadX509KeyPair(in("client.crt"), in("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	connect := func(config *tls.Config) *redisstore.Store {
		return newStore(t, testclient.Redis(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), func(o *redis.Options) {
			o.Password, o.TLSConfig = "secret", config
		}))
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.cert)
	s := connect(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}})
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	plays(t, s, "tls")
	for name, config := range map[string]*tls.Config{
		"without TLS":                   nil,
		"with an untrusted server":      {Certificates: []tls.Certificate{pair}},
		"with an uncertified client":    {RootCAs: trusted},
		"with a server of another name": {RootCAs: trusted, Certificates: []tls.Certificate{pair}, ServerName: "other"},
	} {
		_, err := connect(config).Acquire(t.Context(), claimed())
		wantIs(t, "acquire "+name, err, store.ErrUnavailable)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error %q shows the password", err)
		}
	}
}

// freePort returns a free port that outgoing connections do not use.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + mathrand.N(2000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// authority signs certificates for TestTLS.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", der)
	return a
}

// issue writes a certificate for 127.0.0.1 and its key to files.
func (a *authority) issue(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(dir, name+".key"), "EC PRIVATE KEY", private)
}

func writePEM(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
