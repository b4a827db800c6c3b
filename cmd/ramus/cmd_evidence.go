package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/evidence"
)

func evidenceCommand() command {
	var link, verified bool
	var save, commit string
	return command{
		name: "evidence", args: "RUN [--json] [--link | --save DIR] [--verified | --commit SHA]",
		short: "show the commands, changes and checks of a run, or save all its files",
		long: `
RUN is a run, or a caller for its latest run. The evidence is made when a run ends
or waits for a person. It has the observations of the server, never the claims of an
agent. "verified" means that after the last change a check ran and passed, and none
failed.

--link prints a link to the evidence as a page. The link opens without a token until it
expires. With --json it prints this link and one to the run's status.json.
--save writes every file (outputs, artifacts, diff, journal, manifest) into a new
folder, and checks each SHA-256.
With --verified the exit status is 1 unless the run is verified. Continuous
integration can use it before it takes over the changes of a run. With --commit it is
also 1 unless SHA is the last commit of the run (examples/evidence-check).`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&e.json, "json", false, "the manifest, as JSON")
			fs.BoolVar(&link, "link", false, "print a signed link to the page")
			fs.BoolVar(&verified, "verified", false, "exit with status 1 unless the run is verified")
			fs.StringVar(&commit, "commit", "", "exit with status 1 unless the run is verified and this is its last `commit`")
			fs.StringVar(&save, "save", "", "save all files into the new `folder`")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			if link {
				l, err := c.EvidenceLink(ctx, args[0])
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(l)
				}
				fmt.Fprintln(e.out, l.URL)
				return nil
			}
			m, err := c.Evidence(ctx, args[0])
			switch {
			case err != nil:
				return err
			case save != "":
				err = e.saveEvidence(ctx, c, m, save)
			case e.json:
				err = e.writeJSON(m)
			default:
				e.showEvidence(m)
			}
			switch {
			case err != nil:
				return err
			case (verified || commit != "") && m.Verdict != record.VerdictVerified:
				return fmt.Errorf("%s is not verified: %s", m.Run, m.Verdict)
			case commit != "" && string(m.Head) != commit:
				return fmt.Errorf("%s says nothing about commit %s: its last one is %s", m.Run, e.oneLine(commit, 100), m.Head)
			}
			return nil
		},
	}
}

// marks are the symbols of results.
var marks = map[bool]string{true: "✓", false: "✗"}

func (e *env) showEvidence(m record.Manifest) {
	paint := map[record.Verdict]string{record.VerdictVerified: green, record.VerdictUnverified: yellow,
		record.VerdictFailed: red}[m.Verdict]
	verdict := string(m.Verdict)
	if paint != "" {
		verdict = e.colour(paint, verdict)
	}
	state := string(m.State)
	if m.Reason != "" {
		state += " (" + string(m.Reason) + ")"
	}
	fmt.Fprintf(e.out, "%s  %s, verification: %s, %s\n", m.Run, state, verdict,
		took(time.Duration(m.DurationMS)*time.Millisecond))
	if m.Error != "" {
		fmt.Fprintf(e.out, "  %s\n", e.oneLine(m.Error, 400))
	}
	section := func(title string, n int) bool {
		if n > 0 {
			fmt.Fprintf(e.out, "\n%s\n", e.colour(dim, title))
		}
		return n > 0
	}
	if section("not verified", len(m.Unverified)) {
		for _, text := range m.Unverified {
			fmt.Fprintf(e.out, "  %s\n", e.oneLine(text, 200))
		}
	}
	if section("commands", len(m.Commands)) {
		for _, c := range m.Commands {
			exit := ""
			if c.Exit != nil {
				exit = fmt.Sprintf("exit %d", *c.Exit)
			}
			duration := took(time.Duration(c.DurationMS) * time.Millisecond)
			if c.Reused != nil {
				duration = "known"
			}
			fmt.Fprintf(e.out, "  %s %-8s %7s  %-16s %s\n", marks[c.OK], exit, duration, e.oneLine(c.Step, 16), e.oneLine(c.Command, 100))
		}
	}
	if section("checks", len(m.Checks)) {
		counts := make(map[string]string)
		for _, t := range m.Tests {
			counts[t.Step] = fmt.Sprintf("%d passed, %d failed, %d skipped", t.Passed, t.Failed, t.Skipped)
		}
		for _, c := range m.Checks {
			words := []string{strings.ReplaceAll(string(c.Result), "_", " ")}
			for _, text := range []string{counts[c.Step], c.Why} {
				if text != "" {
					words = append(words, text)
				}
			}
			if c.Reused != nil {
				words = append(words, knownFrom(c.Reused))
			}
			if c.Result.Ran() && !c.Current {
				words = append(words, "before the last change")
			}
			fmt.Fprintf(e.out, "  %-6s %-10s %s\n", e.oneLine(c.Check, 20), e.oneLine(c.Tool, 20),
				e.oneLine(strings.Join(words, "; "), 200))
		}
	}
	if section("changed files", len(m.Changed)) {
		for _, c := range m.Changed {
			fmt.Fprintf(e.out, "  %s +%d -%d  %s\n", c.Status, max(c.Added, 0), max(c.Deleted, 0), e.oneLine(c.Path, 150))
		}
	}
	if section("files", len(m.Files)) {
		for _, f := range m.Files {
			fmt.Fprintf(e.out, "  %s  %9d  %s\n", f.SHA256[:min(12, len(f.SHA256))], f.Size, e.oneLine(f.Name, 150))
		}
	}
}

// saveEvidence writes all files into a new folder. Their names come from containers. os.Root keeps the files inside the
// folder, and no file replaces another.
func (e *env) saveEvidence(ctx context.Context, c *client.Client, m record.Manifest, dir string) error {
	root, err := newFolder(dir)
	if err != nil {
		return fmt.Errorf("cannot save the evidence: %w", err)
	}
	defer root.Close()
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot save the evidence: %w", err)
	}
	_, err = saveFile(root, "evidence/manifest.json", func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot save the manifest: %w", err)
	}
	if err := saveFiles(ctx, c, root, m.Run, m.Files, ""); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%d files in %s\n", len(m.Files)+1, dir)
	return nil
}

// newFolder makes a folder and opens it.
func newFolder(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// saveFiles saves files of a run's evidence, and compares each with its hash. Their names are those in the manifest
// without prefix.
func saveFiles(ctx context.Context, c *client.Client, root *os.Root, run string, files []record.ManifestFile, prefix string) error {
	for _, f := range files {
		name := evidence.FileName(strings.TrimPrefix(f.Name, prefix))
		sum, err := saveFile(root, name, func(w io.Writer) error { return c.EvidenceFile(ctx, run, f.Name, w) })
		if err == nil {
			err = checkSum(f, sum)
		}
		if err != nil {
			return fmt.Errorf("cannot save %q: %w", f.Name, err)
		}
	}
	return nil
}

// checkSum returns an error if the hash of a file is not that of the manifest.
func checkSum(f record.ManifestFile, sum string) error {
	if sum != f.SHA256 {
		return fmt.Errorf("its SHA-256 is %s, want %s", sum, f.SHA256)
	}
	return nil
}

// saveFile writes a new file and returns its SHA-256.
func saveFile(root *os.Root, name string, write func(io.Writer) error) (sum string, err error) {
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return "", err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = write(io.MultiWriter(f, h))
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// knownFrom names the check whose result was used again.
func knownFrom(r *record.Reused) string {
	return fmt.Sprintf("known from %s, %s, %s", r.Run, r.Step, r.At.Local().Format("2006-01-02 15:04:05"))
}
