//go:build unix

package main_test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

func failoverScene(s *scene) {
	sentinel := testserver.StartSentinel(s.t, "--appendonly", "yes")
	old := sentinel.Master()
	s.on(old)
	s.store = fmt.Sprintf("redis+sentinel://%s?master_name=%s", sentinel.Sentinels[0].Addr, testserver.SentinelName)
	// A process that uses the sentinels holds the lock, and both replicas have received
	// it.
	f := file(s.t)
	runWorker(s.t, s.store, f, "order:42")
	old.Do("WAIT", 2, patience.Milliseconds())
	// DownAfter delays the failover, which on a slow machine could complete before the
	// command has sent its request.
	sentinel.DownAfter(time.Hour)
	old.Kill()
	s.sh("lockkit run probe:1 -- echo ran").want(s.t, 69, "unavailable")
	sentinel.DownAfter(testserver.SentinelDownAfter)
	master := sentinel.AwaitFailover(old)
	s.here = []string{
		"26379", strconv.Itoa(sentinel.Sentinels[0].Port()), "27412", strconv.Itoa(master.Port()),
		"mymaster", testserver.SentinelName,
	}
	testserver.Eventually(s.t, patience, "the other replica follows", func() bool { return master.Field("replication", "connected_slaves") == "1" })
	s.block("redis-cli -p 26379 SENTINEL get-master-addr-by-name mymaster")
	if c := s.run("redis-cli -p 26379 SENTINEL ckquorum mymaster"); c.code != 0 || !strings.Contains(c.out, "OK 3 usable Sentinels") {
		s.t.Errorf("%+v", c)
	}
	if c := s.run("lockkit run probe:1 -- echo ran"); c != (call{out: "ran\n"}) {
		s.t.Errorf("%+v", c)
	}
	s.run("lockkit run order:42 -- echo ran").want(s.t, 75, "lock is busy")
	// The restarted old master is a master until the sentinels make it a replica.
	old.Restart()
	testserver.Eventually(s.t, patience, "the old master is a replica", func() bool { return old.Field("replication", "role") == "slave" })
	s.here = append(s.here, "OLD", old.Addr)
	if c := s.run("lockkit check -store redis://OLD"); c.code != 1 || !strings.Contains(c.out, "the server is a slave: connect to the master\n") {
		s.t.Errorf("%+v", c)
	}
}

func quorumScene(s *scene) {
	var servers []*testserver.Redis
	var nodes []core.Store
	for range 3 {
		server := testserver.StartRedis(s.t)
		servers, nodes = append(servers, server), append(nodes, onRedis(s.t, server.Addr))
	}
	s.on(servers[0])
	for i, port := range []string{"27451", "27452", "27453"} {
		s.here = append(s.here, port, strconv.Itoa(servers[i].Port()))
	}
	servers[0].Restart("--appendonly", "yes")
	var log logged
	store, err := redlock.New(nodes, redlock.WithNodeTimeout(time.Second), redlock.WithObserver(core.SlogObserver(slog.New(slog.NewTextHandler(&log, nil)))))
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	locks := service(s.t, store)
	acquire(s.t, locks, "order:1")
	servers[1].Kill()
	servers[2].Kill()
	s.block(`for port in 27451 27452 27453; do echo "$port $(LOCKKIT_STORE=redis://127.0.0.1:$port lockkit check 2>&1)"; done`)
	refused := func(why string) {
		s.t.Helper()
		var err error
		defer func() {
			if s.t.Failed() {
				s.t.Logf("the last acquire: %v\n%s", err, log.String())
			}
		}()
		testserver.Eventually(s.t, patience, "acquires are refused: "+why, func() bool {
			_, err = locks.TryAcquire(s.t.Context(), "order:2")
			if err == nil || errors.Is(err, core.ErrBusy) {
				s.t.Fatalf("an acquire without a majority: %v", err)
			}
			return errors.Is(err, core.ErrUnavailable) && regexp.MustCompile(why).MatchString(err.Error())
		})
	}
	refused("1 of 3 nodes answer and count, 2 are needed; 0 in quarantine, 2 out of reach")
	testserver.Eventually(s.t, patience, "the log reports it", func() bool { return strings.Contains(log.String(), "lock node out") })
	servers[1].Restart()
	servers[2].Restart()
	// The nodes have one text if they are trusted again in the same second.
	refused("2 in quarantine, 0 out of reach; node 1(, 2)?: restarted, and trusted again in")
	if c := s.run("redis-cli -p 27452 INFO server | grep uptime_in_seconds"); c.code != 0 || alike(c.out) != "uptime_in_seconds:N" {
		s.t.Errorf("%+v", c)
	}
	// One list has the same server twice, and the other list has a replica.
	servers[2].Do("REPLICAOF", "127.0.0.1", servers[0].Port())
	for why, three := range map[string][]*testserver.Redis{
		"same server": {servers[0], servers[1], servers[0]}, "replica": servers,
	} {
		var nodes []core.Store
		for _, server := range three {
			nodes = append(nodes, onRedis(s.t, server.Addr))
		}
		store, err := redlock.New(nodes, redlock.WithNodeTimeout(time.Second))
		if err != nil {
			s.t.Fatal(err)
		}
		defer store.Close()
		// A replica that still loads its data may not answer in time.
		testserver.Eventually(s.t, patience, "Check reports the "+why, func() bool {
			err := store.Check(s.t.Context())
			return errors.Is(err, core.ErrInvalid) && strings.Contains(err.Error(), why)
		})
	}
}

