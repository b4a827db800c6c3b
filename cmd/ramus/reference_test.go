package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/golden"
)

// TestCommandReference compares docs/cli.md with the help of all commands. With -update it writes the file.
func TestCommandReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# The command line\n\n`ramus COMMAND -h` prints the same. Flags may be anywhere before `--`. [api.md](api.md#exit-statuses-of-the-command-line) has the exit\nstatuses.\n\n")
	var write func(table []command, path string)
	write = func(table []command, path string) {
		for _, c := range table {
			at := path + " " + c.name
			if c.subs != nil {
				write(c.subs, at)
				continue
			}
			var help strings.Builder
			c.help(&help, at)
			fmt.Fprintf(&b, "## %s\n\n```text\n%s\n```\n\n", at, strings.TrimRight(help.String(), "\n"))
		}
	}
	write(commands(), "ramus")
	golden.CompareFile(t, "../../docs/cli.md", strings.TrimRight(b.String(), "\n")+"\n")
}

var exampleKey = regexp.MustCompile(`^((?:  )*)([a-z_]+):(.*)$`)

// TestConfigurationReference compares the table of keys in docs/configuration.md with the example, which has every key with its
// default and a comment. With -update it writes the table.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		for i, key := range keys(typ) {
			known[path+key] = true
			if f := typ.Field(i).Type; f.Kind() == reflect.Struct {
				walk(f, path+key+".")
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")

	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| key | default | |\n|---|---|---|\n")
	var comment, path []string
	for _, line := range strings.Split(string(text), "\n") {
		if c, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			comment = append(comment, strings.TrimSpace(c))
			continue
		}
		m := exampleKey.FindStringSubmatch(line)
		if m == nil {
			comment = nil
			continue
		}
		depth := len(m[1]) / 2
		if depth > len(path) {
			continue
		}
		path = append(path[:depth:depth], m[2])
		key := strings.Join(path, ".")
		if known[key] {
			delete(known, key)
			value, inline, _ := strings.Cut(m[3], " #")
			if inline != "" {
				comment = append(comment, strings.TrimSpace(inline))
			}
			if value = strings.TrimSpace(value); value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", key, cell(value), cell(strings.Join(comment, " ")))
		}
		comment = nil
	}
	for key := range known {
		t.Errorf("the example has no key %s", key)
	}

	const file, begin, end = "../../docs/configuration.md", "<!-- keys -->\n", "<!-- end of keys -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(page), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table of keys", file)
	}
	golden.CompareFile(t, file, head+begin+table.String()+end+tail)
}

// cell escapes text for a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}
