// Package watermillmw puts messages of watermill's router under distributed locks.
//
//	account := watermillmw.Lock(locks, "account", watermillmw.Payload("account_id"))
//	router.AddHandler("book", "bookings", subscriber, "booked", publisher, book).AddMiddleware(account)
//
// Messages of one account now run one at a time, in whichever process, even if the broker
// delivers one again while its first handler still runs. In the handler,
// core.LeaseFromContext(msg.Context()) returns the lease with its fencing token. That context is
// canceled when the lease is lost. The router still takes the handler's result then: check the
// context before you commit.
//
// [Idempotent] runs a message once, where Lock runs messages one after the other:
//
//	runs, err := once.New(locks)
//	book := watermillmw.Idempotent(runs, "book", watermillmw.Metadata("booking_id"))
//
// A duplicate is acked, and the messages that its run has produced are published again.
//
// # Order
//
// A lock is not a queue. Messages of one key run one at a time, but not in the order in which
// they were published. After a message found its key busy, most brokers deliver other messages
// before they deliver it again.
//
// # Outcomes
//
//	the key is busy                   waits, and is then nacked, see Busy
//	the store is unavailable          is nacked after a pause; the handler does not run, see FailOpen
//	its context is done               is nacked
//	the key is missing or bad         fails with core.ErrInvalid
//	a KeyFunc failed                  fails
//	the lease is lost meanwhile       as the handler returns
//
// and with Idempotent
//
//	a duplicate of a success          is acked, after the produced messages were published again
//	its run is in progress elsewhere  waits for that, and is then nacked
//	another payload under the key     fails with once.ErrMismatch
//	its run died midway or timed
//	out, with once.AtMostOnce         fails with once.ErrIndeterminate
//	a duplicate of a run that has
//	produced more than is stored      fails with once.ErrUnreplayable
//	no context of a router            fails with core.ErrInvalid, see HandlerName
//
// The outer middlewares get the error of a message that fails. Without a PoisonQueue the router
// nacks it, and the broker delivers it again, as after any error of a handler. Errors name the
// lock and never the key: PoisonQueue stores them with the message. They match core's
// sentinels.
//
// A nacked message does not fail: an outer middleware gets no error and no produced messages, and
// the router's ack has no effect after the nack. So a busy message is never put into a poison
// queue, wherever that is mounted. A nack counts where the broker counts deliveries: MaxDeliver
// of JetStream, the delivery limit of RabbitMQ's quorum queues, maxReceiveCount of SQS. After
// that many busy deliveries the broker drops the message, or moves it to a dead-letter queue.
//
// # Time
//
// A message that waits for its key has been delivered, and so its time at the broker runs. The
// defaults are 30 seconds with JetStream (AckWait), 60 seconds with Redis streams (MaxIdleTime)
// and 30 minutes with RabbitMQ (consumer_timeout). By default the message is nacked within 7
// seconds if the store answers, even where a Lock and an Idempotent both have to wait. The time
// of the handler is added to that. Where handlers take nearly the broker's time, set a shorter
// wait by Acquire(core.Wait(d)) and once.Acquire(core.Wait(d)), or a longer AckWait.
//
// With JetStream, set nats.ManualAck() among the SubscribeOptions of watermill-nats. Without it
// the client acks messages that watermill's subscriber gives up, after AckWaitTimeout and when it
// closes.
//
// A message that waits takes its subscriber's place. Some subscribers deliver one message after
// the other, as those of Kafka and Redis streams do for each partition or consumer. They deliver
// nothing else meanwhile. They deliver a nacked message again before all others, so a busy key
// delays the messages queued after it until it is free.
//
// # Other middlewares
//
// Retry tries again after a failure. Each try of an outer Retry is a separate attempt, and the
// lock is free between the tries. All tries of an inner Retry are under one lease, and one
// attempt of once.AttemptFromContext. If a later try finds an inner lock busy, the attempt
// still counts.
//
// An outer PoisonQueue takes messages that failed, even those with a bad key. An inner one takes
// those whose handler failed; the message counts as done then.
//
// A Deduplicator has to be an inner middleware: an outer one drops the redelivery of a busy
// message. InstantAck acks before anything runs, so busy messages fail; do not use it with locks.
// A Timeout may be on either side, but not inside a Retry: that of watermill 1.5 tries again with
// the context that the Timeout has canceled, and a message whose context is done is nacked.
//
// An outer middleware has to pass on the message that it has received. If it passes on a copy
// with the context, a busy message is lost: the copy is nacked, and the router acks the message.
// A message.Copy without the context fails where it would be nacked, and at an Idempotent that
// has no HandlerName. A middleware between two of this package may pass on a copy with the
// context.
package watermillmw
