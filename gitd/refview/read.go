package refview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/sys/unix"
)

// packedRef is a line of packed-refs, with the line of the peeled object.
type packedRef struct {
	name   string
	hash   object.Hash
	peeled object.Hash // "" if the object is no tag
}

// refFolder is a folder of loose refs.
type refFolder struct {
	sig   gitfile.Signature
	files map[string]looseRef // by the last part of the name
	subs  []string
}

// looseRef is the file of a loose ref. If it has neither hash nor target, it is damaged.
type looseRef struct {
	sig    gitfile.Signature
	hash   object.Hash
	target string
}

// refChanges is the difference that one refresh found.
type refChanges struct {
	folders  map[string]*refFolder // that were read again, nil if gone
	names    map[string]bool       // of loose refs that were created, deleted or changed
	relinked bool                  // one of them is, or was, symbolic
	repacked bool
	packed   []packedRef
	packSig  gitfile.Signature
	head     headRef
	headSig  gitfile.Signature
}

func (c *refChanges) isEmpty() bool { return len(c.folders) == 0 && !c.repacked }

// readFolder compares a folder and those below it with the disk.
func (v *View) readFolder(c *refChanges, name string) error {
	if strings.Count(name, "/") > object.MaxRef/2 {
		return nil
	}
	sig, err := gitfile.Stat(v.filePath(name))
	if err != nil {
		return err
	}
	known := v.folders[name]
	if known != nil && known.sig.Matches(sig) {
		for _, sub := range known.subs {
			if err := v.readFolder(c, name+"/"+sub); err != nil {
				return err
			}
		}
		return nil
	}

	entries, err := os.ReadDir(v.filePath(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		v.dropFolder(c, name)
		return nil
	} else if err != nil {
		return err
	}

	f := &refFolder{sig: sig, files: make(map[string]looseRef, len(entries))}
	for _, e := range entries {
		full := name + "/" + e.Name()
		if object.RefFault(full) != "" {
			continue // a lock file, or not a file of git
		}
		if e.IsDir() {
			f.subs = append(f.subs, e.Name())
			continue
		}
		var was looseRef
		if known != nil {
			was = known.files[e.Name()]
		}
		is, err := v.readLoose(full, was)
		if errors.Is(err, fs.ErrNotExist) {
			continue // packed or deleted meanwhile
		} else if err != nil {
			return err
		}
		if is.hash != was.hash || is.target != was.target {
			c.names[full] = true
			c.relinked = c.relinked || is.target != "" || was.target != ""
		}
		f.files[e.Name()] = is
	}
	if known != nil {
		v.dropMissing(c, name, known, f)
	}

	c.folders[name] = f
	for _, sub := range f.subs {
		if err := v.readFolder(c, name+"/"+sub); err != nil {
			return err
		}
	}
	return nil
}

// dropMissing records the refs and folders of a folder that were known and are gone.
func (v *View) dropMissing(c *refChanges, name string, known, now *refFolder) {
	for file, was := range known.files {
		if _, ok := now.files[file]; !ok {
			c.names[name+"/"+file] = true
			c.relinked = c.relinked || was.target != ""
		}
	}
	for _, sub := range known.subs {
		if !slices.Contains(now.subs, sub) {
			v.dropFolder(c, name+"/"+sub)
		}
	}
}

// dropFolder records that a folder and its refs are gone.
func (v *View) dropFolder(c *refChanges, name string) {
	known := v.folders[name]
	if known == nil {
		return
	}
	c.folders[name] = nil
	for file, was := range known.files {
		c.names[name+"/"+file] = true
		c.relinked = c.relinked || was.target != ""
	}
	for _, sub := range known.subs {
		v.dropFolder(c, name+"/"+sub)
	}
}

// readLoose reads a loose ref, unless it is the file that was read before.
func (v *View) readLoose(name string, was looseRef) (looseRef, error) {
	sig, err := gitfile.Stat(v.filePath(name))
	if err != nil {
		return looseRef{}, err
	}
	if sig.IsMissing() {
		return looseRef{}, fs.ErrNotExist
	}
	if was.sig.Matches(sig) {
		return was, nil
	}
	is := looseRef{sig: sig}
	b, err := gitfile.ReadSmall(v.filePath(name))
	switch {
	case errors.Is(err, object.ErrTooLarge), errors.Is(err, syscall.EISDIR):
		return is, nil
	case err != nil:
		return is, err
	}
	text := strings.TrimSpace(string(b))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		is.target = strings.TrimSpace(target)
	} else if h := object.Hash(text); len(h) == 40 && object.IsHex(text) {
		is.hash = h
	}
	return is, nil
}

