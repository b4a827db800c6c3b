package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// exported is the output of `ramus export --json`.
type exported struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	export.Summary
}

func exportCommand() command {
	var (
		q    export.Query
		file string
	)
	return command{
		name: "export", args: "RUN|CALLER [-o FILE]",
		short: "write a run, or a caller with all its runs, into one file that git clone opens",
		long: `
The file is a git bundle. "git clone FILE" checks out the branch. The tag
ramus/CALLER/run/RUN is the record of a run: its outputs, its artifacts, its pictures
and its journal. The tag ramus/CALLER/export has a list of the contents and the large
artifacts. "ramus import FILE" takes the file into another server.

Work that has not ended is exported as far as it is committed, and the command says
what is missing.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&file, "o", "", "the `file`; CALLER.bundle if empty")
			fs.BoolVar(&q.WithoutArtifacts, "without-artifacts", false, "leave out the files of the artifact store")
			fs.BoolVar(&e.json, "json", false, "the file and its contents, as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN|CALLER")
			if err != nil {
				return err
			}
			done, err := e.export(ctx, c, args[0], q, file)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(done)
			}
			for _, text := range done.LeftOut {
				fmt.Fprintf(e.err, "not in the file: %s\n", e.oneLine(text, 300))
			}
			fmt.Fprintf(e.out, "%s  %s, %d runs of %s at %.10s\n", e.oneLine(done.File, 200), bytesize.Text(done.Bytes), done.Runs,
				done.Caller, done.Head)
			return nil
		},
	}
}

// export writes the file. It appears with its whole content, or not at all.
func (e *env) export(ctx context.Context, c *client.Client, of string, q export.Query, file string) (exported, error) {
	done := exported{File: file}
	if file == "" {
		done.File = strings.NewReplacer(":", "-", "/", "-").Replace(of) + ".bundle"
	}
	f, err := os.CreateTemp(filepath.Dir(done.File), ".ramus-export-*")
	if err != nil {
		return done, fmt.Errorf("cannot export %s: %w", of, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	one := strings.Contains(of, "/")
	done.Summary, err = c.Export(ctx, of, one, q, f)
	var p *route.Problem
	if !one && errors.As(err, &p) && p.Kind == route.KindNotFound { // the id of a run
		done.Summary, err = c.Export(ctx, of, true, q, f)
	}
	if err != nil {
		return done, err
	}
	info, err := f.Stat()
	if err == nil {
		done.Bytes = info.Size()
		err = errors.Join(f.Chmod(0o644), f.Sync(), os.Rename(f.Name(), done.File))
	}
	if err != nil {
		return done, fmt.Errorf("cannot export %s: %w", of, err)
	}
	return done, nil
}
