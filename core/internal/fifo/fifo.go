// Package fifo is a queue that any of its members can leave at once.
package fifo

// Queue is members in order of arrival. Its zero value is empty. It is not safe for
// concurrent use.
type Queue[T any] struct {
	first, last *Node[T]
	length      int
}

// Node is a member's part in a queue, and a field of it: nothing is allocated. Its
// zero value is in no queue.
type Node[T any] struct {
	member     *T // nil if it is in no queue
	prev, next *Node[T]
}

// Push puts member, whose node n is, at the end. It must be in no queue.
func (q *Queue[T]) Push(n *Node[T], member *T) {
	n.member, n.prev = member, q.last
	if q.last == nil {
		q.first = n
	} else {
		q.last.next = n
	}
	q.last = n
	q.length++
}

// Remove takes out a member that is in the queue, by its node.
func (q *Queue[T]) Remove(n *Node[T]) {
	if n.prev == nil {
		q.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		q.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	*n = Node[T]{}
	q.length--
}

// Len is how many members there are.
func (q *Queue[T]) Len() int { return q.length }

// First is the member that came first, nil if there is none.
func (q *Queue[T]) First() *T { return q.first.get() }

// Next is the member that came after that of n, nil if there is none.
func (n *Node[T]) Next() *T { return n.next.get() }

// Queued tells whether the member of n is in a queue.
func (n *Node[T]) Queued() bool { return n.member != nil }

func (n *Node[T]) get() *T {
	if n == nil {
		return nil
	}
	return n.member
}
