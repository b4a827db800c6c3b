package chat

import (
	"slices"
	"sync"
	"testing"
)

// TestHomeTurns publishes the last Home tab that was asked for last, and leaves out those that are late.
func TestHomeTurns(t *testing.T) {
	var h homeTabs
	var published []int
	add := func(n int) func() { return func() { published = append(published, n) } }
	first, second, other := h.next("a"), h.next("a"), h.next("b")
	second.publish(add(2))
	first.publish(add(1))
	other.publish(add(3))
	h.next("a").publish(add(4))
	if !slices.Equal(published, []int{2, 3, 4}) || len(h.tabs) != 0 {
		t.Errorf("published %v, %d tabs are left", published, len(h.tabs))
	}

	// While one is published, later ones wait, and the last one of them is published.
	published = nil
	begun, end := make(chan bool), make(chan bool)
	var group sync.WaitGroup
	slow := h.next("a")
	group.Go(func() { slow.publish(func() { close(begun); <-end; published = append(published, 1) }) })
	<-begun
	for n := range 5 {
		turn := h.next("a")
		group.Go(func() { turn.publish(add(n + 2)) })
	}
	close(end)
	group.Wait()
	if !slices.Equal(published, []int{1, 6}) || len(h.tabs) != 0 {
		t.Errorf("published %v, %d tabs are left", published, len(h.tabs))
	}
}
