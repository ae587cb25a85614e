package sqltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// throughProxy is a database behind a proxy, and the same without it.
func throughProxy(t *testing.T) (direct, behind database, proxy *testserver.Proxy) {
	t.Helper()
	s := mariaDB.Get(t).NewDatabase(t)
	proxy = testserver.NewMySQLProxy(t, s.Addr)
	direct = database{onMariaDB(t).dialect, "mysql", s.DSN()}
	behind = direct
	behind.dsn = s.DSNAt(proxy.Addr)
	return direct, behind, proxy
}

func TestMariaDB_Faults(t *testing.T) {
	t.Parallel()
	const taking, giving = "INSERT INTO lockkit_locks", "UPDATE lockkit_locks"
	certain := func(err error) bool { return err == nil || errors.Is(err, store.ErrUnavailable) }

	t.Run("a cycle is two round trips", func(t *testing.T) {
		t.Parallel()
		_, behind, proxy := throughProxy(t)
		p, _ := behind.place(t)
		c := claim("key", long)
		take(t, p, c) // a connection is there
		give(t, p, c)
		proxy.Forget()
		for range 3 {
			take(t, p, c)
			give(t, p, c)
			c = claim("key", long)
		}
		if got := proxy.Requests(); len(got) != 6 {
			t.Errorf("got %d requests, want 6: %v", len(got), got)
		}
	})
	t.Run("a reply is lost", func(t *testing.T) {
		t.Parallel()
		direct, behind, proxy := throughProxy(t)
		sound, _ := direct.place(t)
		p, _ := behind.place(t)
		c := claim("key", long)
		f := proxy.Inject(testserver.Statement(taking), testserver.CloseReply)
		if _, ok, err := p.Take(t.Context(), c); ok || certain(err) {
			t.Errorf("take: got %v, %v, want an unknown outcome", ok, err)
		}
		f.AwaitAnswer(t)
		if r := load(t, sound, "key", false); string(r.Lease) != c.Lease {
			t.Errorf("got the lease %q, want that of the claim", r.Lease)
		}
		f = proxy.Inject(testserver.Statement(giving), testserver.CloseReply)
		if ok, err := p.Give(t.Context(), c); ok || certain(err) {
			t.Errorf("give: got %v, %v, want an unknown outcome", ok, err)
		}
		f.AwaitAnswer(t)
		if _, ok := take(t, sound, claim("key", long)); !ok {
			t.Error("the hold was not released")
		}
	})
	t.Run("a request is lost", func(t *testing.T) {
		t.Parallel()
		direct, behind, proxy := throughProxy(t)
		sound, _ := direct.place(t)
		p, _ := behind.place(t)
		proxy.Inject(testserver.Statement(taking), testserver.CloseRequest)
		if _, ok, err := p.Take(t.Context(), claim("key", long)); ok || certain(err) {
			t.Errorf("got %v, %v, want an unknown outcome", ok, err)
		}
		if r := load(t, sound, "key", false); r.Version != 0 {
			t.Error("the key is taken")
		}
	})
	t.Run("a request is doubled", func(t *testing.T) {
		t.Parallel()
		_, behind, proxy := throughProxy(t)
		p, _ := behind.place(t)
		c := claim("key", long)
		f := proxy.Inject(testserver.Statement(taking), testserver.DoubleRequest)
		if _, ok := take(t, p, c); !ok {
			t.Error("got a refusal, want a grant")
		}
		f.AwaitAnswer(t)
		f = proxy.Inject(testserver.Statement(giving), testserver.DoubleRequest)
		if !give(t, p, c) {
			t.Error("got no release")
		}
		f.AwaitAnswer(t)
		if _, ok := take(t, p, claim("key", long)); !ok {
			t.Error("a free key: got a refusal, want a grant")
		}
	})
	t.Run("a caller leaves", func(t *testing.T) {
		t.Parallel()
		direct, behind, proxy := throughProxy(t)
		sound, _ := direct.place(t)
		p, _ := behind.place(t)
		c := claim("key", long)
		f := proxy.Inject(testserver.Statement(taking), testserver.HoldRequest)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		go func() {
			<-f.Fired()
			cancel(why)
		}()
		if _, _, err := p.Take(ctx, c); certain(err) || !errors.Is(err, why) {
			t.Errorf("got %v, want an unknown outcome and the cause", err)
		}
		f.Deliver()
		f.AwaitAnswer(t)
		if r := load(t, sound, "key", false); string(r.Lease) != c.Lease {
			t.Error("the statement did not take effect later")
		}
		if _, _, err := p.Take(ctx, c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with a context that is done: got %v, want %v", err, store.ErrUnavailable)
		}
	})
	t.Run("a server that does not answer", func(t *testing.T) {
		t.Parallel()
		_, behind, proxy := throughProxy(t)
		p, _ := behind.place(t)
		proxy.Partition()
		begun := time.Now()
		if _, _, err := p.Take(t.Context(), claim("key", long)); certain(err) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("it took %v, want about 2s", took)
		}
		proxy.Heal()
	})
	t.Run("a server that is gone", func(t *testing.T) {
		t.Parallel()
		_, behind, proxy := throughProxy(t)
		p, _ := behind.place(t)
		proxy.Down()
		if _, _, err := p.Take(t.Context(), claim("key", long)); err == nil {
			t.Error("got no error")
		}
		proxy.Up()
		if _, ok := take(t, p, claim("key", long)); !ok {
			t.Error("got a refusal, want a grant")
		}
	})
}
