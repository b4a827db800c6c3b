package github_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
)

const hookSecret = "the secret of the webhook"

func signed(event, body string) http.Header {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	return http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}, "X-Github-Event": {event},
		"X-Github-Delivery": {"d-1"}, "Content-Type": {"application/json"}}
}

// with is an event's body with what all have.
func with(fields string) string {
	return `{"repository":{"id":1,"name":"app","full_name":"acme/app","owner":{"login":"acme"}},"sender":{"login":"ann","type":"User"},` + fields + `}`
}

const pullField = `"pull_request":{"number":7,"state":"closed","title":"T","merged":true,"merge_commit_sha":"abc","head":{"ref":"work","sha":"def"},"base":{"ref":"main"},"user":{"login":"ramus[bot]","type":"Bot"}}`

func TestParseDelivery(t *testing.T) {
	for _, one := range []struct{ event, body, want string }{
		{"ping", `{"zen":"Keep it simple.","hook_id":1,"sender":{"login":"ann"}}`, `{"id":"d-1","event":"ping","repo":{}}`},
		{"pull_request", with(`"action":"closed","number":7,` + pullField), `{"action":"closed","number":7,"turned":true}`},
		{"pull_request", with(`"action":"reopened","number":7,` + pullField), `{"number":7,"turned":true}`},
		{"pull_request_review_comment", with(`"action":"closed",` + pullField), `{"number":7,"turned":null}`},
		{"issues", with(`"action":"opened","issue":{"number":9,"title":"A fault"}`), `{"action":"opened","number":9}`},
		{"pull_request", with(`"action":"synchronize","before":"1","after":"2",` + pullField),
			`{"action":"synchronize","number":7,"turned":null}`},
		{"pull_request_review", with(`"action":"submitted","review":{"id":5,"user":{"login":"ann"},"state":"CHANGES_REQUESTED","body":null,"commit_id":"def"},` + pullField),
			`{"action":"submitted","number":7}`},
		{"pull_request_review_comment",
			with(`"action":"created","comment":{"id":6,"body":"why?","path":"a.go","line":3},` + pullField),
			`{"action":"created","number":7}`},
		{"issue_comment", with(`"action":"created","issue":{"number":7,"pull_request":{"url":"x"}},"comment":{"id":8,"user":{"login":"ann"},"body":"@ramus hello"}`),
			`{"action":"created","number":7}`},
		{"check_run", with(`"action":"completed","check_run":{"id":3,"name":"test","head_sha":"def","status":"completed","conclusion":"failure","pull_requests":[{"number":7}],"check_suite":{"head_branch":"work"},"output":{"title":"3 failed"}}`),
			`{"action":"completed","check":{"id":3,"name":"test","commit":"def","branch":"work","status":"completed","conclusion":"failure","title":"3 failed","pulls":[7]}}`},
		{"workflow_run", with(`"action":"completed","workflow_run":{"id":4,"name":"CI","head_branch":"work","head_sha":"def","status":"completed","conclusion":"success","pull_requests":[]}`),
			`{"action":"completed","check":{"id":4,"workflow":true,"name":"CI","commit":"def","branch":"work","status":"completed","conclusion":"success"}}`},
		{"check_run", with(`"action":"rerequested","check_run":{"id":3,"name":"test","head_sha":"def","external_id":"","status":"completed","conclusion":"success",
			"started_at":"2019-05-15T15:21:12Z","completed_at":"2019-05-15T20:22:22Z","output":{"title":null,"annotations_count":0},
			"check_suite":{"head_branch":"work","created_at":"2019-05-15 15:20:31 UTC","updated_at":1557933633},
			"app":{"id":29310,"created_at":"2019-04-19 19:36:24 UTC","owner":{"id":"1"},"permissions":[]},"pull_requests":[null,{"number":7,"head":{"repo":{"id":"1"}}}]},
			"ref":{},"issue":"none","pull_request":[]`),
			`{"action":"rerequested","check":{"id":3,"name":"test","commit":"def","branch":"work","status":"completed","conclusion":"success","pulls":[7]}}`},
		{"workflow_run", with(`"action":"requested","workflow_run":{"id":4,"name":"CI","head_branch":"work","head_sha":"def","status":"queued","conclusion":null,"display_title":"Fix",
			"run_started_at":"soon","created_at":1,"actor":"ann","output":5,"check_suite":"none","pull_requests":null}`),
			`{"action":"requested","check":{"id":4,"workflow":true,"name":"CI","commit":"def","branch":"work","status":"queued","title":"Fix"}}`},
		{"pull_request", with(`"action":"labeled","check_run":5,"ref":[],"deleted":"no","pull_request":{"number":7,"created_at":"yesterday","labels":"none"}`),
			`{"action":"labeled","number":7}`},
		{"issue_comment", with(`"action":"created","issue":{"number":7,"created_at":1,"assignees":{}},"pull_request":7`), `{"action":"created","number":7}`},
		{"push", with(`"ref":"refs/heads/main","before":"1","after":"2","pull_request":1,"check_run":[],"head_commit":{"timestamp":5}`), `{"pushes":[{"ref":"refs/heads/main"}]}`},
		{"push", with(`"ref":"refs/heads/main","before":"1","after":"2","forced":true,"pusher":{"name":"ann"}`),
			`{"pushes":[{"ref":"refs/heads/main"}]}`},
		{"installation", `{"action":"created","installation":{"id":1},"sender":{"login":"ann","type":"User"},"repositories":[{"name":"app"}]}`, `{"action":"created"}`},
		{"star", with(`"action":"created","comment":5,"review":[],"ref":{},"pull_request":"x"`),
			`{"action":"created","repo":{"Owner":"acme","Repo":"app"}}`},
	} {
		t.Run(one.event, func(t *testing.T) {
			d, err := github.ParseDelivery(signed(one.event, one.body), []byte(one.body), hookSecret)
			if err != nil {
				t.Fatal(err)
			}
			if one.event != "ping" && one.event != "installation" && d.Repo != repo {
				t.Errorf("head %+v", d)
			}
			b, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			var got, want object
			if err := errors.Join(json.Unmarshal(b, &got), json.Unmarshal([]byte(one.want), &want)); err != nil {
				t.Fatal(err)
			}
			for key := range want {
				g, _ := json.Marshal(got[key])
				if w, _ := json.Marshal(want[key]); key != "repo" && string(g) != string(w) {
					t.Errorf("%s is\n%s, want\n%s", key, g, w)
				}
			}
		})
	}
}

