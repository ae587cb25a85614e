// Package fifo is a queue that any of its members can leave at once.
package fifo

// Queue is members in order of arrival. Its zero value is empty. It is not safe for
// concurrent use, and must not be copied.
type Queue[T any] struct {
	ring   Node[T] // without a member: its next is the first, and its prev the last
	length int
}

// Node is a member's part in a queue, and a field of it: nothing is allocated. Its
// zero value is in no queue.
type Node[T any] struct {
	member     *T
	prev, next *Node[T] // nil if it is in no queue
}

// Push puts member, whose node n is, at the end. It must be in no queue.
func (q *Queue[T]) Push(n *Node[T], member *T) {
	end := &q.ring
	if end.next == nil {
		end.prev, end.next = end, end
	}
	*n = Node[T]{member, end.prev, end}
	end.prev.next = n
	end.prev = n
	q.length++
}

// Remove takes out a member that is in the queue, by its node.
func (q *Queue[T]) Remove(n *Node[T]) {
	n.prev.next = n.next
	n.next.prev = n.prev
	*n = Node[T]{}
	q.length--
}

// Len returns the number of members.
func (q *Queue[T]) Len() int { return q.length }

// First returns the member that came first, or nil.
func (q *Queue[T]) First() *T { return q.ring.Next() }

// Next returns the member that came after that of n, or nil.
func (n *Node[T]) Next() *T {
	if n.next == nil {
		return nil
	}
	return n.next.member
}

// Queued reports whether the member of n is in a queue.
func (n *Node[T]) Queued() bool { return n.next != nil }
