package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
)

// Times of a transfer to or from a container.
const (
	PlaceWithin = 2 * time.Minute
	tidyWithin  = 10 * time.Second // outlives a transfer that was cancelled, because its files would be committed
)

// temporary begins the name of the folder of files that are not complete. It is on the file system of the work tree,
// so that a rename suffices.
const temporary = ".ramus-upload-"

// logs is the folder of the work tree that has the temporary one. Git makes it when it needs it, and nothing below it decides a
// commit.
const logs = ".git/logs"

// Container is where an upload is placed.
type Container struct {
	// Open opens the files of the container.
	Open func(ctx context.Context) (*sftp.Client, error)
	// Root is the work tree there.
	Root string
	// Names returns the names in a folder of the branch. A file that the branch has is there, also if the container
	// lacks it. Names of another case are mistakes. Nil means that neither is checked.
	Names func(ctx context.Context, folder string) ([]string, error)
	// Pushed reports whether the branch has a change of a file, or of a folder above it, that the container does not
	// have. Nil means that it has all of them.
	Pushed func(ctx context.Context, name string) (bool, error)
	// Allow returns why no commit may have a file. Nil means that every commit may.
	Allow func(name string, size int64) error
}

// Place writes the files to a container. All of them are there if the error is nil, and none otherwise, unless the
// container or the server was lost while they got their names. A connection that is lost is made again to take them
// back. It returns a [*Refused] for files that cannot be where they are wanted. The caller keeps others from committing
// until it has called a method of the result.
func (u *Upload) Place(ctx context.Context, to Container) (*Placed, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	files, err := to.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	p := &placing{u: u, to: to, files: files, token: strings.ToLower(rand.Text()[:10]),
		folders: map[string]folderState{}, names: map[string][]string{}}
	if err := p.check(ctx); err != nil {
		return nil, p.why(ctx, err)
	}
	if err := p.write(ctx); err != nil {
		return nil, errors.Join(p.why(ctx, err), p.tidy(ctx, true))
	}
	return &Placed{p}, nil
}

// Placed is an upload whose files are in a container. Either Keep or Undo must be called, once.
type Placed struct{ p *placing }

// Keep removes the copies of replaced files. It may be called after ctx has ended.
func (d *Placed) Keep(ctx context.Context) error { return d.p.tidy(ctx, false) }

// Undo removes the files and the folders that were made for them, and restores the replaced files. It may be called
// after ctx has ended.
func (d *Placed) Undo(ctx context.Context) error { return d.p.tidy(ctx, true) }

// placing is the work of [Upload.Place].
type placing struct {
	u       *Upload
	to      Container
	files   *sftp.Client
	token   string
	folders map[string]folderState // of the work tree, by path
	names   map[string][]string    // of folders of the branch, by path
	modes   map[string]fs.FileMode // of files that are replaced
	made    []string               // folders that were not there, the outer first
	staging string                 // the folder of files that are not complete
	left    []string               // files in it
	begun   int                    // files that were to get their names, from the first on
	placed  int                    // those of them that have them; the last one of begun may have its name too
}

// folderState is whether a folder exists. A folder with a mistake has why.
type folderState struct {
	exists bool
	why    string
}

func (p *placing) at(name string) string { return path.Join(p.to.Root, name) }

// temp returns the path of the i-th file while it is not complete.
func (p *placing) temp(i int) string { return path.Join(p.staging, strconv.Itoa(i)) }

// old returns the path of the file that the i-th file replaces, until all files are placed.
func (p *placing) old(i int) string { return p.temp(i) + "-old" }

// check looks at the places of all files.
func (p *placing) check(ctx context.Context) error {
	r := &p.u.refused
	p.modes = map[string]fs.FileMode{}
	for i, name := range p.u.Paths() {
		if p.to.Allow != nil {
			if err := p.to.Allow(name, p.u.files[i].size); err != nil {
				r.add(gitd.ErrInvalid, name, err.Error())
				continue
			}
		}
		if err := p.checkFile(ctx, r, name); err != nil {
			return err
		}
	}
	if err := r.err(); err != nil {
		return err
	}
	return p.room()
}

