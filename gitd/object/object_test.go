package object

import (
	curve "github.com/ramus-dev/ramus/internal/growth"

	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheckHash(t *testing.T) {
	for _, text := range []string{strings.Repeat("0", 40), strings.Repeat("09af", 16)} {
		if err := CheckHash(Hash(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "0", strings.Repeat("0", 39), strings.Repeat("0", 41), strings.Repeat("A", 40),
		strings.Repeat("g", 40), strings.Repeat("/", 40), strings.Repeat(":", 40), strings.Repeat("`", 40),
		strings.Repeat("a", 64) + " "} {
		if err := CheckHash(Hash(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPerson(t *testing.T) {
	for p, want := range map[Person]string{
		{Name: "Ada", Email: "ada@example.org"}:                "Ada <ada@example.org>",
		{Name: "", Email: ""}:                                  "unknown <>",
		{Name: "A\n<B> \x7f.", Email: "<a@b>\nparent"}:         "AB <a@bparent>",
		{Name: " ,\"Ada L.\"'\\", Email: "\xffa@example.org;"}: "Ada L <a@example.org>",
	} {
		if got := p.Ident(); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	zone := time.FixedZone("", -90*60)
	if got, want := (Person{Name: "A", Email: "a@b"}).Signature(time.Unix(1700000000, 0).In(zone)),
		"A <a@b> 1700000000 -0130"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (Person{Name: "A", Email: "a@b"}).Signature(time.Unix(-5, 0).UTC()), "A <a@b> 0 +0000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestClientText(t *testing.T) {
	err := Refuse(ErrTooLarge, "%d is too large", 5)
	if got := ClientText(fmt.Errorf("at work: %w", err), "failed"); got != "5 is too large" || !errors.Is(err, ErrTooLarge) {
		t.Errorf("%q, %v", got, err)
	}
	if got := ClientText(ErrTooLarge, "failed"); got != "failed" {
		t.Errorf("%q", got)
	}
	if !errors.Is(ErrNoRepository, ErrNotFound) || ErrNoRepository.Error() != "not found" || errors.Is(ErrNotFound, ErrNoRepository) {
		t.Error(ErrNoRepository)
	}
}

func FuzzCheckNames(f *testing.F) {
	f.Add("a/b")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) == nil && !filepath.IsLocal(name) {
			t.Errorf("%q leads out of the root", name)
		}
		if CheckRef(name) == nil && !filepath.IsLocal(name) {
			t.Errorf("%q leads out of the repository", name)
		}
	})
}

// TestNameGrowth checks that the time to check a name grows with it.
func TestNameGrowth(t *testing.T) {
	curve.Check(t, "ref", func(text []byte) {
		_ = CheckRef(string(text))
		_ = CheckName(string(text))
	}, curve.Tokens("a", "a/", ".", "..", "/", "@{", "a.lock/", "\x00", "é", "~")...)
}
