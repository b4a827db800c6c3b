package service

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks/document"
)

var format = document.Format{Noun: "test", Needs: "nothing", MaxBytes: 64 << 10}

func parse(text string) ([]Service, document.Problems) {
	d, v := format.Parse("test.yaml", []byte(text))
	list := Parse(d, v.Get("services"))
	return list, d.Mistakes()
}

func TestParse(t *testing.T) {
	list, wrong := parse(`services:
  db:
    image: postgres:16
    args: [postgres, -c, fsync=off]
    env: {POSTGRES_PASSWORD: test, N: 5, EMPTY: , YES: true}
    ready: pg_isready
    timeout: 90s
    ports: [5432]
    memory: 256MiB
  cache: {command: redis-server, port: 6379}
  none: {image: "registry.example.org:5000/a/b@sha256:0123"}
`)
	want := []Service{
		{Name: "db", Image: "postgres:16", Args: []string{"postgres", "-c", "fsync=off"}, Ready: "pg_isready", Timeout: 90 * time.Second,
			Env: map[string]string{"POSTGRES_PASSWORD": "test", "N": "5", "EMPTY": "", "YES": "true"}, Ports: []int{5432}, Memory: 256 << 20},
		{Name: "cache", Command: "redis-server", Ports: []int{6379}},
		{Name: "none", Image: "registry.example.org:5000/a/b@sha256:0123"},
	}
	if len(wrong) > 0 || !reflect.DeepEqual(list, want) {
		t.Errorf("got  %+v\nwant %+v\n%v", list, want, wrong)
	}
	if list, wrong := parse("services:\n"); list != nil || len(wrong) > 0 {
		t.Errorf("no services: %v, %v", list, wrong)
	}
}

// TestMistakes has mistakes that no golden file of the workflow language has.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"services: [db]":                                          "must be a mapping",
		"services: {db: 5}":                                       "a service must be a mapping",
		"services: {db: {image: 5}}":                              "image must be text",
		"services: {db: {image: -x}}":                             "cannot be the name of an image",
		"services: {-db: {image: x}}":                             "host name",
		"services: {ramus: {image: x}}":                           "host name",
		"services: {db: {command: x, ports: [7070]}}":             "the container's own",
		"services: {db: {command: x, ports: [80]}}":               "at least 1024",
		"services: {db: {command: x, ports: [65536]}}":            "at most 65535",
		"services: {db: {command: x, port: 5432, ports: [5432]}}": "not both",
		"services: {db: {command: x, ports: [5432, 5432]}}":       "twice",
		"services: {db: {command: x, timeout: 5}}":                "timeout must be text",
		"services: {db: {command: x, memory: 1KiB}}":              "from 16MiB",
		"services: {db: {command: x, env: [a]}}":                  "env must be a mapping",
		"services: {a: {}}":                                       "needs image",
		"services: {" + strings.Repeat("a: {command: x}, ", 9):    "",
	} {
		_, wrong := parse(text)
		if len(wrong) == 0 || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, wrong, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("services: {db: {image: x, env: {a: b}, ports: [5432], timeout: 1m, memory: 1GiB}}")
	f.Add("services: &a {db: {command: x, args: [y]}, other: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		list, wrong := parse(text)
		if len(list) > MaxServices {
			t.Errorf("%d services", len(list))
		}
		if len(wrong) > 0 {
			return
		}
		for _, s := range list {
			if !ValidName(s.Name) || s.Image == "" && s.Command == "" || s.Image != "" && !ValidImage(s.Image) || len(s.Ports) > MaxPorts {
				t.Errorf("not within the bounds: %+v", s)
			}
		}
		encoded, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		var again []Service
		if err := json.Unmarshal(encoded, &again); err != nil || len(again) != len(list) {
			t.Errorf("does not survive JSON: %v", err)
		}
	})
}
