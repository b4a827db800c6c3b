package gitd

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/sshsig"
	"golang.org/x/crypto/ssh"
)

// Base is the manifest of a base. It records the state of the canonical base, the deploy from it and its
// dependencies at one time. It is kept as a signed commit with base.json and base.json.sig, at a ref of its own
// below refs/ramus/bases/. The parent of the commit is the previous manifest.
type Base struct {
	Type   string `json:"type"` // always [BaseType]
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	// Commit is the commit that was deployed or refreshed to. Head is the tip of the base then, which contains it.
	Commit Hash `json:"commit"`
	Head   Hash `json:"head"`
	// Previous is the commit of the previous manifest, which is the parent of this one's.
	Previous    Hash   `json:"previous,omitempty"`
	Environment string `json:"environment,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	// Lockfiles has the sha256 of every lock file at Commit, by path.
	Lockfiles map[string]string `json:"lockfiles"`
	// Schema is the hash of the generated client or schema. It comes from the deploy or from [Repo.HashFiles].
	Schema string `json:"schema,omitempty"`
	// Platform is the platform of the dependencies in the lock files, such as "linux-amd64".
	Platform   string    `json:"platform,omitempty"`
	DeployedAt time.Time `json:"deployed_at,omitzero"` // from the deploy
	SentAt     time.Time `json:"sent_at,omitzero"`     // when the message of the deploy was signed, zero if there was none
	Time       time.Time `json:"time"`                 // when the base was refreshed
}

// BaseType is the version of the format.
const BaseType = "ramus-base/1"

const (
	baseRefs   = "refs/ramus/bases"
	baseLatest = baseRefs + "/latest"
	baseFile   = "base.json"
	baseSig    = baseFile + ".sig"
	// baseSpace is the namespace of the signatures.
	baseSpace = "ramus-base"
	baseMax   = 1 << 20
)

// SignedBase is a manifest that is kept in a repository.
type SignedBase struct {
	Base
	Ref  string `json:"ref"`
	Hash Hash   `json:"hash"` // the commit that holds it
}

// BaseKey returns the public key for the signatures of manifests, as a line of an allowed_signers file for
// `ssh-keygen -Y verify`.
func (s *Server) BaseKey() string {
	key, err := ssh.NewPublicKey(s.baseKey.Public())
	if err != nil {
		panic(err) // an Ed25519 key always is one
	}
	return fmt.Sprintf(`ramus namespaces="%s" %s`, baseSpace, ssh.MarshalAuthorizedKey(key))
}

// PutBase signs a manifest and keeps it. It sets Type, Repo and Previous.
func (r *Repo) PutBase(ctx context.Context, b Base, author Person) (SignedBase, error) {
	signed, err := r.putBase(ctx, b, author)
	if err != nil {
		return signed, fmt.Errorf("cannot keep the manifest of the base of %s: %w", r.name, err)
	}
	return signed, nil
}

func (r *Repo) putBase(ctx context.Context, b Base, author Person) (SignedBase, error) {
	b.Type, b.Repo, b.Time = BaseType, r.name, b.Time.UTC()
	if err := CheckHash(b.Commit); err != nil {
		return SignedBase{}, err
	}
	for range mergeTries {
		var parents []Hash
		previous, err := r.readRef(ctx, baseLatest)
		if err == nil {
			parents = []Hash{previous}
		} else if !errors.Is(err, ErrNotFound) {
			return SignedBase{}, err
		}
		b.Previous = previous
		text, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return SignedBase{}, err
		}
		text = append(text, '\n')
		sig, err := sshsig.Sign(r.server.baseKey, baseSpace, text)
		if err != nil {
			return SignedBase{}, err
		}
		hash, err := r.WriteCommit(ctx, NewCommit{Parents: parents, Author: author, When: b.Time,
			Put:     []File{{Path: baseFile, Content: text}, {Path: baseSig, Content: sig}},
			Message: fmt.Sprintf("Base of %s at %s\n", b.Branch, b.Commit)})
		if err != nil {
			return SignedBase{}, err
		}
		at := b.Time.Format("20060102-150405.000") // the order of the names is that of time
		name := baseRefs + "/" + at + "-" + string(b.Commit)
		for n := 2; ; n++ {
			if _, err := r.readRef(ctx, name); errors.Is(err, ErrNotFound) {
				break
			} else if err != nil {
				return SignedBase{}, err
			}
			name = fmt.Sprintf("%s/%s-%s.%d", baseRefs, at, b.Commit, n)
		}
		none := Hash("")
		err = r.Update(ctx, RefUpdate{Name: name, New: hash, Old: &none},
			RefUpdate{Name: baseLatest, New: hash, Old: &previous})
		if err == nil {
			return SignedBase{b, name, hash}, nil
		}
		if !errors.Is(err, ErrConflict) {
			return SignedBase{}, err
		}
	}
	return SignedBase{}, ErrConflict
}

// Bases lists the manifests of a repository's bases, newest first. It lists at most max of them. Zero means 100.
// It does not check their signatures, which [Repo.CheckBase] does.
func (r *Repo) Bases(ctx context.Context, max int) ([]SignedBase, error) {
	if max <= 0 {
		max = 100
	}
	refs, err := r.Refs(ctx, baseRefs)
	if err != nil {
		return nil, err
	}
	slices.Reverse(refs) // their names begin with the time
	list := []SignedBase{}
	for _, ref := range refs {
		if ref.Name == baseLatest {
			continue
		}
		if len(list) == max {
			break
		}
		b, _, err := r.readBase(ctx, ref.Hash)
		if err != nil {
			return nil, fmt.Errorf("cannot read the manifest %s in %s: %w", ref.Name, r.name, err)
		}
		list = append(list, SignedBase{b, ref.Name, ref.Hash})
	}
	return list, nil
}

// LatestBase returns the newest manifest. Returns [ErrNotFound] if there is none.
func (r *Repo) LatestBase(ctx context.Context) (SignedBase, error) {
	hash, err := r.readRef(ctx, baseLatest)
	var b Base
	if err == nil {
		b, _, err = r.readBase(ctx, hash)
	}
	if err != nil {
		return SignedBase{}, fmt.Errorf("cannot read the newest manifest of the base of %s: %w", r.name, err)
	}
	return SignedBase{b, baseLatest, hash}, nil
}

func (r *Repo) readBase(ctx context.Context, hash Hash) (b Base, text []byte, err error) {
	if text, err = r.ReadFile(ctx, string(hash), baseFile, baseMax); err != nil {
		return b, nil, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, nil, fmt.Errorf("%s is damaged: %w", baseFile, err)
	}
	return b, text, nil
}

// CheckBase checks a manifest against the server's own key and against the content of the repository. It checks
// the signature, the chain to the previous manifest, that the base contains the commit, and the lock files.
func (r *Repo) CheckBase(ctx context.Context, hash Hash) error {
	if err := r.checkBase(ctx, hash); err != nil {
		return fmt.Errorf("the manifest %s is not to be trusted: %w", hash, err)
	}
	return nil
}

func (r *Repo) checkBase(ctx context.Context, hash Hash) error {
	b, text, err := r.readBase(ctx, hash)
	if err != nil {
		return err
	}
	sig, err := r.ReadFile(ctx, string(hash), baseSig, sshsig.MaxBytes)
	if err != nil {
		return err
	}
	if err := sshsig.Verify(r.server.baseKey.Public().(ed25519.PublicKey), baseSpace, text, sig); err != nil {
		return err
	}

	commit, err := r.objects.ReadCommit(ctx, hash)
	if err != nil {
		return err
	}
	previous := Hash("")
	if len(commit.Parents) > 0 {
		previous = commit.Parents[0]
	}
	switch {
	case b.Type != BaseType:
		return fmt.Errorf("it is a %q, not a %s", b.Type, BaseType)
	case b.Repo != r.name:
		return fmt.Errorf("it is of the repository %q", b.Repo)
	case len(commit.Parents) > 1 || previous != b.Previous:
		return errors.New("its commit does not follow the manifest that it names")
	}

	tip, err := r.readRef(ctx, "refs/heads/"+b.Branch)
	if err != nil {
		return fmt.Errorf("its branch %s: %w", b.Branch, err)
	}
	for _, h := range []Hash{b.Commit, b.Head} {
		if err := r.checkOnBase(ctx, h, b.Branch, tip); err != nil {
			return fmt.Errorf("%s does not contain its commit %s: %w", b.Branch, h, err)
		}
	}
	found, err := r.Lockfiles(ctx, b.Commit)
	if err != nil {
		return err
	}

	for name, sum := range b.Lockfiles {
		if found[name] != sum {
			return fmt.Errorf("its lock file %s has another hash at %s", name, b.Commit)
		}
	}
	if len(found) != len(b.Lockfiles) {
		return fmt.Errorf("it names %d lock files, at %s are %d", len(b.Lockfiles), b.Commit, len(found))
	}
	return nil
}

// lockNames are the files that pin dependencies.
var lockNames = map[string]bool{
	"package-lock.json": true, "npm-shrinkwrap.json": true, "pnpm-lock.yaml": true, "yarn.lock": true, "bun.lock": true,
	"go.sum": true, "Cargo.lock": true, "uv.lock": true, "poetry.lock": true, "Pipfile.lock": true, "requirements.txt": true,
	"Gemfile.lock": true, "composer.lock": true, "gradle.lockfile": true, "mix.lock": true,
}

const (
	lockfilesMax   = 1000
	lockfileMax    = 64 << 20
	vendoredFolder = "node_modules"
)

// Lockfiles returns the sha256 of every lock file at a commit, by path. It leaves out those of installed
// dependencies.
func (r *Repo) Lockfiles(ctx context.Context, commit Hash) (map[string]string, error) {
	found := map[string]string{}
	err := r.lockfiles(ctx, commit, found)
	if err != nil {
		return nil, fmt.Errorf("cannot look for the lock files of %s in %s: %w", commit, r.name, err)
	}
	return found, nil
}

func (r *Repo) lockfiles(ctx context.Context, commit Hash, found map[string]string) error {
	root, err := r.objects.TreeOf(ctx, commit)
	if err != nil {
		return err
	}
	folders := 0
	var walk func(tree Hash, at string) error
	walk = func(tree Hash, at string) error {
		if folders++; folders > object.MaxFolders || strings.Count(at, "/") > 1000 {
			return fmt.Errorf("more than %d folders: %w", object.MaxFolders, ErrTooLarge)
		}
		entries, err := r.objects.ReadTree(ctx, tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			p := path.Join(at, e.Name)
			switch {
			case e.Mode == object.ModeFolder && e.Name != vendoredFolder:
				if err := walk(e.Hash, p); err != nil {
					return err
				}
			case e.Kind() == "blob" && e.Mode != object.ModeSymlink && lockNames[e.Name]:
				if len(found) == lockfilesMax {
					return fmt.Errorf("more than %d lock files: %w", lockfilesMax, ErrTooLarge)
				}
				if found[p], err = r.digest(ctx, e.Hash); err != nil {
					return fmt.Errorf("%.200q: %w", p, err)
				}
			}
		}
		return nil
	}
	return walk(root, "")
}

// digest returns the sha256 of the content of a blob.
func (r *Repo) digest(ctx context.Context, blob Hash) (string, error) {
	in, size, err := r.objects.Stream(ctx, blob)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if size > lockfileMax {
		return "", fmt.Errorf("it has %d bytes: %w", size, ErrTooLarge)
	}
	h := sha256.New()
	if _, err := io.Copy(h, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// HashFiles returns one hash over files, and over all files below folders, at a commit. It is the sha256 of the
// output of `sha256sum` for them, in the order of their names.
func (r *Repo) HashFiles(ctx context.Context, commit Hash, paths []string) (string, error) {
	sum, err := r.hashFiles(ctx, commit, paths)
	if err != nil {
		return "", fmt.Errorf("cannot hash files of %s in %s: %w", commit, r.name, err)
	}
	return sum, nil
}

func (r *Repo) hashFiles(ctx context.Context, commit Hash, paths []string) (string, error) {
	files := map[string]Hash{}
	for _, p := range paths {
		p = strings.Trim(p, "/")
		e, err := r.findEntry(ctx, string(commit), p)
		if err != nil {
			return "", fmt.Errorf("%.200q: %w", p, err)
		}
		if e.Kind() != "tree" {
			files[p] = e.Hash
			continue
		}
		list, err := r.listTree(ctx, string(commit), p, true)
		if err != nil {
			return "", err
		}
		for _, f := range list {
			if f.Type == "blob" {
				files[f.Path] = f.Hash
			}
		}
	}
	if len(files) > lockfilesMax {
		return "", fmt.Errorf("%d files: %w", len(files), ErrTooLarge)
	}

	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		sum, err := r.digest(ctx, files[name])
		if err != nil {
			return "", fmt.Errorf("%.200q: %w", name, err)
		}
		fmt.Fprintf(h, "%s  %s\n", sum, name)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
