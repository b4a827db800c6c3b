// Package redacttest searches the files that a server left for the value of a
// secret: every file of a folder, every object of every Git repository in it,
// and any text. It knows the forms of a value by itself, so that it finds what
// package redact forgets.
package redacttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Forms are the ways to write a value that must not be found anywhere.
func Forms(value string) map[string]string {
	forms := map[string]string{
		"plain":        value,
		"hex":          hex.EncodeToString([]byte(value)),
		"HEX":          strings.ToUpper(hex.EncodeToString([]byte(value))),
		"form":         url.QueryEscape(value),
		"path":         url.PathEscape(value),
		"lower escape": strings.ToLower(url.QueryEscape(value)),
		"html":         html.EscapeString(value),
		"go":           strings.Trim(strconv.Quote(value), `"`),
	}
	if b, err := json.Marshal(value); err == nil {
		forms["json"] = strings.Trim(string(b), `"`)
	}
	var percent strings.Builder
	for _, c := range []byte(value) {
		fmt.Fprintf(&percent, "%%%02x", c)
	}
	forms["percent"], forms["PERCENT"] = percent.String(), strings.ToUpper(percent.String())
	for offset := range 3 {
		// The part that does not depend on the text before and after.
		for name, e := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			one := e.EncodeToString([]byte("AAA"[:offset] + value + "AAA"))
			two := e.EncodeToString([]byte("\xff\xff\xff"[:offset] + value + "\xff\xff\xff"))
			same := ""
			for i := range one {
				if one[i] == two[i] {
					same += one[i : i+1]
				} else if same != "" {
					break
				}
			}
			forms[fmt.Sprint(name, " at ", offset)] = same
		}
	}
	return forms
}

// Text lists the forms of a value that a text holds, also where an encoding is broken into lines.
func Text(text []byte, value string) (found []string) {
	for _, breaks := range [][]string{nil, {"\r", "\n"}, {`\r`, `\n`}} {
		for _, b := range breaks {
			text = bytes.ReplaceAll(text, []byte(b), nil)
		}
		for name, form := range Forms(value) {
			if !slices.Contains(found, name) && bytes.Contains(text, []byte(form)) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found
}

// Folder lists where below a folder a value is: in the names and contents of
// files, in Git objects whether anything reaches them or not, and in refs. skip
// names files and folders, by their paths below the folder, that are left out. What goes
// away meanwhile, as a server at work has it, has no value any more.
func Folder(ctx context.Context, dir, value string, skip ...string) (hits []string, err error) {
	gone := func(path string, err error) bool { return path != dir && errors.Is(err, fs.ErrNotExist) }
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if gone(path, err) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		for _, s := range skip {
			if name == s && entry.IsDir() {
				return fs.SkipDir
			} else if name == s {
				return nil
			}
		}
		for _, form := range Text([]byte(name), value) {
			hits = append(hits, "the name "+name+" ("+form+")")
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "objects")); err == nil {
				found, err := objects(ctx, path, value)
				for _, hit := range found {
					hits = append(hits, name+": "+hit)
				}
				return err
			}
			return nil
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if gone(path, err) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, form := range Text([]byte(target), value) {
				hits = append(hits, "the link "+name+" ("+form+")")
			}
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if gone(path, err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, form := range Text(content, value) {
			hits = append(hits, name+" ("+form+")")
		}
		return nil
	})
	return hits, err
}

// objects searches all objects of a repository.
func objects(ctx context.Context, repo, value string) (hits []string, err error) {
	cmd := exec.CommandContext(ctx, "git", "--git-dir", repo, "cat-file", "--batch-all-objects", "--batch", "--unordered")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot read the objects of %s: %w", repo, err)
	}
	r := bufio.NewReader(out)
	for err == nil {
		var head string
		if head, err = r.ReadString('\n'); err != nil {
			break
		}
		if strings.HasSuffix(head, " missing\n") {
			continue // it has gone since git listed it
		}
		var id, kind string
		var size int64
		if _, err = fmt.Sscanf(head, "%s %s %d\n", &id, &kind, &size); err != nil {
			break
		}
		content := make([]byte, size+1)
		if _, err = io.ReadFull(r, content); err != nil {
			break
		}
		for _, form := range Text(content, value) {
			hits = append(hits, kind+" "+id+" ("+form+")")
		}
	}
	if err == io.EOF {
		err = nil
	}
	_, _ = io.Copy(io.Discard, r) // so that git can end
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("%w: %s", werr, stderr.String())
	}
	if err != nil {
		return hits, fmt.Errorf("cannot read the objects of %s: %w", repo, err)
	}
	return hits, nil
}
