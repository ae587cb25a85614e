// Package pipeline sends calls to Redis; those that come at the same time go together.
// For each call that failed it says whether anything was sent. It knows go-redis, and
// not what the calls are for.
//
//	p := pipeline.New(client)
//	reply, err := p.Do(ctx, p.Eval(script, key, "acquire").Text(value).Num(1000))
//
// # Together
//
// A Call goes into a queue, goes out once, and comes back with a reply or an error. A call
// that finds no other under way is sent at once, alone. Calls that come while others are
// under way are taken when those have come back, at most 128 calls or 64 KiB, as one
// pipeline. When 16 wait, another worker takes them at once: up to four pipelines are under
// way, or as many as the client may have connections. If a lone caller can neither leave,
// since its context cannot end, nor wait for ever, since the client keeps to deadlines, its
// own goroutine sends the call. DoAll puts its calls into the same queue.
//
// # Stalled
//
// After 5 ms a pipeline no longer holds up the calls behind it, since its connection may
// have gone silent: the next ones go on another connection, on eight at most that have
// not hung for longer than 4 s. A call ends with ErrNoAnswer after two seconds.
//
// # The server's time
//
// A call that is Timed has a TIME behind it, one for all such calls of a pipeline. Its reply is
// that time, or an error if it is not known, although the call may have been done. It is
// sent only by a client of one server, since a TIME names no key. A WAIT comes after it.
//
// # Sent or not
//
// When its context ends, Do returns, whatever the client is doing. A call whose caller has
// left before it was written alone, or taken for a pipeline with others, never goes out; and
// what the client has not asked for its bytes was not sent. Sent reports of an error
// whether the call may have reached the server. What is asked for early counts as sent. A
// reply that comes after the caller has left is dropped. What is sent again is another Call:
// after a refusal in so many words, because the server does not know the script, or, in a
// Cluster, because the slot is elsewhere; or because the client refused to dial.
//
// # Late
//
// After a call that was late each idle connection of the client is asked for a PING, or a
// new one if none is idle, at most once in four seconds. Silent connections leave the pool
// by that, and a connection is made that no call had the time to make.
//
// # Displaced
//
// After an error reply of a server that has lost its role, the idle connections of a client
// of one server are closed. Then later calls dial.
//
// # While a server is down
//
// By the outcomes of its calls it is known of each server whether it is down. Then a
// probe asks it, on a connection of the Pipeline's own, and calls that are Optional are
// refused. When a probe is answered that connection stays for a while, for calls that
// find the client's pool still refusing to dial.
package pipeline
