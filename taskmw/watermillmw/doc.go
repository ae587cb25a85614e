// Package watermillmw puts messages of watermill's router under distributed locks.
//
//	account := watermillmw.Lock(locks, "account", watermillmw.Payload("account_id"))
//	handler := router.AddHandler("book", "bookings", subscriber, "booked", publisher, book)
//	handler.AddMiddleware(account)
//
// Messages of one account now run one at a time, in all processes, even if the broker
// delivers a message again during its first run. In the handler,
// core.LeaseFromContext(msg.Context()) returns the lease with its fencing token. That
// context is canceled when the lease is lost. The router uses the handler's result even
// after a loss: check the context before you commit.
//
// Lock runs messages one after the other. [Idempotent] runs a message once:
//
//	runs, err := once.New(locks)
//	book := watermillmw.Idempotent(runs, "book", watermillmw.Metadata("booking_id"))
//
// A duplicate is acked, and the messages that its run has produced are published again.
//
// # Order
//
// A lock is not a queue. Messages of one key run one at a time, but not in the order in
// which they were published. After a message found its key busy, most brokers deliver
// other messages before they deliver it again.
//
// # Outcomes
//
//	the key is busy                   waits, and is then nacked, see Busy
//	the store is unavailable          is nacked after a pause, without a run; see FailOpen
//	the message's context is done     is nacked
//	the key is missing or bad         fails with core.ErrInvalid
//	a KeyFunc failed                  fails
//	the lease is lost during the run  is acked or fails as the handler returns
//
// and with Idempotent
//
//	a duplicate of a success          is acked, after the produced messages were published again
//	its run is in progress elsewhere  waits for that run, and is then nacked
//	another payload under the key     fails with once.ErrMismatch
//	an earlier run died midway or
//	timed out, with once.AtMostOnce   fails with once.ErrIndeterminate
//	a duplicate of a run that has
//	produced more than is stored      fails with once.ErrUnreplayable
//	it has no context of a router     fails with core.ErrInvalid, see HandlerName
//
// The outer middlewares get the error of a message that fails. Without a PoisonQueue the
// router nacks the message, and the broker delivers it again, as after any error of a
// handler. Errors name the lock and never the key, because PoisonQueue stores them with
// the message. Errors match the sentinels of core and once.
//
// A nacked message does not fail. An outer middleware gets no error and no produced
// messages. The router's ack has no effect after the nack. So a busy message is not put
// into a poison queue, wherever PoisonQueue is mounted. Busy describes the exceptions:
// the policy Fail, and messages that cannot be nacked. Some brokers limit the number of
// deliveries: MaxDeliver of JetStream, the delivery limit of RabbitMQ's quorum queues,
// maxReceiveCount of SQS. A nacked delivery counts too. After that many busy deliveries
// the broker drops the message, or moves it to a dead-letter queue.
//
// # Time
//
// A broker delivers a message again if it is not acked within a certain time. The wait
// for a key is a part of this time. The broker's defaults are 30 seconds with JetStream
// (AckWait), 60 seconds with Redis streams (MaxIdleTime) and 30 minutes with RabbitMQ
// (consumer_timeout). By default a busy message is nacked within 7 seconds if the store
// answers. This holds even if a Lock and an Idempotent both have to wait. The handler's
// time is added to these 7 seconds. If handlers take nearly the broker's time, set a
// shorter wait by Acquire(core.Wait(d)) and once.Acquire(core.Wait(d)), or a longer
// AckWait.
//
// With JetStream, set nats.ManualAck() among the SubscribeOptions of watermill-nats.
// Watermill's subscriber gives up a message after AckWaitTimeout, and when the subscriber
// closes. Without ManualAck the client acks such a message.
//
// A waiting message blocks its subscriber. The subscribers of Kafka and Redis streams
// deliver one message after the other, for each partition or consumer. They deliver
// nothing else while a message waits. They deliver a nacked message again before all
// other messages. So a busy key delays all later messages until the key is free.
//
// # Other middlewares
//
// Retry tries again after a failure. Each try of an outer Retry is a separate attempt,
// and the lock is free between the tries. All tries of an inner Retry run under one
// lease, and once.AttemptFromContext counts them as one attempt. If a later try finds
// an inner lock busy, the attempt still counts.
//
// An outer PoisonQueue takes messages that failed, even messages with a bad key. An inner
// PoisonQueue takes messages whose handler failed; such a message then counts as done.
//
// A Deduplicator has to be an inner middleware: an outer one drops the redelivery of a
// busy message. An outer InstantAck acks before anything runs, so busy messages fail.
// An inner InstantAck works. A Timeout may be an inner or an outer middleware, but not
// inside a Retry. The Retry of watermill 1.5 tries again with the canceled context of
// the Timeout, so the message is nacked.
//
// An outer middleware has to call the next handler with the message that it has
// received. If it uses a copy with the context, a busy message is lost. The copy is
// nacked, and the router acks the message. A message.Copy without the context fails if
// it should be nacked, and at an Idempotent that has no HandlerName. A middleware
// between two middlewares of this package may use a copy with the context.
package watermillmw