func zooKeeperScene(s *scene) {
	ensemble := testserver.StartEnsemble(s.t, 0)
	for i, port := range []string{"2181", "2182", "2183"} {
		s.here = append(s.here, "127.0.0.1:"+port, ensemble.Servers[i].Addr)
	}
	conn := testclient.ZooKeeper(s.t, 10*time.Second, ensemble.Addrs()...)
	if err := conn.AddAuth("digest", []byte("locks:secret")); err != nil {
		s.t.Fatal(err)
	}
	store, err := zkstore.New(conn, zkstore.WithACL(zk.DigestACL(zk.PermAll, "locks", "secret")))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = store.Close() })
	const url = "zk://locks:secret@127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
	s.store = strings.NewReplacer(s.here...).Replace(url)
	held, waits := s.contended(payments(s.t, store), payments(s.t, store))
	s.here = append(s.here, "XXzk-604j7Y", held, "nYQ2OE4O6Fo", waits)
	s.block("export LOCKKIT_STORE=" + url + "/lk1")
	(&scene{section: s.section, t: s.t, store: strings.Replace(s.store, "locks:secret@", "", 1)}).
		sh("lockkit show order:42").want(s.t, 69, "READ")

	locks := service(s.t, store)
	lease := acquire(s.t, locks, "order:43")
	s.noted("echo srvr | nc 127.0.0.1 2181")
	if m := ensemble.Servers[0].Mode(); m != "leader" && m != "follower" {
		s.t.Errorf("the mode is %q", m)
	}
	ensemble.Servers[1].Kill()
	ensemble.Servers[2].Kill()
	if c := s.run("lockkit check"); c.code != 69 || !strings.Contains(c.out, "lock store unavailable") {
		s.t.Errorf("%+v", c)
	}
	s.run("lockkit run probe:1 -- echo ran").want(s.t, 69, "lock store unavailable")
	const says = "This ZooKeeper instance is not currently serving requests"
	testserver.Eventually(s.t, patience, says, func() bool { return strings.Contains(ensemble.Servers[0].Ask("srvr"), says) })
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		s.t.Error("the lease is not lost")
	}
	if _, err := locks.TryAcquire(s.t.Context(), "order:44"); !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "not connected") {
		s.t.Errorf("got %v, want %v since it is not connected", err, core.ErrUnavailable)
	}
	ensemble.Servers[2].Restart()
	testserver.Eventually(s.t, patience, "the service acquires again", func() bool {
		lease, err := locks.TryAcquire(s.t.Context(), "order:45")
		if err == nil {
			err = lease.Release(s.t.Context())
		}
		return err == nil
	})
}

func sqlScene(s *scene) {
	server := testserver.StartMariaDB(s.t).NewDatabase(s.t)
	database := server.Exec("SELECT DATABASE()")[0]
	server.Exec("CREATE USER locks IDENTIFIED BY 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON " + database + ".* TO locks")
	store := onSQL(s.t, sqlstore.MySQL, "mysql", server.DSN())
	const url = "mariadb://locks:secret@127.0.0.1:3306/shop"
	s.here = []string{"127.0.0.1:3306", server.Addr, "shop", database}
	s.store = strings.NewReplacer(s.here...).Replace(url)
	held, waits := s.contended(payments(s.t, store), payments(s.t, store), core.Fair())
	s.here = append(s.here, "XXzk-604j7Y", held, "nYQ2OE4O6Fo", waits)
	s.block("export LOCKKIT_STORE=" + url)
	server.Exec("SET GLOBAL read_only=1")
	s.sh("lockkit show order:42").want(s.t, 69, "the server that answers does not write, as a replica")
	server.Kill()
	if c := s.run("lockkit check"); c.code != 69 || !strings.Contains(c.out, "lock store unavailable") {
		s.t.Errorf("%+v", c)
	}
	s.run("lockkit run probe:1 -- echo ran").want(s.t, 69, "lock store unavailable")
}
