// Package watermillmw puts messages of watermill's router under distributed locks.
//
//	account := watermillmw.Lock(locks, "account", watermillmw.Payload("account_id"))
//	router.AddHandler("book", "bookings", subscriber, "booked", publisher, book).AddMiddleware(account)
//
// Messages of one account now run one at a time, in whichever process, also when the broker
// delivers one again while its first handler still runs. The handler finds its lease, and the
// fencing token, by core.LeaseFromContext(msg.Context()). That context is canceled when the
// lease is lost. The router still takes what the handler returns then: check the context before
// you commit.
//
// [Idempotent] runs a message once, where Lock runs messages one after the other:
//
//	runs, err := once.New(locks)
//	book := watermillmw.Idempotent(runs, "book", watermillmw.Metadata("booking_id"))
//
// A message that comes again is acked, and what its run has produced is published again.
//
// # Order
//
// A lock is no queue: messages of one key run one at a time, but not in the order in which they
// were published. One that found its key busy is delivered again behind others, where the broker
// does that.
//
// # What becomes of a message
//
//	the key is busy                   waits, and is then nacked, see Busy
//	the store is unavailable          is nacked after a pause; the handler does not run, see FailOpen
//	its context is done               is nacked
//	no key, or one that is bad        fails with core.ErrInvalid
//	a KeyFunc failed                  fails
//	the lease is lost meanwhile       as the handler returns
//
// and with Idempotent
//
//	done before                       is acked, after what it produced was published again
//	its run goes on elsewhere         waits for that, and is then nacked
//	another payload under the key     fails with once.ErrMismatch
//	its run died midway or its time
//	was up, with once.AtMostOnce      fails with once.ErrIndeterminate
//	done before, and produced more
//	than is kept                      fails with once.ErrUnreplayable
//
// A message that fails does so for the outer middlewares. Without a PoisonQueue the router nacks
// it, and the broker delivers it again, as after any error of a handler. Errors name the lock and
// never the key: PoisonQueue stores them with the message. errors.Is finds core's sentinels in
// them.
//
// A message that is nacked fails with nothing: an outer middleware sees no error and no produced
// messages, and the router's ack has no effect after the nack. So a busy message never gets into
// a poison queue, wherever that is mounted. A nack counts where the broker counts deliveries:
// MaxDeliver of JetStream, the delivery limit of RabbitMQ's quorum queues, maxReceiveCount of SQS.
// After that many busy deliveries the broker drops the message, or moves it to a dead-letter queue.
//
// # Time
//
// A message that waits for its key has been delivered, and so its time at the broker runs: by
// default 30 seconds with JetStream (AckWait), 60 seconds with Redis streams (MaxIdleTime), 30
// minutes with RabbitMQ (consumer_timeout). By default it is nacked within 7 seconds, if the
// store answers. What the handler takes comes on top. Where handlers take nearly that time, set a
// shorter wait by Acquire(core.Wait(d)) and once.Acquire(core.Wait(d)), or a longer AckWait.
//
// With JetStream, set nats.ManualAck() among the SubscribeOptions of watermill-nats. Without it
// the client acks what watermill's subscriber gives up, after AckWaitTimeout and when it closes.
//
// A message that waits takes its subscriber's place. A subscriber that delivers one message
// after the other, as those of Kafka and Redis streams do for each partition or consumer, delivers
// nothing else meanwhile. They deliver a nacked message again before all others, so there a
// busy key delays the messages behind it until it is free.
//
// # Other middlewares
//
// Retry tries what failed. In an outer Retry each try is an attempt of its own, and the lock is
// free between them. In an inner Retry all tries are under one lease, and one attempt of
// once.AttemptFromContext.
//
// An outer PoisonQueue takes messages that failed, also those whose key is bad. An inner one
// takes those whose handler failed; the message counts as done then.
//
// A Deduplicator has to be an inner middleware: an outer one drops what a busy message is
// delivered again as. InstantAck acks before anything runs, so busy messages fail; do not use it
// with locks. A Timeout may be on either side, but not inside of a Retry: that one of watermill
// 1.5 tries again with the context that the Timeout has canceled, and a message whose context is
// done is nacked.
//
// An outer middleware passes on the message that it has got. If it passes on a copy, that is
// what a Lock nacks, and the router acks the message. A copy by message.Copy has no context
// either: to an Idempotent all handlers of its topic are one then.
package watermillmw
