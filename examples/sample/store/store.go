// Package store keeps the items of a larder in one JSON file.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/larder/units"
)

// Item is one thing in the larder.
type Item struct {
	Name   string       `json:"name"`
	Amount units.Amount `json:"amount"`
	// Until is the day up to which it is good; zero if it keeps.
	Until time.Time `json:"until,omitzero"`
}

// ErrNotFound: there is no such item.
var ErrNotFound = errors.New("not in the larder")

// Larder is a set of items with different names. The zero value is empty.
type Larder struct {
	items []Item
}

// Open reads a larder from a file. A file that does not exist is an empty larder.
func Open(name string) (*Larder, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &Larder{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the larder: %w", err)
	}
	l := &Larder{}
	if err := json.Unmarshal(text, &l.items); err != nil {
		return nil, fmt.Errorf("cannot read the larder %s: %w", name, err)
	}
	return l, nil
}

// Save writes the larder to a file; nobody ever sees half of one.
func (l *Larder) Save(name string) error {
	text, err := json.MarshalIndent(l.Items(), "", "  ")
	if err != nil {
		return fmt.Errorf("cannot save the larder: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".larder-*")
	if err != nil {
		return fmt.Errorf("cannot save the larder: %w", err)
	}
	_, err = temp.Write(append(text, '\n'))
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot save the larder: %w", err), os.Remove(temp.Name()))
	}
	return nil
}

// Items lists what there is: what goes off first, first; what keeps, last, by name.
func (l *Larder) Items() []Item {
	items := slices.Clone(l.items)
	slices.SortFunc(items, func(a, b Item) int {
		switch {
		case a.Until.IsZero() && b.Until.IsZero():
			return strings.Compare(a.Name, b.Name)
		case a.Until.IsZero():
			return 1
		case b.Until.IsZero():
			return -1
		}
		if c := a.Until.Compare(b.Until); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return items
}

// Put adds an item. More of an item that exists is added to it, and the
// earlier day counts for all of it.
func (l *Larder) Put(item Item) error {
	i := l.find(item.Name)
	if i < 0 {
		l.items = append(l.items, item)
		return nil
	}
	sum, err := l.items[i].Amount.Add(item.Amount)
	if err != nil {
		return fmt.Errorf("cannot put %s: %w", item.Name, err)
	}
	l.items[i].Amount = sum
	if u := &l.items[i].Until; u.IsZero() || !item.Until.IsZero() && item.Until.Before(*u) {
		*u = item.Until
	}
	return nil
}

// Use takes an amount of an item and tells what is left. An item that is used up is gone.
func (l *Larder) Use(name string, amount units.Amount) (units.Amount, error) {
	i := l.find(name)
	if i < 0 {
		return units.Amount{}, fmt.Errorf("cannot use %s: %w", name, ErrNotFound)
	}
	left, err := l.items[i].Amount.Sub(amount)
	if err != nil {
		return units.Amount{}, fmt.Errorf("cannot use %s: %w", name, err)
	}
	if left.Value == 0 {
		l.items = slices.Delete(l.items, i, i+1)
	} else {
		l.items[i].Amount = left
	}
	return left, nil
}

func (l *Larder) find(name string) int {
	return slices.IndexFunc(l.items, func(i Item) bool { return strings.EqualFold(i.Name, name) })
}
