package browse

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Folders of a check while it is gathered.
const (
	rawFolder  = "raw"
	keptFolder = "kept"
)

// Bounds of a browser's output, in bytes.
const (
	maxEvidence      = 256 << 20 // of all files
	maxEvidenceFiles = 2000      // files
	maxEvidenceFile  = 64 << 20
	maxEvidenceVideo = 200 << 20
	maxEvidenceIndex = 4 << 20
)

// viewFiles are the files that a view may have, each with the beginning of its content if programs open it by its name.
var viewFiles = map[string]string{
	"screenshot.png": pngMagic,
	"trace.zip":      "PK",
	"network.har":    "",
	"console.jsonl":  "",
	"aria.yml":       "",
	"video.webm":     "\x1a\x45\xdf\xa3",
	"page.pdf":       "%PDF-",
}

const pngMagic = "\x89PNG\r\n\x1a\n"

var stepPicture = pattern.New(`^step-[0-9]{1,4}(-[a-z0-9-]{1,64})?\.png$`)

// viewFile reports whether a view may have a file of that name, and returns how it begins.
func viewFile(name string) (magic string, ok bool) {
	if stepPicture.MatchString(name) {
		return pngMagic, true
	}
	magic, ok = viewFiles[name]
	return magic, ok
}

// unpack unpacks the tar of a check, and reads it to its end. It takes only regular files that the layout knows, the index and those of the
// viewports that were asked for.
func unpack(r io.Reader, dir string, viewports []browser.Viewport) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// With room for headers and the padding of each file.
	in := &io.LimitedReader{R: r, N: maxEvidence + maxEvidenceFiles*1024 + 1<<20}
	tr := tar.NewReader(in)
	var count int
	var total int64
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("it is no whole tar: %w", err)
		}
		if count++; count > maxEvidenceFiles {
			return fmt.Errorf("it has more than %d files", maxEvidenceFiles)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		name := h.Name
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) || path.Clean(name) != name {
			return fmt.Errorf("%.100q is no file that belongs into it", name)
		}
		most := int64(maxEvidenceFile)
		folder, base := path.Split(name)
		if name == "index.json" {
			most = maxEvidenceIndex
		} else if _, ok := viewFile(base); !ok ||
			!slices.ContainsFunc(viewports, func(v browser.Viewport) bool { return v.Name+"/" == folder }) {
			return fmt.Errorf("%.100q is no file that belongs into it", name)
		} else if base == "video.webm" {
			most = maxEvidenceVideo
		}
		if total += h.Size; h.Size > most || total > maxEvidence {
			return fmt.Errorf("%.100q is too large", name)
		}
		if err := unpackFile(root, name, tr); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, in) // the rest after the end of a tar is padding
	if err == nil && in.N == 0 {
		err = fmt.Errorf("it is larger than %d MiB", maxEvidence>>20)
	}
	return err
}

func unpackFile(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// readOutput reads a browser's output into check and the folder of kept files. code is the exit code of the browser's
// program. said is the end of its error output.
func (k *look) readOutput(raw string, code int, said string) error {
	found, err := readIndex(filepath.Join(raw, "index.json"))
	if err != nil {
		if said := strings.TrimSpace(said); said != "" {
			return unverified("the browser could not be used (`ramus doctor` tells what is missing): %s", lastLines(said))
		}
		return unverified("the browser could not be used: it ended with %d, and its result cannot be read: %v", code, err)
	}
	k.check.Browser, k.check.Driver = text.Clip(found.Browser, 100), text.Clip(found.Driver, 100)
	values := make(map[string]string)
	for _, v := range found.Views {
		for i, step := range v.Steps {
			// The browser reports which fields are for passwords. A false report only hides more.
			if step.Secret && i < len(k.spec.Steps) && k.spec.Steps[i].Do == "fill" {
				values[fmt.Sprintf("typed in step %d", i+1)] = k.spec.Steps[i].Value
			}
		}
	}
	k.secrets = k.secrets.With(values)
	k.learn(raw)
	var lacks []string
	for _, vp := range k.spec.Viewports {
		view := browser.View{Viewport: vp, Verdict: browser.Unverified, Reason: "the browser says nothing about it",
			URL: k.spec.URL}
		if i := slices.IndexFunc(found.Views, func(v browser.View) bool { return v.Viewport.Name == vp.Name }); i >= 0 {
			view = boundedView(found.Views[i], 2<<10)
			view.Viewport = vp
		}
		left, err := k.takeView(&view, raw)
		if err != nil {
			return err
		}
		lacks = append(lacks, left...)
		k.check.Views = append(k.check.Views, view)
	}
	k.check.Redacted = true
	k.check.Verdict, k.check.Reason = judge(found, k.check.Views, code)
	if len(lacks) > 0 {
		slices.Sort(lacks)
		k.check.Reason += fmt.Sprintf(" (%s could not be freed of secrets, or is none, and is not kept)",
			strings.Join(lacks[:min(len(lacks), 10)], ", "))
	}
	return nil
}

// judge returns the verdict of a look. It is the browser's if its words, its views and its exit code agree.
func judge(found browser.Check, views []browser.View, code int) (browser.Verdict, string) {
	reason := found.Reason
	if reason == "" {
		reason = "no reason was given"
	}
	bad := slices.IndexFunc(views, func(v browser.View) bool { return v.Verdict != browser.Pass })
	switch {
	case code == browserFailed && found.Verdict == browser.Fail:
		return browser.Fail, reason
	case code == browserPassed && found.Verdict == browser.Pass && bad < 0:
		return browser.Pass, reason
	case code == browserPassed && found.Verdict == browser.Pass:
		return browser.Unverified, fmt.Sprintf("%s was not seen to pass: %s", views[bad].Viewport.Name, views[bad].Reason)
	case found.Verdict == browser.Unverified:
		return browser.Unverified, reason
	}
	return browser.Unverified,
		fmt.Sprintf("the browser contradicts itself: it says %.20s and ended with %d", found.Verdict, code)
}

// readIndex reads a check as a browser wrote it.
func readIndex(name string) (c browser.Check, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return c, errors.New("there is none")
	}
	if err != nil {
		return c, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxEvidenceIndex))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return c, err
	}
	c.Reason = text.Clip(c.Reason, maxSaid)
	return c, nil
}

