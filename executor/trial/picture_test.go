package trial

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestPictureTask reads specs and regions, also those of somebody who means harm.
func TestPictureTask(t *testing.T) {
	call, err := Picture{Spec: "start: npm run dev\ncompare: {max_changed: 0.5}\nclock: 2026-01-02T03:04:05Z\n", Region: []int{1, 2, 3, 4}}.
		Task("abc")
	check, _ := call.Params["check"].(map[string]any)
	against, _ := check["compare"].(map[string]any)
	if err != nil || call.Name != "browser_test" || against["base"] != "abc" || against["max_changed"] != 0.5 ||
		len(against["region"].([]any)) != 4 {
		t.Errorf("%+v, %v", call, err)
	}
	call, err = Picture{Spec: "start: npm start\n"}.Task("abc")
	check, _ = call.Params["check"].(map[string]any)
	against, _ = check["compare"].(map[string]any)
	if err != nil || against["max_changed"] != 0.0 || against["region"] != nil {
		t.Errorf("%+v, %v", call, err)
	}
	for _, p := range []Picture{
		{Spec: "clik: a"}, {Spec: ""}, {Spec: "start: npm start", Region: []int{1}}, {Spec: "start: npm start", Region: []int{0, 0, 0, 1}},
		{Spec: "start: npm start", Region: []int{-1, 0, 1, 1}}, {Spec: "start: npm start", Region: []int{0, 0, 1, 1 << 40}},
		{Spec: "start: npm start\ncompare: {region: [1, 2]}"}, {Spec: strings.Repeat("a", 1<<20)},
	} {
		if _, err := p.Task("abc"); err == nil || !strings.Contains(err.Error(), "spec") {
			t.Errorf("%.100q %v: %v", p.Spec, p.Region, err)
		}
	}
}

// TestPictureJudge reads the results of runs.
func TestPictureJudge(t *testing.T) {
	for _, test := range []struct {
		spec, checks, why string
		want              bisect.Result
	}{
		{"start: npm start", `[{"compare":{"views":[{"viewport":"desktop","changed":0},{"viewport":"mobile","changed":0}]}}]`, "", bisect.Good},
		{"start: npm start", `[{"verdict":"FAIL","compare":{"views":[{"viewport":"desktop","changed":0}]}}]`, "", bisect.Good},
		{"start: npm start", `[{"compare":{"views":[{"viewport":"desktop","uncompared":true,"note":"no picture"},` +
			`{"viewport":"mobile","changed":0.25,"triptych":"a.png"}]}}]`, "mobile differs by 25.00 % of its pixels, see a.png", bisect.Bad},
		{"start: npm start\ncompare: {max_changed: 0.25}", `[{"compare":{"views":[{"viewport":"mobile","changed":0.25}]}}]`, "", bisect.Good},
		{"start: npm start", `[{"compare":{"views":[{"viewport":"desktop","uncompared":true,"note":"no picture"},{"viewport":"mobile"}]}}]`,
			"desktop: no picture", bisect.Skip},
		{"start: npm start", `[{"compare":{"reason":"the base does not start"}}]`, "the base does not start", bisect.Skip},
		{"start: npm start", `[{"reason":"nothing listened"}]`, "nothing listened", bisect.Skip},
		{"start: npm start", `[]`, "no picture was taken: failed", bisect.Skip},
		{"start: npm start", `7`, "no picture was taken: failed", bisect.Skip},
	} {
		event := record.Event{Data: []byte(`{"result":{"output":{"value":{"checks":` + test.checks + `}}}}`)}
		if got, why := (Picture{Spec: test.spec}).Judge(record.Run{Error: "failed"}, event); got != test.want || why != test.why {
			t.Errorf("%s: %v %q, want %v %q", test.checks, got, why, test.want, test.why)
		}
	}
}
