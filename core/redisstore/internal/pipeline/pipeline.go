package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Pipeline sends calls to a server, or to the masters of a Cluster. It is safe for
// concurrent use.
type Pipeline struct {
	calls  sync.Pool // to be used again
	server *server   // nil in a cluster

	cluster *redis.ClusterClient // nil if it is none
	located atomic.Bool          // the client knows the slots of the masters
	masters sync.Map             // *redis.Client to *server
	closed  atomic.Bool
}

// New returns a Pipeline that sends by client. The caller closes client after the
// Pipeline.
func New(client redis.UniversalClient) *Pipeline {
	p := &Pipeline{}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		p.cluster = cluster
	} else {
		p.server = newServer(client, false)
		p.server.named = true
	}
	return p
}

// Eval returns a call of a script on a key, which it copies, with word as the first
// argument.
func (p *Pipeline) Eval(of *Script, key []byte, word any) *Call {
	c := newCall(&p.calls, key)
	c.script, c.once.bytes = of, of.sha
	c.words = append(c.words, "evalsha", &c.once, "1", &c.key, word)
	return c
}

// EvalTwo returns a call like Eval's on two keys. In a Cluster both have to be in one
// slot.
func (p *Pipeline) EvalTwo(of *Script, key []byte, other string, word any) *Call {
	c := newCall(&p.calls, key)
	c.script, c.once.bytes = of, of.sha
	c.words = append(c.words, "evalsha", &c.once, "2", &c.key, other, word)
	return c
}

// SetNX returns a call of SET key value NX PX ms. Its reply is "OK", or nil if the key
// exists.
func (p *Pipeline) SetNX(key, value []byte, ms int64) *Call {
	c := newCall(&p.calls, key)
	c.value = append(c.value, value...)
	c.length, c.once.bytes = len(value), c.value
	c.words = append(c.words, "set", &c.key, &c.once, "nx", "px")
	return c.Num(ms)
}

// Replicated is the outcome of a call and of the WAIT behind it.
type Replicated struct {
	Reply    any
	Replicas int64 // with the write; not known if Err is not nil
	Err      error // of the WAIT
}

// Do sends c and returns the reply. It sends c once more if the server does not know the
// script. It waits until ctx is done, or for Limit. In a Cluster, a call whose slot has
// moved follows it, for Limit once more, unless it is Timed: then Do fails with
// ErrElsewhere. An error reply is a redis.Error. For another error, Sent reports whether
// c may have reached the server.
func (p *Pipeline) Do(ctx context.Context, c *Call) (any, error) {
	got, err := p.do(ctx, c)
	return got.Reply, err
}

// DoWait sends c like Do, with a WAIT for as many replicas behind c, which lasts for at
// most limit. It takes as long as ctx, which has to be Bounded. WAIT counts the replicas
// that have the writes of its own connection, so both go in one pipeline.
func (p *Pipeline) DoWait(ctx context.Context, c *Call, replicas int, limit time.Duration) (Replicated, error) {
	c.replicas, c.limit = replicas, limit
	return p.do(ctx, c)
}

// do sends c until it reaches the server of its key, and that knows its script.
func (p *Pipeline) do(ctx context.Context, c *Call) (Replicated, error) {
	bound := func() (cancel context.CancelFunc) {
		ctx, cancel = Bounded(ctx)
		return cancel
	}
	if p.cluster != nil && !p.located.Load() {
		defer bound()()
	}
	to, err := p.serverOf(ctx, c.key)
	if err != nil {
		return Replicated{}, &unsentError{err}
	}
	if c.timed && !to.sender.own {
		return Replicated{}, &unsentError{ErrElsewhere}
	}
	for tries := 0; ; {
		got, err := to.do(ctx, c)
		switch {
		case replied(err, "NOSCRIPT") && c.script != nil:
			c = c.withText()
			continue
		case p.cluster == nil || !elsewhere(err):
			return got, err
		case c.timed:
			return Replicated{}, ErrElsewhere
		case tries == 0:
			defer bound()() // the further tries have Limit together
		}
		if tries++; !pursue(ctx, tries) {
			return got, err
		}
		c = c.again()
		if to, c.asking, err = p.follow(ctx, c.key, err); err != nil {
			return Replicated{}, &unsentError{err}
		}
	}
}