// Bounds of the lists of a view.
const (
	maxViewErrors  = 20
	maxViewNetwork = 100
	maxViewSteps   = 200
	maxViewKinds   = 20
)

// boundedView cuts the texts of a view to most bytes each, and its lists.
func boundedView(v browser.View, most int) browser.View {
	for _, field := range []*string{&v.Reason, &v.URL, &v.FinalURL, &v.Title} {
		*field = text.Clip(*field, most)
	}
	switch v.Verdict {
	case browser.Pass, browser.Fail, browser.Unverified:
	default:
		v.Verdict, v.Reason = browser.Unverified, "the browser gave no verdict"
	}
	texts := func(list []string) []string {
		list = slices.Clone(list[:min(len(list), maxViewErrors)])
		for i := range list {
			list[i] = text.Clip(list[i], most)
		}
		return list
	}
	v.Console.Errors, v.Console.PageErrors = texts(v.Console.Errors), texts(v.Console.PageErrors)
	counts := make(map[string]int)
	for kind, n := range v.Console.Counts {
		if len(counts) < maxViewKinds && len(kind) <= 40 {
			counts[kind] = n
		}
	}
	v.Console.Counts = counts
	v.Network = slices.Clone(v.Network[:min(len(v.Network), maxViewNetwork)])
	for i := range v.Network {
		n := &v.Network[i]
		n.Method, n.URL, n.Failure, n.Resource = text.Clip(n.Method, 20), text.Clip(n.URL, most),
			text.Clip(n.Failure, most), text.Clip(n.Resource, 40)
	}
	v.Steps = slices.Clone(v.Steps[:min(len(v.Steps), maxViewSteps)])
	for i := range v.Steps {
		s := &v.Steps[i]
		s.Do, s.Target, s.Value, s.In, s.Error = text.Clip(s.Do, 40), text.Clip(s.Target, most),
			text.Clip(s.Value, most), text.Clip(s.In, most), text.Clip(s.Error, most)
	}
	return v
}

// takeView copies a view's files to the kept ones, and names them in the view. It returns the names of those that it could not copy.
func (k *look) takeView(v *browser.View, raw string) (lacks []string, err error) {
	from := filepath.Join(raw, v.Viewport.Name)
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	have := make(map[string]string)
	for _, e := range entries {
		// Only names of the layout were unpacked.
		to := filepath.Join(k.part, keptFolder, v.Viewport.Name, e.Name())
		if err := k.takeFile(filepath.Join(from, e.Name()), to); err != nil {
			k.in.Log.Info("a file of a browser check is not kept", "run", k.step.Claim.Name(), "file", e.Name(), "err", err)
			lacks = append(lacks, path.Join(v.Viewport.Name, e.Name()))
			if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		have[e.Name()] = path.Join(k.dir, v.Viewport.Name, e.Name())
	}
	v.Screenshot, v.Trace, v.HAR, v.Video, v.PDF = have["screenshot.png"], have["trace.zip"], have["network.har"],
		have["video.webm"], have["page.pdf"]
	v.Aria, v.Console.File = have["aria.yml"], have["console.jsonl"]
	for i := range v.Steps {
		v.Steps[i].Screenshot = have[path.Base(v.Steps[i].Screenshot)]
	}
	return lacks, nil
}

// learn finds values in traces and HARs that are credentials by their place there, so that they are taken out of the check's other files and
// texts as well. A file that cannot be read is not kept later.
func (k *look) learn(raw string) {
	values := make(map[string]string)
	for _, v := range k.spec.Viewports {
		for _, name := range []string{"trace.zip", "network.har"} {
			f, err := os.Open(filepath.Join(raw, v.Name, name))
			if err != nil {
				continue
			}
			found, err := browser.Learn(name, f, k.secrets)
			if err := errors.Join(err, f.Close()); err != nil {
				continue
			}
			maps.Copy(values, found)
		}
	}
	k.secrets = k.secrets.With(values)
}

// takeFile copies one file without secrets.
func (k *look) takeFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	magic, _ := viewFile(filepath.Base(to))
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || !bytes.Equal(head, []byte(magic)) {
		return fmt.Errorf("%s is not what its name says", filepath.Base(to))
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = browser.Redact(filepath.Base(to), out, in, k.secrets)
	return errors.Join(err, out.Close())
}
