// Package kafka tests watermillmw on a broker that speaks Kafka's protocol in this
// process. It is a separate module, because that broker needs a later version of Go
// than the kit.
package kafka