// checkFile looks at the place of one file, and adds its mistake to r.
func (p *placing) checkFile(ctx context.Context, r *Refused, name string) error {
	dir, err := p.folder(ctx, parent(name))
	if err != nil {
		return err
	}
	if dir.why != "" {
		r.add(gitd.ErrInvalid, name, dir.why)
		return nil
	}
	if p.to.Pushed != nil {
		if pushed, err := p.to.Pushed(ctx, name); err != nil {
			return err
		} else if pushed {
			r.add(gitd.ErrConflict, name,
				"somebody pushed a change of it, which the container gets with the next command")
			return nil
		}
	}
	other, err := p.like(ctx, name)
	if err != nil {
		return err
	}
	info, err := p.lstat(dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && other != "" && other != path.Base(name):
		r.add(gitd.ErrExists, name, fmt.Sprintf("%.200q is there, which some file systems take for the same", other))
	case errors.Is(err, fs.ErrNotExist) && other != "" && !p.u.Replace:
		r.add(gitd.ErrExists, name, "the branch has such a file; allow its replacement, or choose another folder")
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir():
		r.add(gitd.ErrInvalid, name, "a folder has this name")
	case !info.Mode().IsRegular():
		r.add(gitd.ErrInvalid, name, "a link or a special file has this name")
	case !p.u.Replace:
		r.add(gitd.ErrExists, name, "there is such a file; allow its replacement, or choose another folder")
	default:
		p.modes[name] = info.Mode().Perm()
	}
	return nil
}

// lstat returns the state of a file in a folder. A folder that does not exist has none.
func (p *placing) lstat(dir folderState, name string) (fs.FileInfo, error) {
	if !dir.exists {
		return nil, fs.ErrNotExist
	}
	return p.files.Lstat(p.at(name))
}

// parent returns the folder of a path. That of a file at the top is "".
func parent(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// folder returns the state of a folder of the work tree. A link is none, because it may lead out of the folder that
// the person named.
func (p *placing) folder(ctx context.Context, dir string) (folderState, error) {
	if dir == "" {
		return folderState{exists: true}, nil
	}
	if s, ok := p.folders[dir]; ok {
		return s, nil
	}
	s, err := p.folder(ctx, parent(dir))
	if err != nil {
		return s, err
	}
	if s.why == "" && s.exists {
		info, err := p.files.Lstat(p.at(dir))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			s.exists = false
			other, err := p.like(ctx, dir)
			if err != nil {
				return s, err
			}
			if other != "" && other != path.Base(dir) {
				s.why = fmt.Sprintf("%.200q is there, which some file systems take for the same folder", other)
			}
		case err != nil:
			return s, err
		case info.Mode()&fs.ModeSymlink != 0:
			s.why = fmt.Sprintf("%.200q is a link", dir)
		case !info.IsDir():
			s.why = fmt.Sprintf("%.200q is a file", dir)
		}
	}
	p.folders[dir] = s
	return s, nil
}

// like returns the name in the branch that equals that of a path, or differs from it in case alone. It returns "" if
// there is none.
func (p *placing) like(ctx context.Context, name string) (string, error) {
	if p.to.Names == nil {
		return "", nil
	}
	dir := parent(name)
	names, ok := p.names[dir]
	if !ok {
		var err error
		if names, err = p.to.Names(ctx, dir); err != nil {
			return "", err
		}
		p.names[dir] = names
	}
	base := path.Base(name)
	if slices.Contains(names, base) {
		return base, nil
	}
	key := fold(base)
	for _, n := range names {
		if fold(n) == key {
			return n, nil
		}
	}
	return "", nil
}

// room returns an error if the container has not enough room. A container that does not say so has.
func (p *placing) room() error {
	disk, err := p.files.StatVFS(p.to.Root)
	if err != nil {
		return nil
	}
	if free := disk.Bavail * max(disk.Frsize, 1); free < uint64(p.u.total) {
		return fmt.Errorf("the container has room for %d bytes, and the files have %d: %w", free, p.u.total,
			syscall.ENOSPC)
	}
	return nil
}

// write writes all files, and names them when all are complete.
func (p *placing) write(ctx context.Context) error {
	if err := p.stage(); err != nil {
		return err
	}
	names := p.u.Paths()
	for i, f := range p.u.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.mkdir(parent(names[i])); err != nil {
			return fmt.Errorf("cannot make the folder of %.200q: %w", names[i], err)
		}
		if err := p.writeFile(p.temp(i), f, p.modes[names[i]]); err != nil {
			return fmt.Errorf("cannot write %.200q: %w", names[i], err)
		}
	}
	for i, name := range names {
		p.begun = i + 1
		if _, replaces := p.modes[name]; replaces {
			p.left = append(p.left, p.old(i))
			if err := p.files.Link(p.at(name), p.at(p.old(i))); err != nil {
				return fmt.Errorf("cannot replace %.200q: %w", name, err)
			}
		}
		if err := p.name(i, name); err != nil {
			return fmt.Errorf("cannot write %.200q: %w", name, err)
		}
		p.placed = i + 1
	}
	return nil
}

