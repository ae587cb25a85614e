package testserver_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestZooKeeperProxy(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	direct := testclient.ZooKeeper(t, session, server)
	everybody := zk.WorldACL(zk.PermAll)

	through := func(t *testing.T) (*testserver.Proxy, *zk.Conn) {
		t.Parallel()
		p := testserver.NewZooKeeperProxy(t, server)
		return p, testclient.ZooKeeper(t, session, p.Addr)
	}
	back := func(t *testing.T, conn *zk.Conn) {
		t.Helper()
		eventually(t, "the client is back", func() bool { return conn.State() == zk.StateHasSession })
	}
	once := func(p *testserver.Proxy, op string, fault testserver.Action) {
		done := false
		p.OnRequest(func(r testserver.Request) testserver.Action {
			if done || r.Name != op {
				return testserver.Pass
			}
			done = true
			return fault
		})
	}

	// The proxy records the operation and the path of each request.
	t.Run("everything passes", func(t *testing.T) {
		p, conn := through(t)
		p.Forget()
		create(t, conn, "/pass")
		if _, err := conn.Set("/pass", []byte("text"), -1); err != nil {
			t.Error(err)
		}
		if text, _, err := conn.Get("/pass"); err != nil || string(text) != "text" {
			t.Errorf("got %q, %v", text, err)
		}
		if !exists(t, conn, "/pass") {
			t.Error("got no node")
		}
		// This multi has one operation of each kind. The first operation has data and
		// two access rights, and the last has nil data.
		_, err := conn.Multi(
			&zk.CreateRequest{Path: "/pass/a", Data: []byte("a"), Acl: append(everybody, zk.DigestACL(zk.PermRead, "u", "p")...), Flags: zk.FlagEphemeral},
			&zk.CheckVersionRequest{Path: "/pass/a", Version: -1},
			&zk.DeleteRequest{Path: "/pass/a", Version: -1},
			&zk.SetDataRequest{Path: "/pass", Data: nil, Version: -1})
		if err != nil {
			t.Error(err)
		}
		if names, _, err := conn.Children("/pass"); err != nil || len(names) != 0 {
			t.Errorf("got %v, %v", names, err)
		}
		if err := conn.Delete("/pass", -1); err != nil {
			t.Error(err)
		}
		const check = "check"
		want := []testserver.Request{
			{Name: "create", Path: "/pass"}, {Name: "setData", Path: "/pass"}, {Name: "getData", Path: "/pass"},
			{Name: "exists", Path: "/pass"},
			{Name: "multi", Path: "/pass/a", Inner: []string{"create", check, "delete", "setData"}},
			{Name: "getChildren", Path: "/pass"}, {Name: "delete", Path: "/pass"},
		}
		got := p.Requests()
		for i := range got {
			got[i].Link = 0
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the proxy saw %v, want %v", got, want)
		}
		for i, r := range got {
			if creates := i == 0 || i == 4; r.Creates() != creates {
				t.Errorf("%v creates: %v, want %v", r, r.Creates(), creates)
			}
		}
		p.Forget()
		if len(p.Requests()) != 0 {
			t.Error("it does not forget")
		}
	})
	// Watches are counted when they fire.
	t.Run("watches are counted", func(t *testing.T) {
		p, conn := through(t)
		_, _, events, err := conn.ExistsW("/watched")
		if err != nil {
			t.Fatal(err)
		}
		if p.Events() != 0 {
			t.Error("counted before its time")
		}
		create(t, direct, "/watched")
		<-events
		if n := p.Events(); n != 1 {
			t.Errorf("counted %d", n)
		}
	})
	t.Run("lost request", func(t *testing.T) {
		p, conn := through(t)
		once(p, "create", testserver.CloseRequest)
		if _, err := conn.Create("/request", nil, zk.FlagPersistent, everybody); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("got %v, want a broken connection", err)
		}
		back(t, conn)
		if exists(t, direct, "/request") {
			t.Error("it did")
		}
		create(t, conn, "/request")
	})
	// If only the reply is lost, the server executes the request.
	t.Run("lost reply", func(t *testing.T) {
		p, conn := through(t)
		once(p, "create", testserver.CloseReply)
		if _, err := conn.Create("/reply", nil, zk.FlagPersistent, everybody); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("got %v, want a broken connection", err)
		}
		if !exists(t, direct, "/reply") {
			t.Error("got a request that was not done")
		}
		back(t, conn)
		if !exists(t, conn, "/reply") {
			t.Error("the client does not see it")
		}
	})
	// A partition delays messages, and loses none.
	t.Run("partition delays messages", func(t *testing.T) {
		p, conn := through(t)
		p.Partition()
		done := make(chan error, 1)
		go func() {
			_, err := conn.Create("/late", nil, zk.FlagPersistent, everybody)
			done <- err
		}()
		for range 20 { // the other links are served meanwhile
			if exists(t, direct, "/late") {
				t.Fatal("it passed")
			}
		}
		select {
		case err := <-done:
			t.Fatalf("got an answer: %v", err)
		default:
		}
		p.Partition() // changes nothing
		p.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.Heal()
	})
	// The client returns to its session after the connection was closed.
	t.Run("client that was cut off", func(t *testing.T) {
		p, conn := through(t)
		id := conn.SessionID()
		p.Sever()
		eventually(t, "a request is answered again", func() bool {
			_, _, err := conn.Exists("/")
			return err == nil
		})
		p.Down()
		if _, _, err := conn.Exists("/"); err == nil {
			t.Error("a request was answered while the server was cut off")
		}
		eventually(t, "the client has noticed", func() bool { return conn.State() != zk.StateHasSession })
		p.Up()
		back(t, conn)
		if now := conn.SessionID(); now != id {
			t.Errorf("session %x became %x", id, now)
		}
	})
}

// TestZooKeeperProxyEnds checks that a proxy stops with its test, even during a
// partition. Otherwise a test that failed midway could not report its failure.
func TestZooKeeperProxyEnds(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	done := make(chan struct{})
	t.Run("while the network is parted", func(t *testing.T) {
		p := testserver.NewZooKeeperProxy(t, server)
		conn := testclient.ZooKeeper(t, session, p.Addr)
		p.Partition()
		go func() {
			defer close(done)
			_, _, _ = conn.Exists("/")
		}()
	})
	<-done
}
