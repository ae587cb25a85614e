// Package brokers tests watermillmw with real brokers and the newest watermill:
// JetStream in this process, RabbitMQ and Redis streams. It is a separate module, so
// that their clients stay out of watermillmw's go.mod.
package brokers
