package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Pipeline sends calls to a server, or to the masters of a Cluster. It is safe for
// concurrent use.
type Pipeline struct {
	client redis.UniversalClient
	calls  sync.Pool // to be used again

	server *server // nil in a cluster

	cluster *redis.ClusterClient // nil if it is none
	located atomic.Bool          // the client knows where the slots are
	masters sync.Map             // *redis.Client to *server
	closed  atomic.Bool
}

// New returns a Pipeline that sends by client, which the caller closes after it.
func New(client redis.UniversalClient) *Pipeline {
	p := &Pipeline{client: client}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		p.cluster = cluster
	} else {
		p.server = newServer(client, false)
		p.server.named = true
	}
	return p
}

// Eval is a call of a script on a key, which is copied, with word as the first
// argument.
func (p *Pipeline) Eval(of *Script, key []byte, word any) *Call {
	c := newCall(&p.calls, key)
	c.script = of
	c.tracked = tracked{c.state, of.sha}
	c.words = append(c.words, "evalsha", &c.tracked, "1", &c.key, word)
	return c
}

// SetNX is SET key value NX PX ms. Its reply is "OK", or nil if the key exists.
func (p *Pipeline) SetNX(key, value []byte, ms int64) *Call {
	c := newCall(&p.calls, key)
	c.length = len(value)
	c.tracked = tracked{c.state, append(c.value[:0], value...)}
	c.words = append(c.words, "set", &c.key, &c.tracked, "nx", "px")
	return c.Num(ms)
}

// Do sends c, and once more if the server does not know the script, and returns the
// reply. It waits until ctx ends, or for Limit. Sent tells of its error whether c may
// have reached the server; an error reply is a redis.Error. In a Cluster, a call that
// is told that its slot has moved follows it, unless it is Timed: then it ends with
// ErrElsewhere.
func (p *Pipeline) Do(ctx context.Context, c *Call) (any, error) {
	s := c.state // c itself is not ours once there is a reply
	reply, err := p.once(ctx, c.ready(ctx))
	if unknownScript(err) && s.again() {
		reply, err = p.once(ctx, c.next(ctx))
	}
	return reply, s.outcome(err)
}

// once sends c once, or in a Cluster until it is where its key is.
func (p *Pipeline) once(ctx context.Context, c *Call) (any, error) {
	if p.cluster == nil {
		if c.timed && !p.server.sender.own {
			return nil, ErrElsewhere
		}
		return p.server.do(ctx, c)
	}
	if !p.located.Load() {
		var cancel context.CancelFunc
		ctx, cancel = Bounded(ctx)
		defer cancel()
	}
	to, err := p.serverOf(ctx, c.key.String())
	if err != nil {
		return nil, err
	}
	v, err := to.do(ctx, c)
	if !elsewhere(err) || !c.state.again() {
		return v, err
	}
	if c.timed {
		return nil, ErrElsewhere
	}
	// The client looks where the slots are, and follows a slot that has moved.
	ctx, cancel := Bounded(ctx)
	defer cancel()
	return detached(ctx, c.state, func() (any, error) {
		last := c.whole(ctx)
		for tries := 1; ; tries++ {
			err := p.client.Process(ctx, last)
			if !moved(err) || !c.state.again() || !pursue(ctx, tries) {
				return c.result(last)
			}
			last = c.whole(ctx)
		}
	})
}

// DoWait sends c and a WAIT for as many replicas, which lasts for limit at most, and
// returns the outcome of both. It takes as long as ctx, which has to be Bounded. Its
// error is as that of Do, but for a Timed call in a Cluster, which does not follow its slot.
func (p *Pipeline) DoWait(ctx context.Context, c *Call, replicas int, limit time.Duration) (Replicated, error) {
	to := p.server
	if p.cluster != nil {
		var err error
		if to, err = p.serverOf(ctx, c.key.String()); err != nil {
			return Replicated{}, c.state.outcome(err)
		}
	}
	if err := to.enter(ctx, c); err != nil {
		return Replicated{}, c.state.outcome(err)
	}
	begun := to.gate.Begin()
	r := replicating{p, c.ready(ctx), replicas, limit}
	got, err := detached(ctx, c.state, func() (Replicated, error) { return r.do(ctx) })
	return got, c.state.outcome(to.judge(ctx, begun, err))
}

