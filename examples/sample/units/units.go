// Package units reads, adds and shows amounts of things: "500 g", "1.5 l", "6".
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind is the quantity that an amount measures. Only amounts of one kind can be added.
type Kind string

// The kinds of amounts, named after the unit they are kept in.
const (
	Gram       Kind = "g"
	Millilitre Kind = "ml"
	Piece      Kind = ""
)

// Amount is so much of something, in the unit of its kind.
type Amount struct {
	Value float64
	Kind  Kind
}

var (
	// ErrKind: amounts of different kinds were put together.
	ErrKind = errors.New("amounts of different kinds")
	// ErrSyntax: a text is no amount.
	ErrSyntax = errors.New("not an amount")
)

// scale says how many of its kind's unit one of a unit is.
var scale = map[string]Amount{
	"":   {1, Piece},
	"g":  {1, Gram},
	"kg": {1000, Gram},
	"ml": {1, Millilitre},
	"l":  {1000, Millilitre},
}

// Parse reads an amount: a number, and a unit with or without a space before it.
func Parse(s string) (Amount, error) {
	s = strings.TrimSpace(s)
	split := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if split < 0 {
		split = len(s)
	}
	value, err := strconv.ParseFloat(s[:split], 64)
	if err != nil || math.IsInf(value, 0) {
		return Amount{}, fmt.Errorf("%w: %q", ErrSyntax, s)
	}
	unit, ok := scale[strings.TrimSpace(s[split:])]
	if !ok {
		return Amount{}, fmt.Errorf("%w: %q has an unknown unit", ErrSyntax, s)
	}
	return Amount{value * unit.Value, unit.Kind}, nil
}

// Add returns the sum of two amounts.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.Kind != b.Kind {
		return Amount{}, fmt.Errorf("%w: %s and %s", ErrKind, a, b)
	}
	return Amount{a.Value + b.Value, a.Kind}, nil
}

// Sub returns a minus b, but not less than zero.
func (a Amount) Sub(b Amount) (Amount, error) {
	b.Value = -b.Value
	left, err := a.Add(b)
	if err != nil {
		b.Value = -b.Value
		return Amount{}, fmt.Errorf("%w: %s from %s", ErrKind, b, a)
	}
	left.Value = max(0, left.Value)
	return left, nil
}

// String shows an amount in the largest unit that leaves no zero in front: "1.5 kg", "250 ml", "6".
func (a Amount) String() string {
	value, unit := a.Value, string(a.Kind)
	if value >= 1000 {
		switch a.Kind {
		case Gram:
			value, unit = value/1000, "kg"
		case Millilitre:
			value, unit = value/1000, "l"
		}
	}
	text := strconv.FormatFloat(math.Round(value*1000)/1000, 'f', -1, 64)
	return strings.TrimSpace(text + " " + unit)
}

// MarshalText writes String.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the form of Parse.
func (a *Amount) UnmarshalText(text []byte) (err error) {
	*a, err = Parse(string(text))
	return err
}
