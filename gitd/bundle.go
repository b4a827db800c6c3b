package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// A bundle is a file with refs and one pack. git clone opens it like a repository. Those of ramus have no
// prerequisites, so that the file alone is enough.

const (
	bundleSignature = "# v2 git bundle\n"
	// MaxBundleRefs bounds the refs of a bundle.
	MaxBundleRefs = 20_000
)

// Bundle describes a bundle that is to be written.
type Bundle struct {
	// Head is the branch ("refs/heads/…") that a clone checks out. It is one of Refs.
	Head string
	// Refs are the refs in their order. Their objects are in the repository.
	Refs []Ref
	// Extra are commits that only the bundle has, by the names of their refs. They have neither From nor Parents, and
	// their files no Blob.
	Extra map[string]NewCommit
	// Tags are further names of the commits of Extra.
	Tags map[string]string
}

// WriteBundle writes a bundle to w. Nothing in the repository changes. The first byte is written when all objects are
// known to exist.
func (r *Repo) WriteBundle(ctx context.Context, b Bundle, w io.Writer) error {
	if err := r.writeBundle(ctx, b, w); err != nil {
		return fmt.Errorf("cannot bundle refs of %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) writeBundle(ctx context.Context, b Bundle, w io.Writer) error {
	if err := r.needSHA1(ctx); err != nil {
		return err
	}
	s := r.server
	dir, err := s.makeNursling(ctx)
	if err != nil {
		return err
	}
	defer s.dropNursling(dir)
	refs := slices.Clone(b.Refs)
	if len(b.Extra) > 0 {
		own := s.openNursling(dir)
		defer own.release()
		made := make(map[string]Hash)
		for name, c := range b.Extra {
			h, err := own.WriteCommit(ctx, c)
			if err != nil {
				return err
			}
			made[name] = h
			refs = append(refs, Ref{Name: name, Hash: h})
		}
		for name, of := range b.Tags {
			refs = append(refs, Ref{Name: name, Hash: made[of]})
		}
	}
	if len(refs) > MaxBundleRefs {
		return fmt.Errorf("%d refs are more than %d: %w", len(refs), MaxBundleRefs, ErrTooLarge)
	}
	head := slices.IndexFunc(refs, func(ref Ref) bool { return ref.Name == b.Head })
	if head < 0 {
		return fmt.Errorf("there is no %s to check out: %w", b.Head, ErrNotFound)
	}
	header, wants := bytes.NewBufferString(bundleSignature), new(strings.Builder)
	for _, ref := range append([]Ref{{Name: "HEAD", Hash: refs[head].Hash}}, refs...) {
		fmt.Fprintf(header, "%s %s\n", ref.Hash, ref.Name)
		fmt.Fprintln(wants, ref.Hash)
	}
	header.WriteByte('\n')

	out := &lateWriter{w: w, before: header.Bytes()}
	a := access{name: r.name, dir: dir, client: "bundle"}
	return s.serveChild(ctx, a, gitcmd.Command{
		Repo: dir, Args: []string{"pack-objects", "--stdout", "--revs", "--delta-base-offset", "--quiet"},
		Env: alternate(filepath.Join(r.dir, "objects")), In: struct{ io.Reader }{strings.NewReader(wants.String())},
	}, out, copyAnswer)
}

// lateWriter writes before in front of the first byte.
type lateWriter struct {
	w      io.Writer
	before []byte
}

func (l *lateWriter) Write(p []byte) (int, error) {
	if l.before != nil {
		if _, err := l.w.Write(l.before); err != nil {
			return 0, err
		}
		l.before = nil
	}
	return l.w.Write(p)
}

// alternate returns the environment of a git that also sees the objects of a folder.
func alternate(objects string) []string {
	return []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strconv.Quote(objects)}
}

// makeNursling makes an empty repository in the scratch folder.
func (s *Server) makeNursling(ctx context.Context) (dir string, err error) {
	nursery, err := s.makeScratch()
	if err == nil {
		dir, err = os.MkdirTemp(nursery, "bundle-*.git")
	}
	if err != nil {
		return "", err
	}
	err = s.git.Run(ctx, gitcmd.Command{Config: []string{"core.fsync=none"},
		Args: []string{"init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--object-format=sha1", "--", dir}})
	if err != nil {
		s.dropNursling(dir)
	}
	return dir, err
}

func (s *Server) openNursling(dir string) *Repo {
	r := &Repo{server: s, name: "a bundle", dir: dir}
	r.refs.init(r)
	r.openView()
	r.objects.Dir, r.objects.Git, r.objects.Packs.Dir = dir, &s.git, filepath.Join(dir, pack.Folder)
	return r
}

func (s *Server) dropNursling(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		s.log().Warn("cannot remove the objects of a bundle", "dir", dir, "err", err)
	}
}

