package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// TestTaskRoutes checks that tasks are the same under both paths, and that a token sees those of its repository.
func TestTaskRoutes(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	r.repo(t, "other")
	token := r.token(t, gitd.Grant{Subject: "ada", Repo: "team/app", Scopes: []string{"write"}})
	other := r.token(t, gitd.Grant{Subject: "bob", Repo: "other", Scopes: []string{"write"}})
	send := func(method, path, token, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := r.web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
	for _, at := range []string{"/api/tasks", "/engineer/tasks"} {
		resp, body := send("POST", at, token, `{"description":"make it work","key":"`+at+`","asker":{"name":"Eve"}}`)
		var task record.Task
		if err := json.Unmarshal([]byte(body), &task); err != nil || resp.StatusCode != http.StatusAccepted {
			t.Fatalf("POST %s: %d %s", at, resp.StatusCode, body)
		}
		if task.Repo != "team/app" || task.Asker.Name != "ada" || resp.Header.Get("Location") != at+"/"+task.ID {
			t.Errorf("POST %s: %+v at %q", at, task, resp.Header.Get("Location"))
		}
		if _, body := send("POST", at, token, `{"description":"make it work","key":"`+at+`"}`); !strings.Contains(body, task.ID) {
			t.Errorf("POST %s with the same key: %s", at, body)
		}
		for _, id := range []string{task.ID, "conv:" + task.ID} {
			if resp, body := send("GET", at+"/"+id, token, ""); resp.StatusCode != 200 || !strings.Contains(body, "make it work") {
				t.Errorf("GET %s/%s: %d %s", at, id, resp.StatusCode, body)
			}
		}
		for _, x := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", at, `{"description":""}`, 400},
			{"POST", at, `{"description":"x","bogus":1}`, 400},
			{"POST", at, `{"description":"x","agent":"nobody"}`, 400},
			{"POST", at, `{"description":"x","base":"nothing"}`, 404},
			{"POST", at, `{"description":"x","repo":"other"}`, 404},
			{"POST", at, `{"description":"x","parent":"0123456789abcdef"}`, 404},
			{"POST", at, `{"description":"` + strings.Repeat("x", 96_001) + `"}`, 400},
			{"POST", at, `{"description":"` + strings.Repeat("x", 3<<20) + `"}`, 413},
			{"GET", at + "?status=done", "", 400},
			{"GET", at + "?state=running", "", 400},
			{"GET", at + "?repo=other", "", 404},
			{"GET", at + "/0123456789abcdef", "", 404},
			{"POST", at + "/" + task.ID + "/say", `{"text":""}`, 400},
			{"DELETE", at + "/" + task.ID + "?drop=perhaps", "", 400},
			{"PUT", at + "/" + task.ID, "", 405},
		} {
			resp, body := send(x.method, x.path, token, x.body)
			var p route.Problem
			if resp.StatusCode != x.status || json.Unmarshal([]byte(body), &p) != nil || p.Detail == "" {
				t.Errorf("%s %s %.60s: %d %s, want %d", x.method, x.path, x.body, resp.StatusCode, body, x.status)
			}
		}
		for _, x := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/retry"}, {"POST", "/say"}} {
			if resp, body := send(x[0], at+"/"+task.ID+x[1], other, `{"text":"x"}`); resp.StatusCode != 404 ||
				strings.Contains(body, "team/app") {
				t.Errorf("%s %s for another repository: %d %s", x[0], x[1], resp.StatusCode, body)
			}
		}
		if _, body := send("GET", at, other, ""); strings.TrimSpace(body) != "[]" {
			t.Errorf("another repository's list: %s", body)
		}
	}
}

// TestTaskClient uses the client from the submission of a task to its end.
func TestTaskClient(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	c := r.local
	ctx := t.Context()
	task, err := c.SubmitTask(ctx,
		engineer.Submission{Description: "one", Asker: gitd.Person{Name: "Ada", Email: "ada@example.org"}})
	if err != nil {
		t.Fatal(err)
	}
	if task.Asker.Name != "Ada" {
		t.Errorf("an administrator asks in nobody's name: %+v", task.Asker)
	}
	if _, err := c.Task(ctx, task.ID); err != nil {
		t.Error(err)
	}
	if task, err = c.CancelTask(ctx, task.ID, true); err != nil || task.Status != record.StateFailed {
		t.Errorf("cancelled it is %s: %v", task.Status, err)
	}
	if list, err := c.Tasks(ctx, client.TaskFilter{Status: "failed", Repo: "team/app"}); err != nil || len(list) != 1 ||
		list[0].ID != task.ID {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := c.Tasks(ctx, client.TaskFilter{Active: true}); err != nil || len(list) != 0 {
		t.Errorf("still at work: %+v, %v", list, err)
	}
	if _, err := c.SayTask(ctx, task.ID, engineer.TaskMessage{Text: "more"}); err == nil {
		t.Error("a task that was cancelled is spoken to")
	}
	if list, err := c.Library(ctx); err != nil || len(list) == 0 {
		t.Errorf("%d library tasks, %v", len(list), err)
	}
}

// TestNoEngineer checks that a server without an engineer has no tasks and answers with a hint.
func TestNoEngineer(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, nil)
	_, err := r.local.Tasks(t.Context(), client.TaskFilter{})
	if p := new(route.Problem); !errors.As(err, &p) || p.Kind != route.KindNotFound || !strings.Contains(p.Hint, "ramus serve") {
		t.Errorf("%v", err)
	}
	s := r.assistant(t, "", true, nil)
	for _, name := range tools(t, s) {
		if strings.Contains(name, "task") {
			t.Errorf("there is a tool %s", name)
		}
	}
}
