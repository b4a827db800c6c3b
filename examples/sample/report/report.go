// Package report writes the contents of a larder for people.
package report

import (
	"fmt"
	"io"
	"time"

	"example.org/larder/store"
)

// Write lists items in columns, in the order given. Days are counted from today.
func Write(w io.Writer, items []store.Item, today time.Time) error {
	name, amount := len("ITEM"), len("AMOUNT")
	for _, i := range items {
		name = max(name, len(i.Name))
		amount = max(amount, len(i.Amount.String()))
	}
	line := func(a, b, c, d string) error {
		_, err := fmt.Fprintln(w, trimRight(pad(a, name+5)+pad(b, amount+3)+pad(c, 13)+d))
		return err
	}
	if err := line("ITEM", "AMOUNT", "GOOD UNTIL", ""); err != nil {
		return err
	}
	for _, i := range items {
		until := "-"
		if !i.Until.IsZero() {
			until = i.Until.Format(time.DateOnly)
		}
		if err := line(i.Name, i.Amount.String(), until, In(i.Until, today)); err != nil {
			return err
		}
	}
	return nil
}

// pad fills s up with spaces.
func pad(s string, width int) string {
	for len(s) < width {
		s += " "
	}
	return s
}

func trimRight(s string) string {
	for len(s) > 0 && s[len(s)-1] == ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// In says in words how far a day is from today.
func In(until, today time.Time) string {
	if until.IsZero() {
		return "keeps"
	}
	// At noon, so that an hour more or less in spring and autumn makes no other day.
	at := func(t time.Time) time.Time {
		y, m, d := t.Date()
		return time.Date(y, m, d, 12, 0, 0, 0, time.UTC)
	}
	switch days := int(at(until).Sub(at(today)).Hours() / 24); days {
	case -1:
		return "since yesterday"
	case 0:
		return "today"
	case 1:
		return "tomorrow"
	default:
		if days < 0 {
			return fmt.Sprintf("%d days ago", -days)
		}
		return fmt.Sprintf("in %d days", days)
	}
}
