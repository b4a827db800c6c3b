package units

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]Amount{
		"6":      {6, Piece},
		"500 g":  {500, Gram},
		"500g":   {500, Gram},
		"1.5 kg": {1500, Gram},
		" 2 l ":  {2000, Millilitre},
		"33ml":   {33, Millilitre},
	} {
		t.Run(in, func(t *testing.T) {
			got, err := Parse(in)
			if err != nil || got != want {
				t.Errorf("got %v, %v; want %v", got, err, want)
			}
		})
	}
	for _, in := range []string{"", "g", "-1", "1 stone", "1.2.3", "1 G", "five"} {
		if got, err := Parse(in); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: got %v, %v; want ErrSyntax", in, got, err)
		}
	}
}

func TestString(t *testing.T) {
	for want, in := range map[string]Amount{
		"6":        {6, Piece},
		"1200":     {1200, Piece},
		"999 g":    {999, Gram},
		"1 kg":     {1000, Gram},
		"1.25 l":   {1250, Millilitre},
		"0.333 ml": {1.0 / 3, Millilitre},
		"0 g":      {0, Gram},
	} {
		if got := in.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAddAndSub(t *testing.T) {
	kilo, half := Amount{1000, Gram}, Amount{500, Gram}
	if got, err := kilo.Add(half); err != nil || got.String() != "1.5 kg" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := half.Sub(kilo); err != nil || got.Value != 0 {
		t.Errorf("less than nothing: got %v, %v", got, err)
	}
	if _, err := kilo.Add(Amount{6, Piece}); !errors.Is(err, ErrKind) {
		t.Errorf("got %v, want ErrKind", err)
	}
	if _, err := kilo.Sub(Amount{6, Piece}); !errors.Is(err, ErrKind) {
		t.Errorf("got %v, want ErrKind", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"6", "1.5 kg", "33ml", "1 stone"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(a.String())
		if err != nil || again.Kind != a.Kind {
			t.Errorf("%q became %q, which became %v, %v", s, a, again, err)
		}
	})
}