// ParseBundle reads the header of a bundle, up to its pack. Returns [ErrInvalid] if the bundle has prerequisites or
// another version, two refs of one name, or names that git does not accept.
func ParseBundle(in *bufio.Reader) (refs []Ref, err error) {
	line, err := bundleLine(in)
	if err != nil || line != bundleSignature {
		return nil, object.Refuse(ErrInvalid, "it is no git bundle of version 2")
	}
	names := make(map[string]bool)
	for {
		line, err := bundleLine(in)
		if err != nil {
			return nil, err
		}
		if line == "\n" {
			return refs, nil
		}
		if strings.HasPrefix(line, "-") {
			return nil, object.Refuse(ErrInvalid, "the bundle is not complete: it needs commits of another repository")
		}
		hash, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || len(hash) != 2*len(pack.ObjectName{}) || CheckHash(Hash(hash)) != nil ||
			name != "HEAD" && CheckRef(name) != nil || names[name] {
			return nil, object.Refuse(ErrInvalid, "the bundle has the line %.200q, which is no ref", line)
		}
		if len(refs) == MaxBundleRefs {
			return nil, object.Refuse(ErrTooLarge, "the bundle has more than %d refs", MaxBundleRefs)
		}
		names[name] = true
		refs = append(refs, Ref{Name: name, Hash: Hash(hash)})
	}
}

// bundleLine reads a line of a header.
func bundleLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", object.Refuse(ErrInvalid, "a line of the bundle is too long")
	case errors.Is(err, io.EOF):
		return "", object.Refuse(ErrInvalid, "the bundle ends in its header")
	}
	return string(line), err
}

// Received is a bundle of somebody, in a repository of its own that nobody else sees. Its objects were checked as
// those of a push are.
type Received struct {
	// Repo reads its objects. It has no refs.
	Repo *Repo
	Refs []Ref
}

// Close removes the objects.
func (b *Received) Close() {
	b.Repo.release()
	b.Repo.server.dropNursling(b.Repo.dir)
}

// ReceiveBundle reads a bundle that nobody vouches for. It has the limits of a push. The caller closes the
// result.
func (s *Server) ReceiveBundle(ctx context.Context, in io.Reader) (*Received, error) {
	b, err := s.receiveBundle(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("cannot read the bundle: %w", gitcmd.ExplainFullDisk(err, s.Root))
	}
	return b, nil
}

func (s *Server) receiveBundle(ctx context.Context, in io.Reader) (_ *Received, err error) {
	dir, err := s.makeNursling(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.dropNursling(dir)
		}
	}()
	buffered := bufio.NewReaderSize(in, 4<<10)
	refs, err := ParseBundle(buffered)
	if err != nil {
		return nil, err
	}
	store := &pack.Spool{Dir: filepath.Join(dir, "objects")}
	defer store.Close()
	input := pushInput{tap: pack.NewTap(buffered, store, 0), ended: func() {}}
	request := protocol.PushRequest{HashLen: len(pack.ObjectName{})}
	for _, ref := range refs {
		request.Commands = append(request.Commands, protocol.Command{Ref: ref.Name, New: string(ref.Hash)})
	}
	stats, err := input.scanPack(request, s.limits)
	if err == nil {
		err = input.tap.Flush()
	}
	if err != nil {
		return nil, err
	}
	release, err := s.memory.acquire(ctx, stats.Memory())
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := store.Reader()
	if err != nil {
		return nil, err
	}
	if err := s.checkBundle(ctx, dir, request, body); err != nil {
		return nil, err
	}
	return &Received{Repo: s.openNursling(dir), Refs: refs}, nil
}