// name gives the i-th file its name. A file that appeared there since [placing.check] stays, and is an error.
func (p *placing) name(i int, name string) error {
	if _, replaces := p.modes[name]; replaces {
		return p.files.PosixRename(p.at(p.temp(i)), p.at(name))
	}
	return p.files.Link(p.at(p.temp(i)), p.at(name)) // a link never replaces; tidy removes the other name
}

// stage makes the folder of files that are not complete. It is in the work tree itself only if that has no .git folder, because a
// commit of somebody else would take it.
func (p *placing) stage() error {
	dir := ""
	if p.isFolder(path.Dir(logs)) {
		dir = logs
		err := p.files.Mkdir(p.at(logs))
		if err != nil && !p.isFolder(logs) {
			return fmt.Errorf("cannot make the folder %s for the files: %w", logs, err)
		}
	}
	p.staging = path.Join(dir, temporary+p.token)
	if err := p.files.Mkdir(p.at(p.staging)); err != nil {
		return fmt.Errorf("cannot make a folder for the files: %w", err)
	}
	return nil
}

// isFolder reports whether a path of the work tree is a folder, and no part of it a link.
func (p *placing) isFolder(dir string) bool {
	for ; dir != ""; dir = parent(dir) {
		if info, err := p.files.Lstat(p.at(dir)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// mkdir makes a folder that is not there, and those above it.
func (p *placing) mkdir(dir string) error {
	if dir == "" || p.folders[dir].exists {
		return nil
	}
	if err := p.mkdir(parent(dir)); err != nil {
		return err
	}
	if err := p.files.Mkdir(p.at(dir)); err != nil {
		return err
	}
	p.made = append(p.made, dir)
	p.folders[dir] = folderState{exists: true}
	return nil
}

func (p *placing) writeFile(name string, from spooled, mode fs.FileMode) error {
	f, err := p.files.OpenFile(p.at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	p.left = append(p.left, name)
	_, err = f.ReadFrom(io.NewSectionReader(from.content, 0, from.size))
	if mode != 0 {
		err = errors.Join(err, f.Chmod(mode))
	}
	return errors.Join(err, f.Close())
}

// tidy removes the files that are not complete. After a failure it also takes back those that have their names, and
// the new folders.
func (p *placing) tidy(ctx context.Context, failed bool) error {
	if p.staging == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyWithin)
	defer cancel()
	files, err := p.to.Open(ctx)
	if errors.Is(err, containers.ErrGone) {
		return nil // with these files
	}
	if err != nil {
		return fmt.Errorf("cannot remove the temporary files of the upload: %w", err)
	}
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	if failed {
		err = p.takeBack(files)
	}
	for _, name := range p.left {
		if e := files.Remove(p.at(name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("cannot remove %q: %w", name, e))
		}
	}
	if failed {
		for _, dir := range slices.Backward(p.made) {
			_ = files.RemoveDirectory(p.at(dir)) // somebody may use it already
		}
	}
	if e := files.RemoveDirectory(p.at(p.staging)); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// takeBack removes the placed files, and restores the files that they replaced. The answer to the last one may have been lost.
func (p *placing) takeBack(files *sftp.Client) (err error) {
	for i, name := range p.u.Paths()[:p.begun] {
		if i >= p.placed && !p.isPlaced(files, i, name) {
			continue
		}
		take := func() error { return files.Remove(p.at(name)) }
		if _, replaces := p.modes[name]; replaces {
			take = func() error { return files.PosixRename(p.at(p.old(i)), p.at(name)) }
		}
		if e := take(); e != nil {
			err = errors.Join(err, fmt.Errorf("cannot take %.200q back: %w", name, e))
		}
	}
	return err
}

// isPlaced reports whether the i-th file has its name, although no answer said so.
func (p *placing) isPlaced(files *sftp.Client, i int, name string) bool {
	temp := p.at(p.temp(i))
	if _, replaces := p.modes[name]; replaces {
		_, err := files.Lstat(temp) // it is renamed
		return errors.Is(err, fs.ErrNotExist)
	}
	// It is linked. A link of the same file shares its time, which is one that no file of somebody else has.
	unusual := time.Unix(271_828_183, 0)
	if err := files.Chtimes(temp, unusual, unusual); err != nil {
		return false
	}
	info, err := files.Lstat(p.at(name))
	return err == nil && info.Mode().IsRegular() && info.ModTime().Equal(unusual)
}

// why returns the cause of the end of ctx if that is why the connection ended.
func (p *placing) why(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
	}
	return answered(p.u.Folder, err)
}
