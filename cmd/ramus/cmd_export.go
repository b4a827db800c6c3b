package main

import (
	"cmp"
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

// written is a file that was written. It is the output of `ramus export --cast --json`.
type written struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// exported is the output of `ramus export --json`.
type exported struct {
	written
	export.Summary
}

func exportCommand() command {
	var (
		q    export.Query
		file string
		link bool
		cast bool
	)
	return command{
		name: "export", args: "RUN|CALLER [-o FILE] [--link | --cast]",
		short: "write a run, or a caller with all its runs, into one file that git clone opens",
		long: `
The file is a git bundle. "git clone FILE" checks out the branch. The tag
ramus/CALLER/run/RUN is the record of a run: its outputs, its artifacts, its pictures
and its journal. The tag ramus/CALLER/export has a list of the contents and the large
artifacts. "ramus import FILE" takes the file into another server.

--link prints a link to the export of a run. It opens without a token until it expires,
for anybody who has it. --cast writes the commands of a run with their outputs as a
recording of a terminal (asciicast v2). The recordings of terminals are in the file too.

Work that has not ended is exported as far as it is committed, and the command says
what is missing.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&file, "o", "", "the `file`; CALLER.bundle if empty")
			fs.BoolVar(&q.WithoutArtifacts, "without-artifacts", false, "leave out the files of the artifact store")
			fs.BoolVar(&link, "link", false, "print a signed link to the export of the run, and write no file")
			fs.BoolVar(&cast, "cast", false, "write a recording of the run; the file is RUN.cast if -o names none")
			fs.BoolVar(&e.json, "json", false, "the file and its contents, as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN|CALLER")
			if err != nil {
				return err
			}
			switch {
			case link:
				l, err := c.ExportLink(ctx, args[0])
				if err == nil && e.json {
					return e.writeJSON(l)
				}
				if err == nil {
					fmt.Fprintln(e.out, l.URL)
				}
				return err
			case cast:
				name, n, err := writeWhole(args[0], cmp.Or(file, fileName(args[0])+".cast"), func(f *os.File) error {
					return c.Cast(ctx, args[0], f)
				})
				if err == nil && e.json {
					return e.writeJSON(written{name, n})
				}
				if err == nil {
					fmt.Fprintf(e.out, "%s  %s\n", e.oneLine(name, 200), bytesize.Text(n))
				}
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

// export writes the file.
func (e *env) export(ctx context.Context, c *client.Client, of string, q export.Query, file string) (done exported, err error) {
	done.File, done.Bytes, err = writeWhole(of, cmp.Or(file, fileName(of)+".bundle"), func(f *os.File) error {
		one := strings.Contains(of, "/")
		done.Summary, err = c.Export(ctx, of, one, q, f)
		var p *route.Problem
		if !one && errors.As(err, &p) && p.Kind == route.KindNotFound { // the id of a run
			done.Summary, err = c.Export(ctx, of, true, q, f)
		}
		return err
	})
	return done, err
}

// fileName returns the name of a run or caller as that of a file.
func fileName(of string) string { return strings.NewReplacer(":", "-", "/", "-").Replace(of) }

// writeWhole writes a file that appears with its whole content, or not at all. of is exported. It returns the name and
// the size in bytes.
func writeWhole(of, name string, write func(*os.File) error) (string, int64, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".ramus-export-*")
	if err != nil {
		return name, 0, fmt.Errorf("cannot export %s: %w", of, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := write(f); err != nil {
		return name, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync(), os.Rename(f.Name(), name))
	}
	if err != nil {
		return name, 0, fmt.Errorf("cannot export %s: %w", of, err)
	}
	return name, info.Size(), nil
}
