// Package kafka tests watermillmw on a broker that speaks Kafka's protocol in this process. It is
// a module of its own, since that broker needs a later Go than the kit.
package kafka
