package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	proxy := testserver.NewRedisProxy(t, server.Addr)
	client := testclient.Redis(t, proxy.Addr)
	cluster := func(edit func(*redis.ClusterOptions)) redis.UniversalClient {
		o := &redis.ClusterOptions{Addrs: []string{proxy.Addr}}
		edit(o)
		c := redis.NewClusterClient(o)
		t.Cleanup(func() { c.Close() })
		return c
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": proxy.Addr}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { ring.Close() })
	before := proxy.Links()
	for name, c := range map[string]struct {
		client redis.UniversalClient
		opts   []redisstore.Option
		says   string
	}{
		"no client":            {nil, nil, "nil"},
		"a nil client":         {(*redis.Client)(nil), nil, "nil"},
		"a nil cluster client": {(*redis.ClusterClient)(nil), nil, "nil"},
		"a ring":               {ring, nil, "Ring"}, // hazard 35
		"a nil ring":           {(*redis.Ring)(nil), nil, "Ring"},
		// hazard 37
		"reads from replicas":                {cluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }), nil, "replicas"},
		"routing by latency":                 {cluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }), nil, "replicas"},
		"random routing":                     {cluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }), nil, "replicas"},
		"a long prefix":                      {client, []redisstore.Option{redisstore.WithPrefix(strings.Repeat("x", 257))}, "257 bytes"},
		"a prefix with a brace":              {client, []redisstore.Option{redisstore.WithPrefix("a{b}")}, "brace"},
		"a prefix with a control character":  {client, []redisstore.Option{redisstore.WithPrefix("a\n")}, "control"},
		"a prefix without UTF-8":             {client, []redisstore.Option{redisstore.WithPrefix("\xff")}, "UTF-8"},
		"no replicas":                        {client, []redisstore.Option{redisstore.WithReplicas(0, time.Second)}, "0 replicas"},
		"no time for replicas":               {client, []redisstore.Option{redisstore.WithReplicas(1, 0)}, "within 0 s"},
		"replica timeout above read timeout": {client, []redisstore.Option{redisstore.WithReplicas(1, time.Minute)}, "read timeout"},
		"a nil option":                       {client, []redisstore.Option{nil}, "option is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := redisstore.New(c.client, c.opts...)
			wantIs(t, "new", err, store.ErrInvalid)
			if s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got store %v and error %v, want one that says %q", s, err, c.says)
			}
		})
	}
	if n := len(proxy.Requests()); n != 0 || proxy.Links() > before {
		t.Errorf("%d commands were sent: %v", n, proxy.Requests())
	}
}

// TestInvalidClaim_NotSent checks that an invalid claim is refused before anything is
// sent.
func TestInvalidClaim_NotSent(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	proxy := testserver.NewRedisProxy(t, server.Addr)
	hash := newStore(t, testclient.Redis(t, proxy.Addr))
	plain := newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithPlainKeys())
	for name, c := range map[string]struct {
		edit func(*store.Claim)
		want error
		all  bool // extend and release refuse it too
	}{
		"an empty key":                {func(c *store.Claim) { c.Key = "" }, store.ErrInvalid, true},
		"a key of 513 bytes":          {func(c *store.Claim) { c.Key = strings.Repeat("x", 513) }, store.ErrInvalid, true},
		"a binary key":                {func(c *store.Claim) { c.Key = "a\xffb" }, store.ErrInvalid, true},
		"a key with a null byte":      {func(c *store.Claim) { c.Key = "a\x00b" }, store.ErrInvalid, true},
		"a key with an opening brace": {func(c *store.Claim) { c.Key = "a{b" }, store.ErrInvalid, true},
		"a key with a closing brace":  {func(c *store.Claim) { c.Key = "a}b" }, store.ErrInvalid, true},
		"no lease":                    {func(c *store.Claim) { c.Lease = "" }, store.ErrInvalid, true},
		"a lease of two words":        {func(c *store.Claim) { c.Lease = "a b" }, store.ErrInvalid, true},
		"no owner":                    {func(c *store.Claim) { c.Owner = "" }, store.ErrInvalid, true},
		"an owner of two lines":       {func(c *store.Claim) { c.Owner = "a\nb" }, store.ErrInvalid, true},
		"a joined owner of two words": {func(c *store.Claim) { c.Via = "a b" }, store.ErrInvalid, true},
		"no TTL":                      {func(c *store.Claim) { c.TTL = 0 }, store.ErrInvalid, false},
		"a negative TTL":              {func(c *store.Claim) { c.TTL = -time.Second }, store.ErrInvalid, false},
		"a TTL below a millisecond":   {func(c *store.Claim) { c.TTL = time.Microsecond }, store.ErrInvalid, false},
		"no weight":                   {func(c *store.Claim) { c.Weight = 0 }, store.ErrInvalid, false},
		"more weight than the limit":  {func(c *store.Claim) { c.Weight, c.Limit = 3, 2 }, store.ErrInvalid, false},
		"a limit above all":           {func(c *store.Claim) { c.Limit = store.All + 1 }, store.ErrInvalid, false},
		"a token beyond floats":       {func(c *store.Claim) { c.MinToken = 1 << 60 }, store.ErrInvalid, false},
		"a token for a reader":        {func(c *store.Claim) { c.MinToken, c.Weight = 1, 1 }, store.ErrUnsupported, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []*redisstore.Store{hash, plain} {
				if s == plain && strings.HasSuffix(name, "brace") {
					continue // keys of other programs can have braces
				}
				claim := claimed()
				c.edit(&claim)
				_, err := s.Acquire(t.Context(), claim)
				wantIs(t, "acquire", err, c.want)
				if !c.all {
					continue
				}
				wantIs(t, "extend", extend(s, claim), c.want)
				wantIs(t, "release", s.Release(t.Context(), claim), c.want)
				_, err = s.Watch(t.Context(), claim)
				wantIs(t, "watch", err, c.want)
			}
		})
	}
	t.Run("unsupported with plain keys", func(t *testing.T) {
		for name, edit := range map[string]func(*store.Claim){
			"sharing": func(c *store.Claim) { c.Weight = 1 },
			"permits": func(c *store.Claim) { c.Weight, c.Limit = 1, 2 },
			"joining": func(c *store.Claim) { c.Via = "other" },
			"fair":    func(c *store.Claim) { c.Fair = true },
			"tokens":  func(c *store.Claim) { c.MinToken = 1 },
			"records": func(c *store.Claim) { c.Record = &store.Record{Retain: time.Hour} },
		} {
			claim := claimed()
			edit(&claim)
			_, err := plain.Acquire(t.Context(), claim)
			wantIs(t, name, err, store.ErrUnsupported)
		}
		_, err := plain.Watch(t.Context(), claimed())
		wantIs(t, "watch", err, store.ErrUnsupported)
	})
	if n := len(proxy.Requests()); n != 0 {
		t.Errorf("%d commands were sent: %v", n, proxy.Requests())
	}
	t.Run("one bad claim in a batch", func(t *testing.T) {
		good, bad := claimed(), claimed()
		bad.Key = ""
		acquire(t, hash, good)
		answers := hash.Extend(t.Context(), []store.Claim{bad, good, bad})
		wantIs(t, "extend", answers[0].Err, store.ErrInvalid)
		wantIs(t, "extend", answers[2].Err, store.ErrInvalid)
		if answers[1].Err != nil {
			t.Errorf("extend: %v", answers[1].Err)
		}
	})
}
