package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestAnswerOffered offers the answers of a question to those who may give one, on all pages that show it. Others read it.
func TestAnswerOffered(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	run := w.run("calm-heron", record.Request{Workflow: "id: release\nrepo: {id: app}\nnodes:\n" +
		"  - {id: ok, human: {message: \"Publish it?\", allowed: [\"github:1\"]}}\n"})
	other := ada
	other.Subject = "github:2"
	for _, may := range []bool{true, false} {
		if !may {
			w.become(other)
		}
		status, _, body := w.get("/workspaces/run-calm-heron?pane=chat")
		if status != 200 || !strings.Contains(body, "Only github:1 may answer.") {
			t.Fatalf("%d %s", status, body)
		}
		parse(t, "the question", body).check()
		if strings.Contains(body, `value="approve"`) != may || strings.Contains(body, ">Answer</a>") != may ||
			strings.Contains(body, ">See the question</a>") == may {
			t.Errorf("%s may answer: %v", w.who.Subject, may)
		}
		for _, path := range []string{"/dashboard", "/workspaces/run-calm-heron/runs/" + run.ID} {
			status, _, body := w.get(path)
			if status != 200 || !strings.Contains(body, "Publish it?") || !strings.Contains(body, "Only github:1 may answer.") ||
				strings.Contains(body, `/approve"`) != may || strings.Contains(body, `/reject"`) != may {
				t.Errorf("%s: %s may answer: %v\n%d %s", path, w.who.Subject, may, status, body)
			}
			parse(t, path, body).check()
		}
	}
	status, _, body := w.post("/workspaces/run-calm-heron/runs/"+run.ID+"/approve", url.Values{"step": {run.Gate.Step}})
	if status != 403 || !strings.Contains(body, "only github:1 may") {
		t.Errorf("%d %s", status, body)
	}
}
