package pipeline

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Pipeline sends calls to a server, or to the masters of a Cluster. It is safe for
// concurrent use.
type Pipeline struct {
	calls  sync.Pool // for reuse
	server *server   // nil in a Cluster

	cluster *redis.ClusterClient // nil without a Cluster
	located atomic.Bool          // the client knows the slots of the masters
	masters sync.Map             // *redis.Client to *server
	closed  atomic.Bool
}

// New returns a Pipeline that sends on client. The caller closes client after the
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

// Eval returns a call of a script on a key, and on a second key unless other is "". The
// call's first argument is word. Eval copies the key. In a Cluster both keys must be in
// one slot.
func (p *Pipeline) Eval(of *Script, key []byte, other string, word any) *Call {
	c := newCall(&p.calls, key)
	c.script, c.payload.bytes = of, of.sha
	c.words = append(c.words, "evalsha", &c.payload, "1", &c.key)
	if other != "" {
		c.words[2] = "2"
		c.Word(other)
	}
	return c.Word(word)
}

// SetNX returns a call of SET key value NX PX ms. Its reply is "OK", or nil if the key
// exists.
func (p *Pipeline) SetNX(key, value []byte, ms int64) *Call {
	c := newCall(&p.calls, key)
	c.value = append(c.value, value...)
	c.length, c.payload.bytes = len(value), c.value
	c.words = append(c.words, "set", &c.key, &c.payload, "nx", "px")
	return c.Num(ms)
}

// Replicated is the outcome of a call and of the WAIT after the call. Without a WAIT,
// only Reply has a meaning.
type Replicated struct {
	Reply    any
	Replicas int64 // replicas that have the write; unknown if Err is not nil
	Err      error // the error of the WAIT
}

// Do sends c and returns its outcome. If the server does not know the script, Do sends
// c again with the text. Do waits for each reply until ctx is done or Limit has passed.
// In a Cluster Do follows a slot that has moved, for at most Limit more. A Timed call
// fails with ErrElsewhere instead. An error reply is a redis.Error. For any other
// error, Sent reports whether c may have reached the server.
func (p *Pipeline) Do(ctx context.Context, c *Call) (Replicated, error) {
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
			defer bound()() // the further tries have Limit in total
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

// Item contains the arguments of one of many calls of a script.
type Item struct {
	Key, Text string
	Num       int64
}

// Result is the outcome of one of many calls.
type Result struct {
	Reply any
	Err   error // Sent reports whether the call may have reached the server
}

// DoAll sends a call of a script for each item. The arguments are word, the item's text
// and the item's number. Calls to one server are sent together. Servers are called in
// parallel, so that a hung server does not delay the replies of the others. DoAll
// returns when all replies have arrived or ctx is done. It sends nothing under a ctx that
// is already done. ctx must be Bounded.
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
				calls[n] = p.Eval(script, []byte(items[i].Key), "", word).Text(items[i].Text).Num(items[i].Num)
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
// the server does not know the script, doGroup sends the first call again with the
// text, and then the others together. Any other calls that have to be repeated are sent
// a few at a time, each to the server of its key.
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
		got, err := p.Do(ctx, calls[first].withText())
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
			got, err := p.Do(ctx, calls[i].again())
			results[i] = Result{got.Reply, err}
		})
	}
	all.Wait()
	return results
}

// sideBySide is the number of calls of a DoAll to one server that are repeated in
// parallel. Each has a goroutine, and moving slots can cause hundreds of repeats.
const sideBySide = 4

// Enter returns the reason if the server is known to be down, and nil otherwise. In a
// Cluster it always returns nil. It can wait for up to 100 ms for a probe.
func (p *Pipeline) Enter(ctx context.Context) error {
	if p.cluster != nil {
		return nil
	}
	return p.server.gate.Enter(ctx)
}

// Close ends the background work. It does not close the client. Calls can still be made
// after Close, but no server counts as down.
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
