package record_test

import (
	"math"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

func TestUsage(t *testing.T) {
	var u *record.Usage
	if u.Tokens() != 0 {
		t.Error("nothing has tokens")
	}
	first := u.Plus(record.ModelCall{InputTokens: 3, OutputTokens: 4, CostMicros: 5})
	second := first.Plus(record.ModelCall{InputTokens: math.MaxInt64, OutputTokens: -9})
	third := second.Plus(record.ModelCall{InputTokens: 7, Refused: true, Ended: record.EndedBudget})
	if *first != (record.Usage{Calls: 1, InputTokens: 3, OutputTokens: 4, CostMicros: 5}) || first.Tokens() != 7 {
		t.Errorf("%+v", first)
	}
	if *second != (record.Usage{Calls: 2, InputTokens: math.MaxInt64, OutputTokens: 4, CostMicros: 5}) || second.Tokens() != math.MaxInt64 {
		t.Errorf("%+v", second)
	}
	if second.Exhausted || !third.Exhausted || third.Calls != 2 {
		t.Errorf("%+v", third)
	}
}