// Item has the arguments of one of many calls of a script.
type Item struct {
	Key, Text string
	Num       int64
}

// Result is the outcome of one of many calls.
type Result struct {
	Reply any
	Err   error // Sent reports whether the call may have reached the server
}

// DoAll sends a call of a script for each item, with word, the item's text and its
// number as arguments. Calls to one server go together. Servers are asked side by side,
// so that one that hangs does not delay the replies of the others. DoAll takes as long
// as ctx, which has to be Bounded: then it returns the replies that have arrived.
func (p *Pipeline) DoAll(ctx context.Context, script *Script, word any, items []Item) []Result {
	results := make([]Result, len(items))
	groups := make(map[*server][]int)
	for i := range items {
		to, err := p.serverOf(ctx, name(items[i].Key))
		if err != nil {
			results[i].Err = &unsentError{err}
			continue
		}
		groups[to] = append(groups[to], i)
	}
	var all sync.WaitGroup
	for to, group := range groups {
		all.Go(func() {
			calls := make([]*Call, len(group))
			for n, i := range group {
				calls[n] = p.Eval(script, []byte(items[i].Key), word).Text(items[i].Text).Num(items[i].Num)
			}
			for n, r := range p.doGroup(ctx, to, calls) {
				results[group[n]] = r
			}
		})
	}
	all.Wait()
	return results
}

// doGroup sends calls of one script together to the last known server of their keys. If
// it does not know the script, the first call goes again with the text, and then the
// others go together. Other calls that have to be sent again go a few at a time, each to
// the server of its key.
func (p *Pipeline) doGroup(ctx context.Context, to *server, calls []*Call) []Result {
	results := to.doAll(ctx, calls)
	var unknown []int
	for i, r := range results {
		if replied(r.Err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		first := unknown[0]
		got, err := p.do(ctx, calls[first].withText())
		results[first] = Result{got.Reply, err}
	}
	if len(unknown) > 1 {
		others := unknown[1:]
		again := make([]*Call, len(others))
		for n, i := range others {
			again[n] = calls[i].again()
		}
		for n, r := range to.doAll(ctx, again) {
			results[others[n]] = r
		}
	}
	var all sync.WaitGroup
	tickets := make(chan struct{}, sideBySide)
	for i, r := range results {
		if !replied(r.Err, "NOSCRIPT") && !(p.cluster != nil && elsewhere(r.Err)) && to.other(r.Err) == nil {
			continue
		}
		tickets <- struct{}{}
		all.Go(func() {
			defer func() { <-tickets }()
			got, err := p.do(ctx, calls[i].again())
			results[i] = Result{got.Reply, err}
		})
	}
	all.Wait()
	return results
}

// sideBySide is the number of calls of a DoAll to a server that are sent again at a
// time. Each has a goroutine, and moving slots may send hundreds again.
const sideBySide = 4

// Enter returns nil unless the server is known to be down, and the reason otherwise. In
// a Cluster it always returns nil. It may wait a moment for a probe in flight.
func (p *Pipeline) Enter(ctx context.Context) error {
	if p.cluster != nil {
		return nil
	}
	return p.server.gate.Enter(ctx)
}

// Close ends the background work. It does not close the client. Calls can still be made;
// no server is known to be down any more.
func (p *Pipeline) Close() {
	p.closed.Store(true)
	if p.server != nil {
		p.server.close()
	}
	p.masters.Range(func(_, to any) bool {
		to.(*server).close()
		return true
	})
}