// DoAll sends a call of a script for each item, with word, its text and its number as
// arguments. Those that go to one server go together, and servers are asked side by
// side, so that one that hangs does not delay the replies of the others. It takes as
// long as ctx, which has to be Bounded: then it returns the replies that have arrived.
func (p *Pipeline) DoAll(ctx context.Context, script *Script, word any, items []Item) []Result {
	results := make([]Result, len(items))
	bulks := p.bulks(ctx, script, word, items, results)
	done := make(chan *bulk, len(bulks))
	for _, b := range bulks {
		go b.run(ctx, p.client, done)
	}
	for range bulks {
		select {
		case b := <-done:
			b.ended = true
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, b := range bulks {
		b.read(ctx, results)
	}
	return results
}

// bulks groups the items by server, and fills in the results of those whose server is
// not known.
func (p *Pipeline) bulks(ctx context.Context, script *Script, word any, items []Item, results []Result) []*bulk {
	if p.cluster == nil {
		all := make([]int, len(items))
		for i := range all {
			all[i] = i
		}
		return []*bulk{newBulk(ctx, p.server, script, word, items, all)}
	}
	type place struct {
		master *redis.Client
		err    error
	}
	// The client may have to ask where the slots are.
	places, err := Detached(ctx, func() ([]place, error) {
		places := make([]place, len(items))
		for i := range items {
			places[i].master, places[i].err = p.cluster.MasterForKey(ctx, items[i].Key)
		}
		return places, nil
	})
	groups := make(map[*redis.Client][]int)
	for i := range items {
		at := place{err: err}
		if err == nil {
			at = places[i]
		}
		if at.err != nil {
			results[i].Err = &unsentError{at.err}
			continue
		}
		groups[at.master] = append(groups[at.master], i)
	}
	all := make([]*bulk, 0, len(groups))
	for master, indexes := range groups {
		to, _ := p.wayTo(master)
		all = append(all, newBulk(ctx, to, script, word, items, indexes))
	}
	return all
}

// Enter returns nil unless the server is known to be down, then why. In a Cluster it
// is always nil. It may wait for a moment for a probe that is under way.
func (p *Pipeline) Enter(ctx context.Context) error {
	if p.cluster != nil {
		return nil
	}
	return p.server.gate.Enter(ctx)
}

// Close ends the background work. It does not close the client. Calls can
// still be made; no server is known to be down any more.
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

// serverOf returns the way to the master of a key.
func (p *Pipeline) serverOf(ctx context.Context, key string) (*server, error) {
	master, err := p.masterOf(ctx, key)
	if err != nil {
		return nil, err
	}
	to, known := p.wayTo(master)
	if !known {
		p.forget(master)
	}
	return to, nil
}

// masterOf returns the master of a key. The client may first have to ask where the slots are.
// The caller can leave that, which has Limit: the next call may find them.
func (p *Pipeline) masterOf(ctx context.Context, key string) (*redis.Client, error) {
	if p.located.Load() {
		return p.cluster.MasterForKey(ctx, key)
	}
	return Detached(ctx, func() (*redis.Client, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
		defer cancel()
		master, err := p.cluster.MasterForKey(ctx, key)
		if err == nil {
			p.located.Store(true)
		}
		return master, err
	})
}

// wayTo returns the way to a master, and whether there was one already.
func (p *Pipeline) wayTo(master *redis.Client) (to *server, known bool) {
	way, known := p.masters.Load(master)
	if !known {
		way, known = p.masters.LoadOrStore(master, newServer(master, p.closed.Load()))
	}
	return way.(*server), known
}

// forget drops the ways that are not used, but for one: their masters may be gone.
// Callers that still have one of them may use it.
func (p *Pipeline) forget(but *redis.Client) {
	p.masters.Range(func(master, to any) bool {
		if to := to.(*server); master != but && to.sender.unused() {
			p.masters.Delete(master)
			go to.close()
		}
		return true
	})
}

// ErrElsewhere is the error of a Timed call that was not sent, or that a server refused
// since its slot is elsewhere: a TIME names no key, so that only a client of one server
// certainly sends it to the server of the call.
var ErrElsewhere = errors.New("the time of the key's server cannot be asked for")

// unknownScript tells that err says that the server does not know a script.
func unknownScript(err error) bool { return replied(err, "NOSCRIPT") }

// moved tells that err says that the slot is elsewhere.
func moved(err error) bool { return replied(err, "MOVED") || replied(err, "ASK") }

// elsewhere tells that err says no more than that another server has to be asked.
func elsewhere(err error) bool {
	return moved(err) || replied(err, "READONLY") || errors.Is(err, redis.ErrClosed)
}

// replied tells that err is an error reply with this code.
func replied(err error, code string) bool { return err != nil && redis.HasErrorPrefix(err, code) }

// pursue waits until a call that has been sent n times, and was told each time
// that its slot is elsewhere, may be sent once more. It is false when it may not.
// While a slot is handed over its two masters can name each other for a moment,
// and a slot that moves to and fro can be a step ahead. The waits are half a
// second together.
func pursue(ctx context.Context, n int) bool {
	if n > 10 {
		return false
	}
	timer := time.NewTimer(time.Millisecond / 2 << (n - 1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
