package service

import (
	"encoding/json"
	"fmt"
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
		{Name: "db", Image: "postgres:16", Args: []string{"postgres", "-c", "fsync=off"}, Ready: "pg_isready",
			Timeout: 90 * time.Second,
			Env:     map[string]string{"POSTGRES_PASSWORD": "test", "N": "5", "EMPTY": "", "YES": "true"},
			Ports:   []int{5432}, Memory: 256 << 20},
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

// TestBounds checks values at their bounds.
func TestBounds(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int, item func(int) string) string {
		var items []string
		for i := range n {
			items = append(items, item(i))
		}
		return strings.Join(items, ", ")
	}
	service := func(i int) string { return fmt.Sprintf("s%d: {command: x}", i) }
	argument := func(int) string { return "a" }
	variable := func(i int) string { return fmt.Sprintf("V%d: a", i) }
	port := func(i int) string { return fmt.Sprint(5000 + i) }
	for name, tt := range map[string][2]string{ // what is possible, and the first that is not
		"services": {list(MaxServices, service), list(MaxServices+1, service)},
		"name":     {"a" + text(31) + ": {command: x}", "a" + text(32) + ": {command: x}"},
		"address":  {"fe80: {command: x}", `"::1": {command: x}`},
		"own name": {"ramus2: {command: x}", "localhost: {command: x}"},
		"image":    {"a: {image: " + text(maxImage) + "}", "a: {image: " + text(maxImage+1) + "}"},
		"command":  {"a: {command: " + text(maxCommand) + "}", "a: {command: " + text(maxCommand+1) + "}"},
		"ready": {"a: {command: x, ready: " + text(maxCommand) + "}",
			"a: {command: x, ready: " + text(maxCommand+1) + "}"},
		"nothing":  {"a: {command: x}", `a: {command: ""}`},
		"no ready": {"a: {command: x, ready: y}", `a: {command: x, ready: ""}`},
		"args": {"a: {image: x, args: [" + list(maxArgs, argument) + "]}",
			"a: {image: x, args: [" + list(maxArgs+1, argument) + "]}"},
		"argument": {"a: {image: x, args: [" + text(maxValue) + "]}", "a: {image: x, args: [" + text(maxValue+1) + "]}"},
		"no image": {`a: {image: x, command: y, args: [""]}`, "a: {command: y, args: [a]}"},
		"env": {"a: {image: x, env: {" + list(maxEnv, variable) + "}}",
			"a: {image: x, env: {" + list(maxEnv+1, variable) + "}}"},
		"value": {"a: {image: x, env: {A: " + text(maxValue) + "}}",
			"a: {image: x, env: {A: " + text(maxValue+1) + "}}"},
		"variable": {"a: {image: x, env: {_a1: x}}", "a: {image: x, env: {1a: x}}"},
		"ports": {"a: {image: x, ports: [" + list(MaxPorts, port) + "]}",
			"a: {image: x, ports: [" + list(MaxPorts+1, port) + "]}"},
		"port":      {"a: {image: x, port: 1024}", "a: {image: x, port: 1023}"},
		"timeout":   {"a: {image: x, timeout: 1s}", "a: {image: x, timeout: 999ms}"},
		"long wait": {"a: {image: x, timeout: 10m}", "a: {image: x, timeout: 601s}"},
		"no time":   {"a: {image: x, timeout: 90s}", "a: {image: x, timeout: soon}"},
		"memory":    {"a: {image: x, memory: 16MiB}", "a: {image: x, memory: 15MiB}"},
		"much":      {"a: {image: x, memory: 64GiB}", "a: {image: x, memory: 65GiB}"},
		"no size":   {"a: {image: x, memory: 1GiB}", "a: {image: x, memory: much}"},
	} {
		if _, wrong := parse("services: {" + tt[0] + "}"); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
		if _, wrong := parse("services: {" + tt[1] + "}"); len(wrong) != 1 {
			t.Errorf("%s: want one mistake, got %v", name, wrong)
		}
	}
	got, _ := parse("services: {a: 5, b: {command: x}, c: {image: -x}}")
	if len(got) != 2 || got[0].Name != "b" || got[1].Name != "c" {
		t.Errorf("after a mistake: %+v", got)
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
