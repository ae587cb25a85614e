// Package pipeline sends calls to Redis. Concurrent calls are sent together. For each
// failed call the package reports whether anything was sent. It depends on go-redis,
// but not on the purpose of the calls.
//
//	p := pipeline.New(client)
//	got, err := p.Do(ctx, p.Eval(script, key, "", "acquire").Text(value).Num(1000))
//
// # Path of a call
//
// Pipeline.Do finds the server of the key and sends the call there. It sends the call
// again if the slot has moved, or the server does not know the script.
//
// server.do refuses an Optional call while the server is known to be down. From the
// outcome of a call it learns three things. The first is whether the server is down.
// The second is whether idle connections may be silent; then PINGs are sent over them.
// The third is whether idle connections lead to a server that has lost its role; then
// they are closed.
//
// sender.do puts the call into a queue. It waits until the call has returned, ctx is
// done, or Limit has passed. A worker takes the calls that have arrived, at most 128
// calls or 64 KiB, and sends them as one flight. A long value is sent alone. After 5 ms
// a flight does not delay the calls in the queue any more. Three kinds of calls do not
// wait in the queue. A call that waits for replicas or follows ASK has its own
// connection. DoAll makes one flight for each server. If no call is in flight, a caller
// whose ctx is never done sends its call itself. This needs a client with
// ContextTimeoutEnabled. After such a call has taken much longer than Limit, all
// callers use the queue for a while.
//
// A flight is a group of commands that go-redis sends at once. These are the calls, a
// TIME after them if a call is Timed, and a WAIT if a call waits for replicas. When the
// client has returned, each call gets its outcome.
//
// # End of a call
//
// A call has the outcome that it gets first (Call.finish). It gets one from flight.land
// when the client has returned, or ErrNoAnswer from sender.check after Limit. check
// does not see a call with WAIT or ASK and the calls of DoAll, so their ctx is Bounded.
// A caller whose ctx is done takes a reply that has arrived, and otherwise leaves
// (Call.await). A flight that check sees goes on until its flightContext ends. This
// context ends when the client has returned, at the first check after the deadline, or
// when the only caller has left (sender.left).
//
// # Sent or not
//
// The states of a call's payload, and who changes them:
//
//	fresh ─── client: MarshalBinary ──────────────────────→ written: may have been sent
//	 │ │                                                       ↑
//	 │ └─ worker: board, with others → joined ─ client: MarshalBinary
//	 │                                   │ caller: end, after the client has returned
//	 │                                   ↓
//	 └─ caller: leave, or end ───────→ barred: never sent
//
// A call provides its bytes once, see payload.go. If the client has returned and never
// requested a call's bytes, the call was not sent and never will be. If the caller
// leaves before the client requests the bytes, the call is never sent either. The
// exception is a call in a flight with others. The first reply that the client reports
// counts. An outcome is read when the client has returned, or when the caller leaves.
//
// Calls are reused when the client has returned without a failure and the caller has
// the reply. A hook must not keep a call, but may keep a Clone.
//
// # While a server is down
//
// The outcomes of calls show for each server whether it is down. If a server is down, a
// probe is sent on a separate connection of the Pipeline. When the probe is answered,
// its connection stays open for a while. Calls use this connection while the client's
// pool still refuses to dial. That connection lacks the client's dial hooks, so in
// a longer outage a few PINGs also use the client itself.
package pipeline
