package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

// others are replicas with ready answers.
type others struct {
	Others
	answers []Answer
	asked   string
}

func (o *others) Ask(_ context.Context, _ route.Who, question string, body []byte) []Answer {
	o.asked = question + " " + string(body)
	return o.answers
}

// TestAsk collects the answers of all replicas, and names those that do not answer.
func TestAsk(t *testing.T) {
	notFound, refused := route.NotFound("run", "x"), route.NewProblem(route.KindDenied, "no")
	answer := func(of, text string) Answer { return Answer{Of: of, Body: []byte(`"` + text + `"`)} }
	for _, x := range []struct {
		name    string
		own     error
		answers []Answer
		parts   string
		lacks   []string
		err     error
	}{
		{"all", nil, []Answer{answer("c", "3"), answer("a", "1")}, "[{a 1} {b own} {c 3}]", nil, nil},
		{"one is away", nil, []Answer{{Of: "c", Err: errors.New("away")}, answer("a", "1")}, "[{a 1} {b own}]", []string{"c"}, nil},
		{"one sends nonsense", nil, []Answer{{Of: "c", Body: []byte("<")}}, "[{b own}]", []string{"c"}, nil},
		{"only another finds it", notFound, []Answer{answer("a", "1")}, "[{a 1}]", nil, nil},
		{"only this one finds it", nil, []Answer{{Of: "a", Problem: notFound}}, "[{b own}]", nil, nil},
		{"none finds it", notFound, []Answer{{Of: "a", Problem: notFound}}, "[]", nil, notFound},
		{"another refuses", nil, []Answer{{Of: "a", Problem: refused}}, "[]", nil, refused},
		{"this one refuses", refused, []Answer{answer("a", "1")}, "[]", nil, refused},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := &others{answers: x.answers}
			q := New(&Desk{Name: "b", Others: o}, "name", func(_ context.Context, _ route.Who, in int) (string, error) { return "own", x.own })
			ctx, lack := Collect(t.Context())
			outer := lack
			ctx, lack = Collect(ctx)
			parts, err := q.Ask(ctx, route.Who{}, 7)
			if got := fmt.Sprint(parts); got != x.parts || !errors.Is(err, x.err) || o.asked != "name 7" {
				t.Errorf("%s, %v, asked %s", got, err, o.asked)
			}
			if !reflect.DeepEqual(lack.Names(), x.lacks) || !reflect.DeepEqual(outer.Names(), x.lacks) {
				t.Errorf("lacks %q and %q, want %q", lack.Names(), outer.Names(), x.lacks)
			}
		})
	}
}

// TestAlone asks the only server, which has no replicas.
func TestAlone(t *testing.T) {
	for _, d := range []*Desk{nil, {}} {
		q := New(d, "name", func(_ context.Context, _ route.Who, in int) (int, error) { return in + 1, nil })
		parts, err := q.Ask(t.Context(), route.Who{}, 7)
		if err != nil || len(parts) != 1 || parts[0] != (Part[int]{Answer: 8}) {
			t.Errorf("%v, %v", parts, err)
		}
	}
}

// TestAnswer answers the questions of other replicas, and refuses what is none.
func TestAnswer(t *testing.T) {
	d := &Desk{}
	New(d, "double", func(_ context.Context, _ route.Who, in int) (int, error) { return 2 * in, nil })
	NewStream(d, "count", func(_ context.Context, _ route.Who, to int, send func(int) error) error {
		for n := range to {
			if err := send(n); err != nil {
				return err
			}
		}
		return nil
	})
	if got, err := d.Answer(t.Context(), route.Who{}, "double", []byte("4")); err != nil || got != 8 {
		t.Errorf("%v, %v", got, err)
	}
	var sent []any
	err := d.Stream(t.Context(), route.Who{}, "count", []byte("9"), func(v any) error {
		if len(sent) == 3 {
			return context.Canceled
		}
		sent = append(sent, v)
		return nil
	})
	if !errors.Is(err, context.Canceled) || fmt.Sprint(sent) != "[0 1 2]" {
		t.Errorf("sent %v, %v", sent, err)
	}
	for _, x := range [][2]string{{"double", `"four"`}, {"double", ""}, {"other", "4"}, {"count", "4"}} {
		if got, err := d.Answer(t.Context(), route.Who{}, x[0], []byte(x[1])); err == nil {
			t.Errorf("%q is answered with %v", x, got)
		}
	}
	for _, x := range [][2]string{{"count", "x"}, {"double", "4"}} {
		if err := d.Stream(t.Context(), route.Who{}, x[0], []byte(x[1]), nil); err == nil {
			t.Errorf("%q is fed", x)
		}
	}
}

// TestMissing names replicas in a header and reads them again.
func TestMissing(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "b"}} {
		h := http.Header{}
		SetMissing(h, names)
		if got := Missing(h); !reflect.DeepEqual(got, names) {
			t.Errorf("%q is read as %q", names, got)
		}
	}
}

// FuzzParseCursors reads any text. The text of cursors is read as the same cursors.
func FuzzParseCursors(f *testing.F) {
	f.Add("")
	f.Add("a~1,b~2026-01-02T03:04:05Z/x")
	f.Add("a")
	f.Add("a~1,a~2,~")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursors(s)
		if err != nil {
			return
		}
		again, err := ParseCursors(c.String())
		if err != nil || !reflect.DeepEqual(again, c) {
			a, _ := json.Marshal(c)
			t.Errorf("%s is read as %v, %v", a, again, err)
		}
	})
}
