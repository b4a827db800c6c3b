package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
)

// serveFiles serves SFTP on stdin and stdout. It is `ramus runner sftp WORK`, a child process of the commands' user.
func serveFiles(work string) error {
	t := &tree{roots: map[string]*os.Root{}}
	for _, dir := range []string{work, "/artifacts", "/cache", "/tmp"} {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot serve files: %w", err)
		}
		t.roots[dir] = root
	}
	pipe := struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}
	srv := sftp.NewRequestServer(pipe, sftp.Handlers{FileGet: t, FilePut: t, FileCmd: t, FileList: t},
		sftp.WithStartDirectory(work), sftp.WithRSMaxTxPacket(256<<10))
	if err := srv.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot serve files: %w", err)
	}
	return nil
}

// tree has the folders that SFTP can reach. os.Root prevents leaving each by "..", by absolute symlinks, and by
// symlinks that appear during a look-up.
type tree struct {
	roots map[string]*os.Root
}

// find splits an absolute, clean path into its root and the rest.
func (t *tree) find(p string) (*os.Root, string, error) {
	for dir, root := range t.roots {
		if p == dir {
			return root, ".", nil
		}
		if rest, ok := strings.CutPrefix(p, dir+"/"); ok {
			return root, rest, nil
		}
	}
	return nil, "", fs.ErrPermission
}

// Fileread implements [sftp.FileReader].
func (t *tree) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	return t.open(r.Filepath, os.O_RDONLY)
}

// Filewrite implements [sftp.FileWriter].
func (t *tree) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	return t.OpenFile(r)
}

// OpenFile implements [sftp.OpenFileWriter].
func (t *tree) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	p := r.Pflags()
	flag := os.O_WRONLY
	if p.Read {
		flag = os.O_RDWR
	}
	if p.Creat {
		flag |= os.O_CREATE
	}
	if p.Trunc {
		flag |= os.O_TRUNC
	}
	if p.Excl {
		flag |= os.O_EXCL
	}
	f, err := t.open(r.Filepath, flag)
	if err != nil {
		return nil, err
	}
	if !p.Append {
		return f, nil
	}
	// Writes of SFTP have offsets, which a file opened for appending refuses.
	return &appendFile{f: f}, nil
}

type appendFile struct {
	mu sync.Mutex
	f  *os.File
}

func (a *appendFile) ReadAt(p []byte, off int64) (int, error) { return a.f.ReadAt(p, off) }
func (a *appendFile) Close() error                            { return a.f.Close() }

func (a *appendFile) WriteAt(p []byte, _ int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	end, err := a.f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	return a.f.WriteAt(p, end)
}

