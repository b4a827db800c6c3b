package report

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/larder/store"
	"example.org/larder/units"
)

var today = time.Date(2026, 3, 3, 18, 30, 0, 0, time.UTC)

func day(n int) time.Time { return time.Date(2026, 3, 3+n, 0, 0, 0, 0, time.UTC) }

func TestWrite(t *testing.T) {
	var out strings.Builder
	err := Write(&out, []store.Item{
		{Name: "milk", Amount: units.Amount{Value: 1500, Kind: units.Millilitre}, Until: day(1)},
		{Name: "wholemeal flour", Amount: units.Amount{Value: 750, Kind: units.Gram}, Until: day(272)},
		{Name: "honey", Amount: units.Amount{Value: 340, Kind: units.Gram}},
	}, today)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
ITEM                AMOUNT   GOOD UNTIL
milk                1.5 l    2026-03-04   tomorrow
wholemeal flour     750 g    2026-11-30   in 272 days
honey               340 g    -            keeps
`, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestIn(t *testing.T) {
	for want, until := range map[string]time.Time{
		"keeps":           {},
		"today":           day(0),
		"tomorrow":        day(1),
		"in 6 days":       day(6),
		"since yesterday": day(-1),
		"3 days ago":      day(-3),
	} {
		t.Run(want, func(t *testing.T) {
			if got := In(until, today); got != want {
				t.Errorf("got %q", got)
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no paper") }

func TestWriteTellsOfFailure(t *testing.T) {
	if err := Write(broken{}, nil, today); err == nil {
		t.Error("nobody was told")
	}
}
