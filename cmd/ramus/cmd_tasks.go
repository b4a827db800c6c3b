package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/tasks/library"
)

func tasksCommand() command {
	return command{
		name: "tasks", args: "[NAME]",
		short: "list the task library, or explain one task",
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&e.json, "json", false, "as JSON, with the schema of the parameters")
		},
		run: func(_ context.Context, e *env, args []string) error {
			if err := want(args, 0, 1, ""); err != nil {
				return err
			}
			type row struct {
				Name   string          `json:"name"`
				Doc    string          `json:"doc"`
				Schema json.RawMessage `json:"schema"`
			}
			list := []row{}
			var known []string
			for _, t := range library.All() {
				known = append(known, t.Name)
				if len(args) == 0 || t.Name == args[0] {
					list = append(list, row{t.Name, t.Doc, t.Schema})
				}
			}
			switch {
			case len(args) == 1 && len(list) == 0:
				text := fmt.Sprintf("unknown task %q", args[0])
				if near := nearest(args[0], known); near != "" {
					text += fmt.Sprintf("; did you mean %q?", near)
				}
				return &exitStatus{exitNotFound, fmt.Errorf("%s", text)}
			case e.json && len(args) == 1:
				return e.writeJSON(list[0])
			case e.json:
				return e.writeJSON(list)
			case len(args) == 1:
				schema, err := json.MarshalIndent(list[0].Schema, "", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintf(e.out, "%s\n\n%s\n\nParameters:\n%s\n", list[0].Name, list[0].Doc, schema)
				return nil
			}
			var rows [][]string
			for _, t := range list {
				first, _, _ := strings.Cut(t.Doc, "\n")
				rows = append(rows, []string{t.Name, first})
			}
			return e.table([]string{"TASK", "WHAT IT DOES"}, rows)
		},
	}
}
