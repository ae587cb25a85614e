package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/zkstore"
)

const storeVariable = "LOCKKIT_STORE"

const storeHelp = `
The store is the URL of -store, or of the variable LOCKKIT_STORE. Prefer the variable
if the URL has a password, because the list of processes shows arguments.

  redis://user:password@host:6379/0      one Redis; rediss:// uses TLS, unix:// a socket
  redis+cluster://host:6379?addr=host2:6379
                                         Redis Cluster; rediss+cluster:// uses TLS
  redis+sentinel://host:26379?master_name=mymaster&addr=host2:26379
                                         Redis Sentinel; rediss+sentinel:// uses TLS
  postgres://user:password@host:5432/db  PostgreSQL, after pgstore.Migrate
  mysql://user:password@host:3306/db     MySQL, after sqlstore.Migrate; also mariadb://
  sqlite:///path/to/file                 SQLite, after sqlstore.Migrate
  zk://user:password@host:2181,host2:2181/root
                                         ZooKeeper; the default root is /lk1

A Redis URL has the parameters of go-redis (ParseURL, ParseClusterURL,
ParseFailoverURL). A redis:// URL with master_name is for Sentinel, and otherwise one
with addr for a Cluster. A MySQL URL has the parameters of go-sql-driver/mysql, such as
tls=true. In the user and the password, write special characters in the form %40 for @.
The path of SQLite is used unchanged.
`

type storeFlags struct {
	url      string
	prefix   optional
	plain    bool
	redisson bool
	proxy    bool
	silent   bool // scripts do not publish
}

// optional is the value of a flag that may be empty. It records whether the flag was
// given.
type optional struct {
	text  string
	given bool
}

func (o *optional) String() string     { return o.text }
func (o *optional) Set(s string) error { o.text, o.given = s, true; return nil }

func (f *storeFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.url, "store", "", "")
	flags.Var(&f.prefix, "prefix", "")
	flags.BoolVar(&f.plain, "plain", false, "")
	flags.BoolVar(&f.redisson, "redisson", false, "")
	flags.BoolVar(&f.proxy, "proxy", false, "")
	flags.BoolVar(&f.silent, "no-scripted-wake-ups", false, "")
}

const storeFlagsHelp = `  -store URL     the store, instead of LOCKKIT_STORE
  -prefix P      prefix of Redis keys, before lk2: (with -plain: instead of lk1:)
  -plain         locks in plain Redis keys, the form of other programs
  -redisson      Redisson's locks, without the kit's prefix
  -proxy         for a proxy that spreads the Redis keys over several servers
  -no-scripted-wake-ups
                 for a Redis server that runs no script with PUBLISH
`

type storeClient struct {
	core.Store
	servers   string                          // shown to operators
	connected func(ctx context.Context) error // waits for a client that connects in advance
	check     func(ctx context.Context) error
	close     func()
}

// open returns the store that the flags select. Only ZooKeeper is connected at once.
// session is ZooKeeper's session timeout, for which the key of a crashed holder stays
// taken. The errors of open match core.ErrInvalid and do not contain a password.
func (f *storeFlags) open(session time.Duration) (*storeClient, error) {
	raw := f.url
	if raw == "" {
		raw = os.Getenv(storeVariable)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return nil, fmt.Errorf("no store: set -store or %s: %w", storeVariable, core.ErrInvalid)
	case !ok:
		return nil, fmt.Errorf("the store is not a URL such as redis://host:6379: %w", core.ErrInvalid)
	}
	kind, how, _ := strings.Cut(scheme, "+")
	var s *storeClient
	var err error
	switch {
	case kind == "redis" || kind == "rediss" || scheme == "unix":
		s, err = f.openRedis(kind+"://"+rest, how)
	case f.plain || f.redisson || f.prefix.given || f.proxy || f.silent:
		return nil, fmt.Errorf("-prefix, -plain, -redisson, -proxy and -no-scripted-wake-ups are only for Redis: %w", core.ErrInvalid)
	case scheme == "postgres" || scheme == "postgresql":
		s, err = openPostgres(raw)
	case scheme == "mysql" || scheme == "mariadb":
		s, err = openMySQL(raw)
	case scheme == "sqlite":
		s, err = openSQLite(rest)
	case scheme == "zk":
		s, err = openZooKeeper(rest, session)
	default:
		return nil, fmt.Errorf("the store's URL has an unknown scheme (redis, rediss, unix, redis+cluster, rediss+cluster, "+
			"redis+sentinel, rediss+sentinel, postgres, postgresql, mysql, mariadb, sqlite or zk): %w", core.ErrInvalid)
	}
	if errors.Is(err, core.ErrInvalid) {
		return nil, err // the store's error; the store does not know the URL
	}
	if err != nil {
		return nil, fmt.Errorf("the store's URL: %w: %w", safe(raw, err), core.ErrInvalid)
	}
	s.servers = serversOf(rest)
	return s, nil
}

// serversOf returns the servers that a URL names after its scheme.
func serversOf(rest string) string {
	hosts, more := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, more = rest[:i], rest[i:]
	}
	hosts = hosts[strings.LastIndexByte(hosts, '@')+1:]
	if hosts == "" || strings.Contains(more, "@") { // the first part may belong to a password
		return "the store"
	}
	return hosts
}

