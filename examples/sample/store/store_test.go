package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/larder/units"
)

func day(d int) time.Time { return time.Date(2026, 3, d, 0, 0, 0, 0, time.UTC) }

func amount(t *testing.T, s string) units.Amount {
	t.Helper()
	a, err := units.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func filled(t *testing.T) *Larder {
	t.Helper()
	l := &Larder{}
	for _, i := range []Item{
		{"honey", amount(t, "340 g"), time.Time{}},
		{"eggs", amount(t, "6"), day(9)},
		{"milk", amount(t, "1 l"), day(4)},
		{"Milk", amount(t, "500 ml"), day(6)},
	} {
		if err := l.Put(i); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestItemsGoByDate(t *testing.T) {
	var got []string
	for _, i := range filled(t).Items() {
		got = append(got, i.Name+" "+i.Amount.String())
	}
	want := []string{"milk 1.5 l", "eggs 6", "honey 340 g"}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestPutRefusesAnotherKind(t *testing.T) {
	l := filled(t)
	if err := l.Put(Item{Name: "eggs", Amount: amount(t, "1 l")}); !errors.Is(err, units.ErrKind) {
		t.Errorf("got %v, want ErrKind", err)
	}
}

func TestUse(t *testing.T) {
	l := filled(t)
	left, err := l.Use("eggs", amount(t, "4"))
	if err != nil || left.String() != "2" {
		t.Errorf("got %v, %v", left, err)
	}
	if _, err := l.Use("eggs", amount(t, "2")); err != nil {
		t.Error(err)
	}
	if _, err := l.Use("eggs", amount(t, "1")); !errors.Is(err, ErrNotFound) {
		t.Errorf("used up: got %v, want ErrNotFound", err)
	}
	if _, err := l.Use("milk", amount(t, "1")); !errors.Is(err, units.ErrKind) {
		t.Errorf("got %v, want ErrKind", err)
	}
}

func TestSaveAndOpen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "larder.json")
	empty, err := Open(name)
	if err != nil || len(empty.Items()) != 0 {
		t.Fatalf("got %v, %v", empty, err)
	}
	l := filled(t)
	if err := l.Save(name); err != nil {
		t.Fatal(err)
	}
	again, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range again.Items() {
		if want := l.Items()[i]; item.Name != want.Name || item.Amount != want.Amount || !item.Until.Equal(want.Until) {
			t.Errorf("got %+v, want %+v", item, want)
		}
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name); err == nil {
		t.Error("a broken file was read")
	}
}
