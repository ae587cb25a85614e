// Package pipeline sends calls to Redis; those that come at the same time go together.
// For each call that failed it says whether anything was sent. It knows go-redis, and
// not what the calls are for.
//
//	p := pipeline.New(client)
//	reply, err := p.Do(ctx, p.Eval(script, key, "acquire").Text(value).Num(1000))
//
// # One call
//
// A call that finds no other under way is sent at once, alone, by a worker: a goroutine
// that is idle for a moment when it has nothing to send. If its caller can neither
// leave, since its context cannot end, nor wait for ever, since the client keeps to
// deadlines, the caller's own goroutine sends it.
//
// # Together
//
// Calls that come while others are under way wait in a queue. The worker takes them
// when those have come back, at most 128 calls or 64 KiB, and sends them as one batch.
// When 16 wait, another worker takes them at once, so that there are up to four
// batches under way, or as many as the client may have connections. Each caller is
// told its own reply as soon as that has been read, also if the batch fails after it.
//
// # The server's time
//
// A call that is Timed has a TIME behind it, one for all such calls of a batch. Its reply is
// that time, or an error if it is not known, although the call may have been done. It is
// sent only by a client of one server, since a TIME names no key. A WAIT comes after it.
//
// # Stalled
//
// After 5 ms a batch no longer holds up the calls behind it, since its connection may
// have gone silent: the next ones go on another connection, on eight at most that have
// not hung for longer than 4 s. A call ends with ErrNoAnswer after two seconds. One timer of
// the sender looks after all of its calls.
//
// # Left by its caller
//
// When its context ends, Do returns, whatever the client is doing. A call that was not
// written by then never will be; go-redis asks an argument of the call for its bytes
// when it writes the call to a connection, and that is how it is known. Sent says of
// the error whether the call may have reached the server. A call that is in a batch
// already is written with the others, and counts as sent.
//
// # Answered late
//
// A reply that comes after the caller has left is dropped. Nothing is sent twice, but
// for a call that the server has refused in so many words: because it does not know
// the script, or, in a Cluster, because the slot is elsewhere. Calls are used again when
// both their caller and their worker are done with them; those that were left, or copied
// by a hook, or whose batch failed, are not, since the client may still have them.
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