// atOnce is the connected function of a client that connects with its first call.
func atOnce(context.Context) error { return nil }

// safe returns the error of parsing a URL, or a general error if err could contain a
// part of the password.
func safe(raw string, err error) error {
	u, bad := url.Parse(raw)
	switch {
	case strings.Contains(raw, "@") && (bad != nil || u.User == nil), bad != nil:
		return errors.New("cannot be parsed; in the user and the password, write special characters as % and two digits")
	case u.User != nil:
		if password, _ := u.User.Password(); password != "" && strings.Contains(err.Error(), password) {
			return errors.New("cannot be used")
		}
	}
	for name := range u.Query() {
		if strings.Contains(name, "pass") {
			return errors.New("cannot be used")
		}
	}
	return err
}

func (f *storeFlags) openRedis(raw, how string) (*storeClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if how == "" {
		switch q := u.Query(); {
		case q.Has("master_name"):
			how = "sentinel"
		case q.Has("addr"):
			how = "cluster"
		}
	}
	var client redis.UniversalClient
	switch how {
	case "":
		o, err := redis.ParseURL(raw)
		if err != nil {
			return nil, err
		}
		client = redis.NewClient(o)
	case "cluster":
		o, err := redis.ParseClusterURL(raw)
		if err != nil {
			return nil, err
		}
		client = redis.NewClusterClient(o)
	case "sentinel":
		o, err := redis.ParseFailoverURL(raw)
		if err != nil {
			return nil, err
		}
		if o.MasterName == "" {
			return nil, errors.New("the parameter master_name is missing")
		}
		client = redis.NewFailoverClient(o)
	default:
		return nil, errors.New("unknown scheme (redis, redis+cluster or redis+sentinel)")
	}
	var opts []redisstore.Option
	if f.prefix.given {
		opts = append(opts, redisstore.WithPrefix(f.prefix.text))
	}
	if f.plain {
		opts = append(opts, redisstore.WithPlainKeys())
	}
	if f.redisson {
		opts = append(opts, redisstore.WithRedisson())
	}
	if f.proxy {
		opts = append(opts, redisstore.WithProxy())
	}
	if f.silent {
		opts = append(opts, redisstore.WithoutScriptedWakeUps())
	}
	s, err := redisstore.New(client, opts...)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &storeClient{Store: s, connected: atOnce, check: s.Check, close: func() { _, _ = s.Close(), client.Close() }}, nil
}

func openPostgres(raw string) (*storeClient, error) {
	config, err := pgxpool.ParseConfig(raw)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	s, err := pgstore.New(pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &storeClient{Store: s, connected: atOnce, check: s.Check, close: func() { _ = s.Close(); pool.Close() }}, nil
}

// openZooKeeper parses user:password@host:port,host:port/root. net/url cannot parse
// such a URL, because net/url supports only one host.
func openZooKeeper(rest string, timeout time.Duration) (*storeClient, error) {
	hosts, root, _ := strings.Cut(rest, "/")
	var opts []zkstore.Option
	if root = strings.TrimSuffix(root, "/"); root != "" {
		opts = append(opts, zkstore.WithRoot("/"+root))
	}
	var auth string
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, password, _ := strings.Cut(hosts[:at], ":")
		user, errUser := url.PathUnescape(user)
		password, errPassword := url.PathUnescape(password)
		if errUser != nil || errPassword != nil {
			return nil, errors.New("cannot be parsed")
		}
		auth, hosts = user+":"+password, hosts[at+1:]
		opts = append(opts, zkstore.WithACL(zk.DigestACL(zk.PermAll, user, password)))
	}
	if strings.ContainsAny(hosts, "?#") || hosts == "" {
		return nil, errors.New("is not of the form zk://host:port,host:port/root")
	}
	conn, _, err := zk.Connect(zk.FormatServers(strings.Split(hosts, ",")), timeout, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	if auth != "" {
		authenticate(conn, auth)
	}
	s, err := zkstore.New(conn, opts...)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &storeClient{
		Store:     s,
		connected: func(ctx context.Context) error { return session(ctx, conn) },
		check:     func(ctx context.Context) error { return try(ctx, s) },
		close:     func() { _ = s.Close(); conn.Close() },
	}, nil
}

// session waits until conn has a session. Without a majority of the servers, conn gets
// no session.
func session(ctx context.Context, conn *zk.Conn) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for conn.State() != zk.StateHasSession {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("no ZooKeeper session: a majority of the servers must be up: %w: %w", core.ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// authenticate waits until a server has authenticated conn, for at most two seconds. The
// client sends the user to each server to which it connects later.
func authenticate(conn *zk.Conn, auth string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = conn.AddAuth("digest", []byte(auth)) // the first acquire reports a refusal
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Print(...any)          {}

// try acquires and releases a lock. It is the check of a store without a check
// function.
func try(ctx context.Context, s core.Store) error {
	locks, err := core.New(s, core.WithObserver(core.Observers()))
	if err != nil {
		return err
	}
	lease, err := locks.TryAcquire(ctx, "check:"+rand.Text(), core.TTL(5*time.Second))
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}
