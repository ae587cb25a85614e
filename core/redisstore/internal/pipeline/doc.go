// Package pipeline sends calls to Redis; those that come at the same time go together.
// Of each call that failed it reports whether anything was sent. It knows go-redis, and
// not what the calls are for.
//
//	p := pipeline.New(client)
//	reply, err := p.Do(ctx, p.Eval(script, key, "acquire").Text(value).Num(1000))
//
// # A call's way
//
// Pipeline.do finds the server of the key, sends the call there, and again where the
// reply asks for that: the slot has moved, or the script is not known.
//
// server.do refuses an Optional call while the server is known to be down, and learns from
// the outcome: whether it is down, whether idle connections may be silent (then they are
// asked for a PING), or lead to a server that has lost its role (then they are closed).
//
// sender.do puts the call into a queue, and waits until it has come back, ctx ends, or
// Limit has passed. A worker takes what has come meanwhile and sends it as one flight.
// After 5 ms a flight holds up nothing behind it any more. Three kinds of calls use no queue.
// One that waits for replicas or follows ASK has a connection of its own, DoAll makes one
// flight for each server, and a caller that cannot leave sends its call itself, unless such a call
// has lately taken much longer than Limit.
//
// A flight is what go-redis sends at once: calls, a TIME behind them if one is Timed, and
// a WAIT behind that. When the client has returned each call gets its outcome.
//
// # Sent or not
//
// A call hands out its bytes once, see once.go. A call whose bytes nobody asked for was
// not sent, and when it has come back, or its caller has left it alone, it never will be.
// So nothing depends on when go-redis or a hook asks. The first reply that the client
// reports counts, and outcomes are read when it has returned.
//
// Calls are used again when the client has returned without a failure and the caller has
// the reply. A hook must not keep a call, but may keep a Clone.
//
// # While a server is down
//
// By the outcomes of its calls it is known of each server whether it is down. Then a probe
// asks it, on a connection of the Pipeline's own. When that is answered the connection stays
// for a while, for calls that find the client's pool still refusing to dial.
package pipeline