// open opens regular files only, because opening a FIFO would block the server until another process opens its other
// end.
func (t *tree) open(name string, flag int) (*os.File, error) {
	root, rest, err := t.find(name)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(rest, flag|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Filecmd implements [sftp.FileCmder].
func (t *tree) Filecmd(r *sftp.Request) error {
	if r.Method == "Symlink" {
		// Filepath is the text of the link, in any bytes, and Target is its path.
		root, rest, err := t.find(r.Target)
		if err != nil {
			return err
		}
		return root.Symlink(r.Filepath, rest)
	}
	root, rest, err := t.find(r.Filepath)
	if err != nil {
		return err
	}
	switch r.Method {
	case "Setstat":
		return setstat(root, rest, r)
	case "Mkdir":
		return root.Mkdir(rest, 0o755)
	case "Rmdir", "Remove":
		info, err := root.Lstat(rest)
		if err != nil {
			return err
		}
		if rest == "." {
			return fs.ErrPermission
		}
		if info.IsDir() != (r.Method == "Rmdir") {
			return fmt.Errorf("cannot %s %s: wrong kind of file", strings.ToLower(r.Method), r.Filepath)
		}
		return root.Remove(rest)
	case "Rename", "Link":
		to, target, err := t.find(r.Target)
		if err != nil {
			return err
		}
		if to != root {
			return fmt.Errorf("cannot %s %s: %s is on another file system", strings.ToLower(r.Method), r.Filepath, r.Target)
		}
		if r.Method == "Link" {
			return root.Link(rest, target)
		}
		// SFTP's plain rename does not replace.
		if _, err := root.Lstat(target); err == nil {
			return fs.ErrExist
		}
		return root.Rename(rest, target)
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename implements [sftp.PosixRenameFileCmder]. It replaces the target.
func (t *tree) PosixRename(r *sftp.Request) error {
	from, name, err := t.find(r.Filepath)
	if err != nil {
		return err
	}
	to, target, err := t.find(r.Target)
	if err != nil {
		return err
	}
	if to != from {
		return fmt.Errorf("cannot rename %s: %s is on another file system", r.Filepath, r.Target)
	}
	return from.Rename(name, target)
}

func setstat(root *os.Root, name string, r *sftp.Request) error {
	flags, attr := r.AttrFlags(), r.Attributes()
	if flags.Size {
		f, err := root.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = f.Truncate(int64(attr.Size))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if flags.Permissions {
		if err := root.Chmod(name, attr.FileMode().Perm()); err != nil {
			return err
		}
	}
	if flags.Acmodtime {
		return root.Chtimes(name, attr.AccessTime(), attr.ModTime())
	}
	return nil
}

// StatVFS implements [sftp.StatVFSFileCmder].
func (t *tree) StatVFS(r *sftp.Request) (*sftp.StatVFS, error) {
	root, rest, err := t.find(r.Filepath)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(rest, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &s); err != nil {
		return nil, err
	}
	return &sftp.StatVFS{Bsize: uint64(s.Bsize), Frsize: uint64(s.Frsize), Blocks: s.Blocks, Bfree: s.Bfree,
		Bavail: s.Bavail, Files: s.Files, Ffree: s.Ffree, Favail: s.Ffree, Namemax: uint64(s.Namelen)}, nil
}

// Filelist implements [sftp.FileLister].
func (t *tree) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Filepath == "/" {
		return t.top(r.Method)
	}
	root, rest, err := t.find(r.Filepath)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case "List":
		d, err := root.OpenFile(rest, os.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		return &listing{dir: d}, nil
	case "Stat":
		info, err := root.Stat(rest)
		return one{info}, err
	}
	return nil, sftp.ErrSSHFxOpUnsupported
}

// Lstat implements [sftp.LstatFileLister].
func (t *tree) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Filepath == "/" {
		return t.top("Stat")
	}
	root, rest, err := t.find(r.Filepath)
	if err != nil {
		return nil, err
	}
	info, err := root.Lstat(rest)
	return one{info}, err
}

// Readlink implements [sftp.ReadlinkFileLister].
func (t *tree) Readlink(name string) (string, error) {
	root, rest, err := t.find(name)
	if err != nil {
		return "", err
	}
	return root.Readlink(rest)
}

// top returns the folder above the roots, which shows nothing else.
func (t *tree) top(method string) (sftp.ListerAt, error) {
	var all one
	for dir, root := range t.roots {
		info, err := root.Stat(".")
		if err != nil {
			return nil, err
		}
		all = append(all, named{info, path.Base(dir)})
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return strings.Compare(a.Name(), b.Name()) })
	if method == "Stat" {
		return one{named{all[0], "/"}}, nil
	}
	return all, nil
}

type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

// one is a complete list.
type one []fs.FileInfo

func (o one) ListAt(to []fs.FileInfo, off int64) (int, error) {
	if off >= int64(len(o)) {
		return 0, io.EOF
	}
	n := copy(to, o[off:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// listing reads a folder in pieces, because it may have a million entries.
type listing struct {
	mu  sync.Mutex
	dir *os.File
}

func (l *listing) ListAt(to []fs.FileInfo, _ int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos, err := l.dir.Readdir(len(to))
	n := copy(to, infos)
	return n, err
}

func (l *listing) Close() error { return l.dir.Close() }
