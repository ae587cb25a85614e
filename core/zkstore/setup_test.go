package zkstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

func TestNew(t *testing.T) {
	t.Parallel()
	conn, _, err := zk.Connect([]string{"127.0.0.1:1"}, session, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, c := range map[string]struct {
		conn *zk.Conn
		opt  zkstore.Option
	}{
		"a missing connection":       {nil, zkstore.WithRoot("/a")},
		"a missing option":           {conn, nil},
		"a root without a slash":     {conn, zkstore.WithRoot("a")},
		"the root of all":            {conn, zkstore.WithRoot("/")},
		"a root that ends early":     {conn, zkstore.WithRoot("/a/")},
		"an empty part":              {conn, zkstore.WithRoot("/a//b")},
		"a relative part":            {conn, zkstore.WithRoot("/a/../b")},
		"a control character":        {conn, zkstore.WithRoot("/a\x01")},
		"a root that is too long":    {conn, zkstore.WithRoot("/" + strings.Repeat("a", 300))},
		"own node of ZooKeeper":      {conn, zkstore.WithRoot("/zookeeper/locks")},
		"an ACL that allows no user": {conn, zkstore.WithACL(nil)},
		"a session of no time":       {conn, zkstore.WithSessionTimeout(time.Millisecond)},
		"a session of negative time": {conn, zkstore.WithSessionTimeout(-time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s, err := zkstore.New(c.conn, c.opt); !errors.Is(err, store.ErrInvalid) || s != nil {
				t.Errorf("got %v, %v; want %v", s, err, store.ErrInvalid)
			}
		})
	}
	// Without a connection, calls return when their context is done.
	t.Run("without a connection", func(t *testing.T) {
		s, err := zkstore.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		c := exclusive("nowhere")
		if _, err := s.Acquire(ctx, c); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		if x := s.Extend(ctx, []store.Claim{c}); x[0].Err == nil || errors.Is(x[0].Err, store.ErrLost) {
			t.Errorf("extend: %v", x[0].Err)
		}
		if err := s.Release(ctx, c); err == nil || errors.Is(err, store.ErrLost) {
			t.Errorf("release: %v", err)
		}
		if took := time.Since(start); took > patience/2 {
			t.Errorf("the calls took %v", took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after Close: got %v, want %v", err, store.ErrUnavailable)
		}
	})
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func TestRootAndRights(t *testing.T) {
	t.Parallel()
	server := testserver.StartZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server.Addr)
	if _, err := admin.Create("/tenants", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := admin.AddAuth("digest", []byte("ours:secret")); err != nil {
		t.Fatal(err)
	}
	private := zk.DigestACL(zk.PermAll, "ours", "secret")
	opts := []zkstore.Option{zkstore.WithRoot("/tenants/a/locks"), zkstore.WithACL(private)}

	s, conn := storeOn(t, session, []string{server.Addr}, opts...)
	c := exclusive("key")
	t.Run("client that is not authenticated", func(t *testing.T) {
		if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, zk.ErrInvalidACL) && !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("got %v, want %v because of the rights", err, store.ErrUnavailable)
		}
	})
	// The store creates the root and all nodes below it, with the configured rights.
	t.Run("below the root", func(t *testing.T) {
		if err := conn.AddAuth("digest", []byte("ours:secret")); err != nil {
			t.Fatal(err)
		}
		grant(t, s, c)
		top, _, err := admin.Children("/")
		if err != nil || len(top) != 2 { // the root's top node and /zookeeper
			t.Errorf("there is %v, %v", top, err)
		}
		names, _, err := admin.Children("/tenants/a/locks/key")
		if err != nil || len(names) != 1 {
			t.Fatalf("there is %v, %v; want one node", names, err)
		}
		for _, path := range []string{"/tenants/a", "/tenants/a/locks", "/tenants/a/locks/key", "/tenants/a/locks/key/" + names[0]} {
			acl, _, err := admin.GetACL(path)
			if err != nil || len(acl) != 1 || acl[0] != private[0] {
				t.Errorf("%s has the rights %v, %v; want %v", path, acl, err, private)
			}
		}
	})
	t.Run("strangers are refused", func(t *testing.T) {
		stranger, _ := storeOn(t, session, []string{server.Addr}, zkstore.WithRoot("/tenants/a/locks"))
		if _, err := stranger.Acquire(t.Context(), exclusive("key")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("acquire: got %v, want %v", err, store.ErrUnavailable)
		}
		if err := stranger.Release(t.Context(), c); err == nil || errors.Is(err, store.ErrLost) {
			t.Errorf("release: got %v", err)
		}
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Error(x[0].Err)
		}
	})
	t.Run("rights in README", func(t *testing.T) {
		least := zk.DigestACL(zk.PermRead|zk.PermWrite|zk.PermCreate|zk.PermDelete, "ours", "secret")
		s, conn := storeOn(t, session, []string{server.Addr}, zkstore.WithRoot("/tenants/least"), zkstore.WithACL(least))
		if err := conn.AddAuth("digest", []byte("ours:secret")); err != nil {
			t.Fatal(err)
		}
		held, kept := exclusive("held"), exclusive("kept")
		grant(t, s, held)
		if x := s.Extend(t.Context(), []store.Claim{held}); x[0].Err != nil {
			t.Error(x[0].Err)
		}
		if err := s.Put(t.Context(), store.Card{Process: "PROCESS1"}, time.Minute); err != nil {
			t.Error(err)
		}
		if cards, err := s.Cards(t.Context()); err != nil || len(cards) != 1 {
			t.Errorf("cards: %+v, %v", cards, err)
		}
		if page, _, err := s.List(t.Context(), "", 10); err != nil || len(page) != 1 || len(page[0].Holds) != 1 {
			t.Errorf("list: %+v, %v", page, err)
		}
		if err := s.Revoke(t.Context(), held.Key, store.HoldID(held.Lease), time.Second); err != nil {
			t.Error(err)
		}
		grant(t, s, kept)
		kept.Keep = time.Second
		if err := s.Release(t.Context(), kept); err != nil {
			t.Error(err)
		}
	})
	// A Store that lacks a right does not search for a node again and again.
	t.Run("refused removal", func(t *testing.T) {
		for name, perms := range map[string]int32{
			"read":   zk.PermWrite | zk.PermCreate | zk.PermDelete | zk.PermAdmin,
			"delete": zk.PermRead | zk.PermWrite | zk.PermCreate | zk.PermAdmin,
		} {
			t.Run("without "+name, func(t *testing.T) {
				s, _ := storeOn(t, session, []string{server.Addr})
				key := "no-" + name
				grant(t, s, exclusive(key))
				dir := "/lk1/" + key
				names, _, err := admin.Children(dir)
				if err != nil || len(names) != 1 {
					t.Fatalf("got %v, %v; want one node", names, err)
				}
				if _, err := admin.SetACL(dir, zk.WorldACL(perms), -1); err != nil {
					t.Fatal(err)
				}
				if !zkstore.Swept(s, dir+"/"+names[0]) {
					t.Error("got a search that goes on, want its end")
				}
			})
		}
	})
	// The client's authentication survives a broken connection.
	t.Run("broken connection", func(t *testing.T) {
		proxy := testserver.NewZooKeeperProxy(t, server.Addr)
		s, conn := storeOn(t, session, []string{proxy.Addr}, opts...)
		if err := conn.AddAuth("digest", []byte("ours:secret")); err != nil {
			t.Fatal(err)
		}
		grant(t, s, exclusive("other"))
		proxy.Sever()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := store.ErrUnavailable
		for err != nil && ctx.Err() == nil {
			_, err = s.Acquire(ctx, exclusive("another"))
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("other roots", func(t *testing.T) {
		other, _ := storeOn(t, session, []string{server.Addr}, zkstore.WithRoot("/tenants/b"))
		grant(t, other, exclusive("key"))
	})
	t.Run("an empty key leaves nothing", func(t *testing.T) {
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the key's node is gone", func() bool {
			there, _, err := admin.Exists("/tenants/a/locks/key")
			return err == nil && !there
		})
		grant(t, s, exclusive("key"))
	})
}

// TestEmptyNodesGo acquires and releases a lock while the server may remove the key's
// empty node. Every acquire is granted.
func TestEmptyNodesGo(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	s, _ := storeOn(t, session, []string{server})
	gone := 0
	for stop := time.Now().Add(4 * testserver.ContainerCheck); time.Now().Before(stop); {
		c := exclusive("empty")
		grant(t, s, c)
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if there, _, err := admin.Exists("/lk1/empty"); err == nil && !there {
			gone++
		}
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, "the node is gone", func() bool {
		there, _, err := admin.Exists("/lk1/empty")
		return err == nil && !there
	})
	t.Logf("removed %d times meanwhile", gone)
}

// TestOwners_Secret lists a key's children, as other clients may. The names and the
// data must reveal neither the lease nor the owner, with which the clients could join
// the hold.
func TestOwners_Secret(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	s, _ := storeOn(t, session, []string{server})
	c := exclusive("secret")
	grant(t, s, c)
	for _, name := range children(t, admin, "secret") {
		text, _, err := admin.Get("/lk1/secret/" + name)
		if err != nil || strings.Contains(name+string(text), c.Owner) || strings.Contains(name+string(text), c.Lease) {
			t.Errorf("%q, %q, %v", name, text, err)
		}
	}
}
