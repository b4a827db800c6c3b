package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/mirror"
)

func repoShowCommand() command {
	return command{
		name: "show", args: "NAME", short: "show a repository, its upstream and its mirror", set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			r, err := c.Repo(ctx, args[0])
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(r)
			}
			rows := [][2]string{{"name", r.Name}, {"base", r.Base}, {"head", string(r.Head)},
				{"clone from", r.CloneURL}, {"folder", r.Dir},
				{"upstream", r.Upstream}, {"refreshed", e.refreshed(r.Status)}, {"mirror", e.mirrored(r.Mirror)}}
			if r.Mirror != nil {
				rows = append(rows, [2]string{"mirror to", r.Mirror.To}, [2]string{"mirror error", r.Mirror.Error})
			}
			for _, row := range rows {
				if row[1] != "" {
					fmt.Fprintf(e.out, "%-12s  %s\n", row[0], e.safe(row[1]))
				}
			}
			return nil
		},
	}
}

// mirrored returns the state of a mirror, or "".
func (e *env) mirrored(m *mirror.Status) string {
	if m == nil {
		return ""
	}
	text := map[string]string{mirror.Pull: "mirror of upstream", mirror.Push: "mirrored"}[m.Mode]
	if !m.At.IsZero() {
		text += " " + ago(m.At)
	}
	if m.Pending {
		text += ", waits"
	}
	if m.Error != "" {
		text += ", failing: " + e.oneLine(m.Error, 80)
	}
	return text
}