// checkBundle has git check the objects of a bundle, by the rules of an import, and searches them for secrets.
func (s *Server) checkBundle(ctx context.Context, dir string, p protocol.PushRequest, body io.Reader) error {
	a := access{name: "a bundle", dir: dir, client: "bundle"}
	objects := filepath.Join(dir, "objects")
	tips := new(strings.Builder)
	for _, c := range p.Commands {
		fmt.Fprintln(tips, c.New)
	}
	for _, c := range []gitcmd.Command{{
		Args: []string{"index-pack", "--stdin",
			"--strict=" + strings.Join(toleratedFaults, "=ignore,") + "=ignore"},
		Config: append(slices.Clone(pushConfig), "pack.writeReverseIndex=false"), In: struct{ io.Reader }{body},
	}, {
		Args: []string{"rev-list", "--objects", "--quiet", "--stdin"},
		In:   struct{ io.Reader }{strings.NewReader(tips.String())},
	}} {
		c.Repo = dir
		if err := s.serveChild(ctx, a, c, io.Discard, copyAnswer); err != nil {
			if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
				return fmt.Errorf("its objects are damaged or not complete: %w: %w", err, ErrInvalid)
			}
			return err
		}
	}
	if s.Secrets.Empty() {
		return nil
	}
	scan := &secretScan{s: s, a: a, p: p}
	return scan.eachPushed(ctx, objects, func(id Hash, kind string, r io.Reader) error {
		names, err := s.Secrets.Find(r)
		if err == nil && len(names) > 0 {
			err = object.Refuse(ErrDenied, "it holds the secret %s of this server, in the %s %s", names[0], kind, id)
		}
		return err
	})
}

// Adopt takes all objects of a bundle into the repository. They become durable with the next change of a ref.
func (r *Repo) Adopt(ctx context.Context, b *Received) error {
	if err := r.adopt(ctx, b); err != nil {
		return fmt.Errorf("cannot take a bundle into %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) adopt(ctx context.Context, b *Received) error {
	if err := r.needSHA1(ctx); err != nil {
		return err
	}
	r.pushing.RLock()
	defer r.pushing.RUnlock()
	return r.adoptPacks(b)
}

func (r *Repo) adoptPacks(b *Received) error {
	packs, err := filepath.Glob(filepath.Join(b.Repo.dir, pack.Folder, "pack-*.pack"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(r.dir, pack.Folder), 0o777); err != nil {
		return err
	}
	for _, name := range packs {
		if err := r.adoptPack(strings.TrimSuffix(name, ".pack")); err != nil {
			return err
		}
	}
	return nil
}

// CreateFrom makes a repository with the objects of a bundle. Its base is a branch at a commit of these. There is never
// half a repository.
func (s *Server) CreateFrom(ctx context.Context, name string, b *Received, branch string, base Hash) (*Repo, error) {
	err := CheckRef("refs/heads/" + branch)
	var r *Repo
	if err == nil {
		r, err = s.createWith(ctx, name, func(dir string) error {
			made := s.openNursling(dir)
			defer made.release()
			if err := made.adoptPacks(b); err != nil {
				return err
			}
			for _, args := range [][]string{{"symbolic-ref", "HEAD", "refs/heads/" + branch},
				{"update-ref", "refs/heads/" + branch, string(base)}} {
				if err := s.git.Run(ctx, gitcmd.Command{Repo: dir, Args: args}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create %.120q: %w", name, err)
	}
	return r, nil
}

// adoptPack takes a pack into the repository. path has no suffix.
func (r *Repo) adoptPack(path string) error {
	var files [2]*os.File
	for i, suffix := range []string{".pack", ".idx"} {
		f, err := os.Open(path + suffix)
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
	}
	return r.objects.Packs.Adopt(pack.NewName(), files[0], files[1])
}
