package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// artifactsFolder is the folder in the manifest with the artifacts of commands and browsers.
const artifactsFolder = "artifacts/"

// artifactList is the output of `ramus artifacts --json`.
type artifactList struct {
	Run     string                `json:"run"`
	Browser []record.BrowserCheck `json:"browser,omitempty"`
	Files   []record.ManifestFile `json:"files"`
}

func artifactsCommand() command {
	var save string
	return command{
		name: "artifacts", args: "RUN [NAME] [--save DIR] [--json]",
		short: "list, print or save the artifacts of a run: checks by a browser, and files",
		long: `
RUN is a run, or a caller for its latest run. The list begins with the checks by a
browser, each with its verdict for every viewport and its picture. All files follow,
with size and type. NAME is a name in the list, or the end of a name if it is unique.

With NAME the file is printed unchanged. Redirect pictures and archives to a file or
another program, because a terminal cannot show them.
--save writes the file, or all files, into a new folder, and checks each SHA-256.
"npx playwright show-trace" opens a trace, and so does the run's page (ramus evidence
RUN --link).`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&e.json, "json", false, "the checks by a browser and the files, as JSON")
			fs.StringVar(&save, "save", "", "save into the new `folder`")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 2, "RUN [NAME]")
			if err != nil {
				return err
			}
			m, err := c.Evidence(ctx, args[0])
			if err != nil {
				return err
			}
			var files []record.ManifestFile
			for _, f := range m.Files {
				if strings.HasPrefix(f.Name, artifactsFolder) {
					files = append(files, f)
				}
			}
			if len(args) == 2 {
				f, err := artifactNamed(files, args[1])
				if err != nil {
					return err
				}
				files = []record.ManifestFile{f}
			}
			switch {
			case save != "":
				return e.saveArtifacts(ctx, c, m.Run, files, save)
			case e.json:
				list := artifactList{Run: m.Run, Browser: m.Browser, Files: files}
				if len(args) == 2 {
					list.Browser = nil
				}
				return e.writeJSON(list)
			case len(args) == 2:
				return e.printArtifact(ctx, c, m.Run, files[0])
			}
			return e.showArtifacts(m, files)
		},
	}
}

// artifactNamed returns the file with a name, with or without "artifacts/", or whose name ends in a slash and that
// name.
func artifactNamed(files []record.ManifestFile, name string) (record.ManifestFile, error) {
	var found []record.ManifestFile
	for _, f := range files {
		switch {
		case f.Name == name, f.Name == artifactsFolder+name:
			return f, nil
		case strings.HasSuffix(f.Name, "/"+name):
			found = append(found, f)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return record.ManifestFile{},
			fmt.Errorf("cannot find the artifact %q: without a name `ramus artifacts` lists all of them", name)
	}
	var list []string
	for _, f := range found[:min(len(found), 5)] {
		list = append(list, strings.TrimPrefix(f.Name, artifactsFolder))
	}
	return record.ManifestFile{}, fmt.Errorf("the artifact %q is ambiguous: %d names end with it, among them %s", name,
		len(found), strings.Join(list, ", "))
}

func (e *env) showArtifacts(m record.Manifest, files []record.ManifestFile) error {
	if len(m.Browser) == 0 && len(files) == 0 {
		fmt.Fprintf(e.err, "%s has no artifacts: commands write them to /artifacts\n", m.Run)
		return nil
	}
	var looks [][]string
	add := func(verdict record.BrowserVerdict, name, viewport, file string) {
		looks = append(looks, []string{string(verdict), name, viewport, file})
	}
	for _, k := range m.Browser {
		if len(k.Views) == 0 { // the check has no pictures
			add(k.Verdict, k.Name, "", k.Reason)
		}
		for _, v := range k.Views {
			file := "browser/" + v.Screenshot
			if v.Screenshot == "" {
				file = v.Reason
			}
			add(v.Verdict, k.Name, v.Viewport.Name, file)
		}
		if k.Compare == nil {
			continue
		}
		for _, d := range k.Compare.Views {
			if d.Picture != "" {
				add(record.BrowserVerdict(fmt.Sprintf("%.1f %%", d.Changed*100)), k.Name, d.Viewport, "browser/"+d.Picture)
			}
		}
	}
	if len(looks) > 0 {
		if err := e.table([]string{"VERDICT", "NAME", "VIEWPORT", "FILE"}, looks); err != nil {
			return err
		}
		fmt.Fprintln(e.out)
	}
	rows := make([][]string, 0, len(files))
	for _, f := range files {
		rows = append(rows, []string{bytesize.Text(f.Size), f.Type, strings.TrimPrefix(f.Name, artifactsFolder)})
	}
	return e.table([]string{"SIZE", "TYPE", "FILE"}, rows)
}

// printArtifact writes a file to standard output. On a terminal, and only there, it makes control sequences visible.
func (e *env) printArtifact(ctx context.Context, c *client.Client, run string, f record.ManifestFile) error {
	name := strings.TrimPrefix(f.Name, artifactsFolder)
	h := sha256.New()
	var err error
	if isTerminal(e.out) {
		if !strings.HasPrefix(f.Type, "text/") && f.Type != "application/json" {
			return fmt.Errorf("cannot show %q in a terminal: it is %s; add `>FILE`, or --save DIR", name,
				e.oneLine(f.Type, 60))
		}
		w := &diffWriter{e: e}
		if err = c.EvidenceFile(ctx, run, f.Name, io.MultiWriter(w, h)); err == nil {
			err = w.Close()
		}
	} else {
		err = c.EvidenceFile(ctx, run, f.Name, io.MultiWriter(e.out, h))
	}
	if err == nil {
		err = checkSum(f, hex.EncodeToString(h.Sum(nil)))
	}
	if err != nil {
		return fmt.Errorf("cannot print %q: %w", name, err)
	}
	return nil
}

func (e *env) saveArtifacts(ctx context.Context, c *client.Client, run string, files []record.ManifestFile, dir string) error {
	root, err := newFolder(dir)
	if err != nil {
		return fmt.Errorf("cannot save artifacts: %w", err)
	}
	defer root.Close()
	if err := saveFiles(ctx, c, root, run, files, artifactsFolder); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s in %s\n", count(len(files), "file"), dir)
	return nil
}