func (v *View) readHead() (headRef, error) {
	b, err := gitfile.ReadSmall(v.filePath("HEAD"))
	if err != nil {
		return headRef{}, err
	}
	text := strings.TrimSpace(string(b))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		return headRef{target: strings.TrimSpace(target)}, nil
	}
	if len(text) == 40 && object.IsHex(text) {
		return headRef{hash: object.Hash(text)}, nil
	}
	return headRef{}, nil
}

// readPacked reads packed-refs, and returns the signature of the very file that it read.
func (v *View) readPacked() ([]packedRef, gitfile.Signature, error) {
	f, err := os.Open(v.filePath("packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, gitfile.Signature{}, nil
	} else if err != nil {
		return nil, gitfile.Signature{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, gitfile.Signature{}, err
	}
	refs, err := parsePacked(f)
	return refs, gitfile.SignatureOf(&st), err
}

// peelNew returns the objects that tags name, by tag. It adds those of new refs.
func (v *View) peelNew(ctx context.Context, c *refChanges) (map[object.Hash]object.Hash, error) {
	known := v.peeled
	var ask []object.Hash
	seen := map[object.Hash]bool{}
	need := func(h object.Hash) {
		if _, ok := known[h]; h != "" && !ok && !seen[h] {
			seen[h] = true
			ask = append(ask, h)
		}
	}

	for _, f := range c.folders {
		if f == nil {
			continue
		}
		for _, l := range f.files {
			need(l.hash)
		}
	}
	for _, p := range c.packed {
		if p.peeled == unpeeled {
			need(p.hash)
		}
	}
	if len(ask) == 0 && known != nil {
		return known, nil
	}

	found, err := v.Objects.Kinds(ctx, ask)
	if err != nil {
		return nil, err
	}
	all := make(map[object.Hash]object.Hash, len(known)+len(found))
	// Objects that no ref is at any more are forgotten when they are many.
	if len(known) < 2*(len(v.refs)+1000) {
		maps.Copy(all, known)
	} else {
		for _, r := range v.refs {
			if p, ok := known[r.Hash]; ok {
				all[r.Hash] = p
			}
		}
	}

	for h, o := range found {
		all[h] = o.Peeled
	}
	return all, nil
}

// unpeeled marks a packed ref whose file does not say whether it is a tag.
const unpeeled object.Hash = "?"

// parsePacked parses packed-refs with its peeled tags. The result is sorted.
func parsePacked(in *os.File) ([]packedRef, error) {
	b, err := readAtMost(in, packedRefsMax)
	if err != nil {
		return nil, err
	}
	var refs []packedRef
	fully, tags := false, false
	text := string(b) // names and hashes share its memory
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
		case line[0] == '#':
			traits := strings.Fields(line)
			fully = fully || slices.Contains(traits, "fully-peeled")
			tags = tags || slices.Contains(traits, "peeled")
		case line[0] == '^':
			if len(refs) == 0 || len(line) != 41 || !object.IsHex(line[1:]) {
				return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
			}
			refs[len(refs)-1].peeled = object.Hash(line[1:])
		default:
			h, name, ok := strings.Cut(line, " ")
			if !ok || len(h) != 40 || !object.IsHex(h) || name == "" {
				return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
			}
			p := packedRef{name: name, hash: object.Hash(h)}
			if !fully && !(tags && strings.HasPrefix(name, "refs/tags/")) {
				p.peeled = unpeeled
			}
			refs = append(refs, p)
		}
	}
	byName := func(a, b packedRef) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(refs, byName) {
		slices.SortFunc(refs, byName)
	}
	return slices.DeleteFunc(refs, func(p packedRef) bool { return object.RefFault(p.name) != "" }), nil
}

// packedRefsMax bounds the bytes of packed-refs, which hold some millions of refs.
const packedRefsMax = 512 << 20

func readAtMost(f *os.File, max int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > max {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", filepath.Base(f.Name()), max, object.ErrTooLarge)
	}
	var b bytes.Buffer
	b.Grow(int(info.Size()) + 512)
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

// HasReftable reports whether the repository dir keeps its refs in the newer format of git, which only git reads here.
func HasReftable(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "reftable"))
	return err == nil
}
