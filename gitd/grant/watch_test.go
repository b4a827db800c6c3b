package grant

import (
	"testing"
	"time"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWatch(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &Ledger{Now: func() time.Time { return now }}
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	made := func() string {
		g, err := l.Made(Grant{Subject: "ada", Expires: now.Add(time.Hour)}, "ada")
		if err != nil {
			t.Fatal(err)
		}
		return g.ID
	}
	one, other := made(), made()
	first, stopFirst := l.Watch(one)
	second, stopSecond := l.Watch(one)
	third, stopThird := l.Watch(other)
	old, stopOld := l.Watch(hashed + "00")
	defer stopSecond()
	defer stopThird()
	defer stopOld()
	stopFirst()
	for _, id := range []string{one, hashed + "00"} {
		if err := l.Revoke(id, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	if isClosed(first) || !isClosed(second) || isClosed(third) || !isClosed(old) {
		t.Errorf("closed: %t %t %t %t, want the second and the last", isClosed(first), isClosed(second), isClosed(third),
			isClosed(old))
	}
	again, stop := l.Watch(one)
	stop()
	if !isClosed(again) {
		t.Error("a revoked token can be watched")
	}
	// The clock of the list is at the end of the token.
	now = now.Add(time.Hour)
	late, stopLate := l.Watch(other)
	defer stopLate()
	<-late
}
