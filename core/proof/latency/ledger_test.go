package latency_test

import (
	"maps"
	"slices"
	"sync"
)

// ledger is the bank, together with the orders of the service. All replicas share it. It
// is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	charges  map[string]int    // number of charges, by order
	receipts map[string]string // receipts of the paid orders
	ran      map[string]bool   // requests for which a handler ran
}

func newLedger() *ledger {
	l := &ledger{}
	l.clear()
	return l
}

func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.charges, l.receipts, l.ran = make(map[string]int), make(map[string]string), make(map[string]bool)
}

// begin records that the handler runs for a request, and returns the order's receipt, or
// "".
func (l *ledger) begin(request, order string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[request] = true
	return l.receipts[order]
}

// charge charges the order and returns the receipt. Each call charges the order once
// more.
func (l *ledger) charge(order string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.charges[order]++
	return receipt(order, l.charges[order])
}

func (l *ledger) finish(order, receipt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receipts[order] = receipt
}

func (l *ledger) orders() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.charges))
}

func (l *ledger) of(order string) (charges int, receipt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.charges[order], l.receipts[order]
}

func (l *ledger) handled(request string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran[request]
}