func TestBadDeliveries(t *testing.T) {
	body := with(`"action":"closed","number":7,` + pullField)
	for name, change := range map[string]func(http.Header){
		"none": func(h http.Header) { h.Del("X-Hub-Signature-256") },
		"SHA-1": func(h http.Header) {
			h.Set("X-Hub-Signature-256", strings.Replace(h.Get("X-Hub-Signature-256"), "256", "1", 1))
		},
		"no hex":     func(h http.Header) { h.Set("X-Hub-Signature-256", "sha256=xyz") },
		"cut":        func(h http.Header) { h.Set("X-Hub-Signature-256", h.Get("X-Hub-Signature-256")[:20]) },
		"empty":      func(h http.Header) { h.Set("X-Hub-Signature-256", "sha256=") },
		"of another": func(h http.Header) { h.Set("X-Hub-Signature-256", signed("", body+" ").Get("X-Hub-Signature-256")) },
	} {
		h := signed("pull_request", body)
		change(h)
		if d, err := github.ParseDelivery(h, []byte(body), hookSecret); !errors.Is(err, forge.ErrSignature) || d.Event != "" {
			t.Errorf("%s: %+v %v", name, d, err)
		}
	}
	if _, err := github.ParseDelivery(signed("pull_request", body), []byte(body), ""); !errors.Is(err, forge.ErrSignature) {
		t.Errorf("without a secret: %v", err)
	}
	long := strings.Repeat(" ", forge.MaxDelivery) + "{}"
	if _, err := github.ParseDelivery(signed("ping", long), []byte(long), hookSecret); !errors.Is(err, forge.ErrSignature) {
		t.Errorf("too long: %v", err)
	}
	for name, one := range map[string]struct {
		event, body string
		change      func(http.Header)
	}{
		"no id":    {"ping", "{}", func(h http.Header) { h.Del("X-GitHub-Delivery") }},
		"long id":  {"ping", "{}", func(h http.Header) { h.Set("X-GitHub-Delivery", strings.Repeat("x", 101)) }},
		"no event": {"", "{}", nil},
		"a form": {"ping", "payload=%7B%7D",
			func(h http.Header) { h.Set("Content-Type", "application/x-www-form-urlencoded") }},
		"no JSON":       {"ping", "{", nil},
		"a list":        {"ping", "[]", nil},
		"two":           {"ping", "{}{}", nil},
		"a name":        {"star", `{"repository":{"name":"../x","owner":{"login":"acme"}}}`, nil},
		"no pull":       {"pull_request", with(`"action":"opened"`), nil},
		"no repository": {"pull_request", `{` + pullField + `}`, nil},
		"no issue":      {"issue_comment", with(`"comment":{"id":1}`), nil},
		"no check":      {"check_run", with(`"action":"completed"`), nil},
		"no workflow":   {"workflow_run", with(`"action":"completed"`), nil},
		"no ref":        {"push", with(`"before":"1"`), nil},
		"odd":           {"push", with(`"ref":5`), nil},
	} {
		h := signed(one.event, one.body)
		if one.change != nil {
			one.change(h)
		}
		if d, err := github.ParseDelivery(h, []byte(one.body), hookSecret); !errors.Is(err, forge.ErrDelivery) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

func TestDigest(t *testing.T) {
	digest := func(event, body string) string {
		d, err := github.ParseDelivery(signed(event, body), []byte(body), hookSecret)
		if err != nil {
			t.Fatal(err)
		}
		return d.Digest
	}
	const event = "pull_request"
	want := digest(event, with(`"action":"closed","number":7,`+pullField))
	for _, same := range []string{
		with(`"action":"closed","number":7,"installation":{"id":3},"organization":{"login":"acme"},` + pullField),
		with(`"action":"\u0063losed", "number":7,` + pullField),
	} {
		if digest(event, same) != want {
			t.Errorf("the same news has another digest: %s", same)
		}
	}
	for _, other := range []string{
		with(`"action":"reopened","number":7,` + pullField),
		with(`"action":"closed","number":10000000000000001,` + pullField),
		with(`"action":"closed","number":10000000000000000,` + pullField),
	} {
		if d := digest(event, other); d == want || d == digest(event, with(`"action":"closed","number":10000000000000002,`+pullField)) {
			t.Errorf("other news has the same digest: %s", other)
		}
	}
	if digest("star", with(`"action":"closed","number":7,`+pullField)) == want {
		t.Error("another event has the same digest")
	}
}

func FuzzParseDelivery(f *testing.F) {
	for _, event := range []string{"pull_request", "pull_request_review", "pull_request_review_comment",
		"issue_comment", "check_run", "workflow_run", "push", "ping", "star"} {
		f.Add(event, with(`"action":"created","review":{"id":1},"comment":{"id":1},"issue":{"number":2},"check_run":{"id":1},"workflow_run":{"id":1},"ref":"x",`+pullField))
		f.Add(event, with(`"pull_request":{"labels":[null],"requested_reviewers":[null],"head":null},"review":{},"comment":null,"check_run":{"pull_requests":[null],"output":null}`))
	}
	f.Fuzz(func(t *testing.T, event, body string) {
		d, err := github.ParseDelivery(signed(event, body), []byte(body), hookSecret)
		if err == nil && (d.Event != event || d.Digest == "") || err != nil && !errors.Is(err, forge.ErrDelivery) {
			t.Errorf("%+v, %v", d, err)
		}
		if _, err := github.ParseDelivery(signed(event, body+" "), []byte(body), hookSecret); !errors.Is(err, forge.ErrSignature) {
			t.Errorf("wrongly signed: %v", err)
		}
	})
}
