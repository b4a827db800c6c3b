package browse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Check does one check. The work tree is committed first, so that the evidence names a commit. Checks that serve their page in one container
// take turns, since they would take each other's ports. timeout bounds the installation of the page's dependencies.
func (in *Inspector) Check(ctx context.Context, step Step, spec browser.Spec, timeout time.Duration) (browser.Check, error) {
	file := spec.File
	spec, err := spec.Complete()
	if err != nil {
		return browser.Check{}, fmt.Errorf("%w: %w", tasks.ErrParams, err)
	}
	if spec.Dir != "" {
		if spec.Dir, err = tasks.CleanPath(spec.Dir); err != nil {
			return browser.Check{}, fmt.Errorf("%w: dir: %w", tasks.ErrParams, err)
		}
	}
	check, err := in.check(ctx, step, file, spec, timeout)
	if err != nil {
		return browser.Check{}, fmt.Errorf("cannot check %s in a browser: %w", spec.Name, err)
	}
	in.showPictures(ctx, step, check)
	return check, nil
}

func (in *Inspector) check(ctx context.Context, step Step, file string, spec browser.Spec, timeout time.Duration) (c browser.Check, err error) {
	begun := in.Now()
	commit, tree, err := step.Commit(ctx, "browser check "+spec.Name+": the work so far")
	if err != nil {
		return c, err
	}
	number, place, err := step.Run.open(spec)
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(place.part)
	k := &look{in: in, step: step, spec: spec, timeout: timeout, part: place.part, dir: place.name,
		secrets: in.Secrets.With(Typed(spec))}
	k.check = browser.Check{
		Name:    spec.Name,
		Spec:    file,
		Dir:     place.name,
		Commit:  string(commit),
		Tree:    string(tree),
		Branch:  step.Tree.Caller.Branch(),
		Step:    step.ID,
		Started: begun.UTC(),
		Views:   []browser.View{},
		Images:  []browser.Image{in.image(step)},
	}

	err = k.run(ctx)
	if err == nil && spec.Compare != nil {
		err = k.compare(ctx, number)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return c, err
	}
	k.check.DurationMS = in.Now().Sub(begun).Milliseconds()
	if c, err = k.keep(place); err == nil {
		err = step.Run.add(step.ID, c)
	}
	if err != nil {
		return c, fmt.Errorf("cannot keep its evidence: %w", err)
	}
	return c, nil
}

// image returns the image of the step's container. Its name is the engine's if that has no images.
func (in *Inspector) image(s Step) browser.Image {
	return browser.Image{Role: "task", Name: cmp.Or(s.Image, in.Fleet.Engine.Name())}
}

// Typed returns the secret values that a spec's steps type, by a description of the value.
func Typed(spec browser.Spec) map[string]string {
	values := make(map[string]string)
	for i, step := range spec.Steps {
		if step.Secret {
			values["typed in step "+strconv.Itoa(i+1)] = step.Value
		}
	}
	return values
}

// keep moves a check's files to the run's artifacts, and completes the check.
func (k *look) keep(p place) (browser.Check, error) {
	kept := filepath.Join(p.part, keptFolder)
	c := k.check
	var err error
	if c.Files, err = listFiles(kept, p.name); err != nil {
		return c, err
	}
	c = boundedCheck(redact.Clean(k.secrets, c))
	if err := errors.Join(os.RemoveAll(p.final), os.Rename(kept, p.final)); err != nil {
		return c, err
	}
	return c, nil
}

// listFiles describes the files below dir, by names that begin with as.
func listFiles(dir, as string) (files []browser.File, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f, err := store.Describe(path.Join(as, filepath.ToSlash(rel)), name)
		files = append(files, browser.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256, Type: f.Type})
		return err
	})
	return files, err
}

// showWithin bounds the copying of pictures into a container.
const showWithin = 30 * time.Second

// showPictures copies a check's pictures and the index to the container's /artifacts, for an agent to look at. They are copies of the kept
// ones, so an error is only logged.
func (in *Inspector) showPictures(ctx context.Context, s Step, c browser.Check) {
	ctx, cancel := context.WithTimeout(ctx, showWithin)
	defer cancel()
	names := []string{"index.json"}
	for _, f := range c.Files {
		if path.Ext(f.Name) == ".png" {
			names = append(names, f.Name)
		}
	}
	if err := copyIn(ctx, s.Host, s.Run.folder(), names); err != nil && ctx.Err() == nil {
		in.Log.Info("the pictures of a browser check are not in its container", "run", s.Claim.Name(), "err", err)
	}
}

// copyIn copies files below from to the folder of the same name below a container's /artifacts.
func copyIn(ctx context.Context, h *containers.Host, from string, names []string) error {
	files, err := h.Files(ctx)
	if err != nil {
		return err
	}
	defer files.Close()
	// A call that hangs in a container that is hostile, or that is going away, ends with the context.
	defer context.AfterFunc(ctx, func() { files.Close() })()
	for _, name := range names {
		to := path.Join(containers.ArtifactsDir, record.BrowserFolder, name)
		if err := files.MkdirAll(path.Dir(to)); err != nil {
			return err
		}
		in, err := os.Open(filepath.Join(from, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		out, err := files.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		if err == nil {
			_, err = out.ReadFrom(in)
			err = errors.Join(err, out.Close())
		}
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}
