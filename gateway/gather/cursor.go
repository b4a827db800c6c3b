package gather

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Cursors are the places after which the next page of a list begins, by replica. As text they are "REPLICA~PLACE,REPLICA~PLACE".
type Cursors map[string]string

// maxCursors bounds the replicas of a text.
const maxCursors = 1000

// ParseCursors reads the text of cursors. The empty text has none.
func ParseCursors(s string) (Cursors, error) {
	cursors := Cursors{}
	if s == "" {
		return cursors, nil
	}
	for pair := range strings.SplitSeq(s, ",") {
		replica, place, ok := strings.Cut(pair, "~")
		if !ok || len(cursors) >= maxCursors {
			return nil, fmt.Errorf("after is %.100q, which is not the next of a page before", s)
		}
		cursors[replica] = place
	}
	return cursors, nil
}

func (c Cursors) String() string {
	var pairs []string
	for _, replica := range slices.Sorted(maps.Keys(c)) {
		pairs = append(pairs, replica+"~"+c[replica])
	}
	return strings.Join(pairs, ",")
}
