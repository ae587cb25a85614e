// Package pipeline sends calls to Redis; calls that come at the same time are sent
// together. For each failed call it reports whether anything was sent. It knows
// go-redis, but not the purpose of the calls.
//
//	p := pipeline.New(client)
//	reply, err := p.Do(ctx, p.Eval(script, key, "acquire").Text(value).Num(1000))
//
// # Path of a call
//
// Pipeline.do finds the server of the key and sends the call there. It sends the call
// again if the reply requires that: the slot has moved, or the script is not known.
//
// server.do refuses an Optional call while the server is known to be down. It learns
// from the outcome whether the server is down, whether idle connections may be silent
// (then they are asked for a PING), or lead to a server that has lost its role (then
// they are closed).
//
// sender.do puts the call into a queue. It waits until the call has returned, ctx is
// done, or Limit has passed. A worker takes the calls that have come meanwhile and sends
// them as one flight. After 5 ms a flight holds up nothing behind it any more. Three
// kinds of calls use no queue. One that waits for replicas or follows ASK has a
// connection of its own. DoAll makes one flight for each server. A caller that cannot
// leave sends its call itself, unless such a call has lately taken much longer than
// Limit.
//
// A flight is what go-redis sends at once: calls, a TIME behind them if one is Timed,
// and a WAIT behind that. When the client has returned, each call gets its outcome.
//
// # Sent or not
//
// A call hands out its bytes once, see once.go. A call whose bytes were never asked for
// was not sent. When it has returned, or its caller has left it, it never will be sent.
// So nothing depends on when go-redis or a hook asks. The first reply that the client
// reports counts, and outcomes are read when the client has returned.
//
// Calls are used again when the client has returned without a failure and the caller has
// the reply. A hook must not keep a call, but may keep a Clone.
//
// # While a server is down
//
// The outcomes of calls show for each server whether it is down. Then a probe asks it,
// on a connection of the Pipeline's own. When the probe is answered, its connection
// stays for a while, for calls that find the client's pool still refusing to dial.
package pipeline
